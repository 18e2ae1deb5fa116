"""A fleet whose losses are known, as blocks of a real Prometheus.

``write_rules`` writes what ``prometheus/rules.yml`` records, ``write_raw`` what the daemons export.
``make_blocks`` turns the text into blocks for ``prometheus --storage.tsdb.path``:

    script = FleetScript(hosts=200)
    with path.open("w") as text:
        write_rules(text, script, Span.of_days(7, until_s=time.time()), tile_s=3600)
    make_blocks(path, folder)
    script.lost_seconds("run", 7 * 86_400)
"""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Final, NamedTuple, TextIO, TypeAlias

RULES: Final = Path(__file__).resolve().parent.parent / "prometheus" / "rules.yml"
TILE_S: Final = 300
HOUR_S: Final = 3600
WATTS: Final[Mapping[str, float]] = {"busy": 600.0, "lost": 200.0, "not_in_use": 120.0}
"""Mean power of a GPU by use."""
NOT_IN_USE: Final = "not_in_use"
Labels: TypeAlias = tuple[tuple[str, str], ...]
Rates: TypeAlias = dict[tuple[str, Labels], float]
"""A number for each series, by the name of its metric and its labels; mostly growth per second."""


class Span(NamedTuple):
    """Unix seconds."""

    first_s: int
    last_s: int

    @classmethod
    def of_days(cls, days: float, *, until_s: float, tile_s: int = HOUR_S) -> Span:
        """The last whole tiles."""
        last_s = int(until_s) // tile_s * tile_s
        return cls(last_s - round(days * 86_400) // tile_s * tile_s, last_s)

    @property
    def seconds(self) -> int:
        """Its length."""
        return self.last_s - self.first_s

    def times(self, step_s: int) -> range:
        """The end of each step."""
        return range(self.first_s + step_s, self.last_s + 1, step_s)


@dataclass(frozen=True)
class Job:
    """What all GPUs of a host do, all the time.

    Attributes:
        run: Name of the run.
        user: Who runs it.
        idle: Share of the time by cause of idle time; the rest is busy.
        reasons: Parts of ``input_wait`` by reason; they add up to 1.
    """

    run: str
    user: str
    idle: Mapping[str, float]
    reasons: Mapping[str, float] = field(default_factory=dict)

    @property
    def lost(self) -> dict[str, float]:
        """Shares of the time that are idle in use."""
        return {cause: share for cause, share in self.idle.items() if cause != NOT_IN_USE}

    @property
    def busy(self) -> float:
        """Share of the time."""
        return 1.0 - sum(self.idle.values())

    @property
    def by_use(self) -> dict[str, float]:
        """Shares of the time as ``gpumon_gpu_use_energy_joules_total`` divides it."""
        not_in_use = self.idle.get(NOT_IN_USE, 0.0)
        return {"busy": self.busy, "lost": sum(self.lost.values()), "not_in_use": not_in_use}


STEADY: Final = {
    "input_wait": 0.02,
    "within_step": 0.06,
    "checkpoint": 0.03,
    "validation": 0.02,
    "callbacks": 0.01,
    "host_to_device": 0.01,
    "between_epochs": 0.005,
    "start_up": 0.005,
    "unknown": 0.01,
    NOT_IN_USE: 0.05,
}
STARVED: Final = {**STEADY, "input_wait": 0.5}
NO_JOB: Final = Job("", "", {NOT_IN_USE: 1.0})


def typical_jobs(count: int = 50) -> tuple[Job, ...]:
    """Four starved runs of two users, then steady ones of eight other users; the last has none."""
    starved = [
        Job(f"starved-{number}", f"late-{number % 2}", STARVED, reasons)
        for number, reasons in enumerate(
            (
                {"cpu_bound": 1.0},
                {"disk_bound": 0.75, "unknown": 0.25},
                {"cpu_bound": 0.5, "gil_bound": 0.5},
                {"network_bound": 1.0},
            )
        )
    ]
    steady = [
        Job(f"steady-{number}", f"user-{number % 8}", STEADY, {"unknown": 1.0})
        for number in range(len(starved), count - 1)
    ]
    return (*starved, *steady, NO_JOB)


@dataclass(frozen=True)
class FleetScript:
    """Hosts and what they do.

    Attributes:
        hosts: Number of hosts.
        gpus: Number of GPUs of each.
        jobs: They are spread over consecutive hosts evenly.
    """

    hosts: int = 200
    gpus: int = 8
    jobs: tuple[Job, ...] = field(default_factory=typical_jobs)

    def host(self, number: int) -> str:
        """Its name: its instance without the port."""
        return f"node-{number:03}"

    def job_of(self, number: int) -> Job:
        """The job on a host."""
        return self.jobs[number * len(self.jobs) // self.hosts]

    def __iter__(self) -> Iterator[tuple[str, Job]]:
        for number in range(self.hosts):
            yield self.host(number), self.job_of(number)

    def lost_seconds(self, by: str, seconds: float) -> dict[str, float]:
        """The truth: GPU-seconds lost.

        Args:
            by: ``host``, ``run``, ``user``, ``cause`` or ``reason`` (of ``input_wait``).
            seconds: Length of the span.
        """
        sums: dict[str, float] = defaultdict(float)
        for host, job in self:
            for cause, share in job.lost.items():
                lost_s = share * self.gpus * seconds
                if by == "reason":
                    for reason, part in job.reasons.items() if cause == "input_wait" else ():
                        sums[reason] += lost_s * part
                else:
                    key = {"host": host, "run": job.run, "user": job.user, "cause": cause}[by]
                    sums[key] += lost_s
        return dict(sums)

    def busy_seconds(self, by: str, seconds: float) -> dict[str, float]:
        """The truth: busy GPU-seconds by ``host``, ``run`` or ``user``."""
        sums: dict[str, float] = defaultdict(float)
        for host, job in self:
            key = {"host": host, "run": job.run, "user": job.user}[by]
            sums[key] += job.busy * self.gpus * seconds
        return dict(sums)

    def joules(self, seconds: float) -> dict[str, float]:
        """The truth: energy by use."""
        sums: dict[str, float] = defaultdict(float)
        for _, job in self:
            for use, share in job.by_use.items():
                sums[use] += share * self.gpus * seconds * WATTS[use]
        return dict(sums)


def rates_of_rules(script: FleetScript) -> Rates:
    """Recorded series without the suffix of their tile, and their growth per second."""
    rates: Rates = defaultdict(float)
    gpus = script.gpus
    for host, job in script:
        on_host = ("host", host)
        rates["host:gpumon_gpu_observed_seconds", (on_host,)] += gpus
        rates["gpumon:gpu_observed_seconds", ()] += gpus
        shares: tuple[tuple[str, Labels, float], ...] = (
            ("host:gpumon_gpu_busy_seconds", (on_host,), job.busy),
            ("host:gpumon_gpu_not_in_use_seconds", (on_host,), job.by_use[NOT_IN_USE]),
            ("run:gpumon_training_gpu_busy_seconds", (("run", job.run),), job.busy),
            ("user:gpumon_user_gpu_busy_seconds", (("user", job.user),), job.busy),
            ("gpumon:gpu_busy_seconds", (), job.busy),
            ("gpumon:gpu_not_in_use_seconds", (), job.by_use[NOT_IN_USE]),
        )
        for name, labels, share in shares:
            rates[name, labels] += share * gpus
        for cause, share in job.lost.items():
            of_cause = ("cause", cause)
            rates["host_cause:gpumon_gpu_lost_seconds", (on_host, of_cause)] += share * gpus
            of_run, of_user = ("run", job.run), ("user", job.user)
            rates["run_cause:gpumon_training_gpu_lost_seconds", (of_run, of_cause)] += share * gpus
            rates["user_cause:gpumon_user_gpu_lost_seconds", (of_user, of_cause)] += share * gpus
            rates["cause:gpumon_gpu_lost_seconds", (of_cause,)] += share * gpus
        for reason, part in job.reasons.items():
            of_reason = "host_reason:gpumon_gpu_input_wait_seconds", (on_host, ("reason", reason))
            rates[of_reason] += part * job.idle["input_wait"] * gpus
        for use, share in job.by_use.items():
            joules = share * gpus * WATTS[use]  # of a second
            rates["host_use:gpumon_gpu_use_energy_joules", (on_host, ("use", use))] += joules
            rates["use:gpumon_gpu_use_energy_joules", (("use", use),)] += joules
    rates["gpumon:gpu_expected_seconds", ()] = script.hosts * gpus
    return rates


def tiles_of_counters() -> dict[str, str]:
    """Expressions of ``prometheus/rules.yml`` that read counters, by name without the suffix."""
    found = re.findall(
        r"- record: (\S+):increase5m\n +expr: >-\n((?: {10}.*\n)+)",
        RULES.read_text(encoding="utf-8"),
    )
    return {name: expression for name, expression in found if "_total" in expression}


def key_of(name: str, labels: Mapping[str, str]) -> tuple[str, frozenset[tuple[str, str]]]:
    """A series; an empty label is none."""
    its = ((key, value) for key, value in labels.items() if value and key != "__name__")
    return name, frozenset(its)


def growth_of_tiles(script: FleetScript) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """What a tile of five minutes must be, by its series."""
    rates = rates_of_rules(script)
    return {key_of(name, dict(labels)): rate * TILE_S for (name, labels), rate in rates.items()}


def write_rules(
    text: TextIO, script: FleetScript, span: Span, *, tile_s: int, missed: tuple[Span, ...] = ()
) -> None:
    """Write the tiles that the recording rules would have recorded, as OpenMetrics.

    Args:
        text: Where to.
        script: The fleet.
        span: From the begin of the first tile to the end of the last.
        tile_s: 300 or 3600.
        missed: Without evaluations: tiles that end there are missing.
    """
    suffix = {TILE_S: "5m", HOUR_S: "1h"}[tile_s]
    times = [
        at for at in span.times(tile_s) if not any(one.first_s < at <= one.last_s for one in missed)
    ]
    for (name, labels), rate in sorted(rates_of_rules(script).items()):
        _write(text, f"{name}:increase{suffix}", labels, ((at, rate * tile_s) for at in times))
    counts = {"gpumon:gpus": script.hosts * script.gpus, "gpumon:hosts": script.hosts}
    for name, count in counts.items():
        _write(text, f"{name}:count{suffix}", (), ((at, float(count)) for at in times))


def rates_of_daemons(script: FleetScript) -> Rates:
    """Counters that the daemons export, and their growth per second."""
    rates: Rates = {}
    for number, (host, job) in enumerate(script):
        target = (("job", "gpumon"), ("instance", f"{host}:19835"))
        by_owner = (("training", "run", job.run), ("user", "user", job.user))
        for gpu in range(script.gpus):
            on_gpu = (*target, ("uuid", uuid_of(number, gpu)))
            rates["gpumon_gpu_observed_seconds_total", on_gpu] = 1.0
            rates["gpumon_gpu_busy_seconds_total", on_gpu] = job.busy
            for cause, share in job.idle.items():
                labels = (*on_gpu, ("cause", cause))
                rates["gpumon_gpu_idle_seconds_total", labels] = share
            for reason, part in job.reasons.items():
                labels = (*on_gpu, ("reason", reason))
                rates["gpumon_gpu_input_wait_seconds_total", labels] = part * job.idle["input_wait"]
            for use, share in job.by_use.items():
                labels = (*on_gpu, ("use", use))
                rates["gpumon_gpu_use_energy_joules_total", labels] = share * WATTS[use]
        for family, label, owner in by_owner:
            of_owner = (*target, (label, owner))
            rates[f"gpumon_{family}_gpu_busy_seconds_total", of_owner] = job.busy * script.gpus
            for cause, share in job.lost.items():
                labels = (*of_owner, ("cause", cause))
                rates[f"gpumon_{family}_gpu_idle_seconds_total", labels] = share * script.gpus
            labels = (*target, (label, ""), ("cause", NOT_IN_USE))
            rates[f"gpumon_{family}_gpu_idle_seconds_total", labels] = (
                job.by_use[NOT_IN_USE] * script.gpus
            )
    return rates


def uuid_of(host: int, gpu: int) -> str:
    """UUID of a GPU by the numbers of its host and itself."""
    return f"GPU-{host:08x}-{gpu:04x}"


def write_raw(
    text: TextIO, script: FleetScript, span: Span, *, step_s: int, since_s: int | None = None
) -> None:
    """Write what a Prometheus scraped from the daemons, as OpenMetrics.

    Args:
        text: Where to.
        script: The fleet.
        span: Of the scrapes.
        step_s: Between two scrapes.
        since_s: When the daemons started (default: a day before the span).
    """
    since_s = span.first_s - 86_400 if since_s is None else since_s
    times = span.times(step_s)
    for (name, labels), rate in rates_of_daemons(script).items():
        _write(text, name, labels, ((at, rate * (at - since_s)) for at in times))
    for number, (host, job) in enumerate(script):
        target = (("job", "gpumon"), ("instance", f"{host}:19835"))
        always: Rates = {
            ("up", target): 1.0,
            ("gpumon_build_info", (*target, ("version", "1.0"))): 1.0,
            ("process_start_time_seconds", target): float(since_s),
        }
        for gpu in range(script.gpus):
            on_gpu = (*target, ("uuid", uuid_of(number, gpu)))
            named = (*on_gpu, ("name", "NVIDIA H200"), ("gpu", str(gpu)))
            always["gpumon_gpu_info", named] = 1.0
            if job.run:
                used = (*on_gpu, ("run", job.run), ("job_id", ""), ("user", job.user))
                always["gpumon_gpu_job_info", used] = 1.0
        if job.run:
            started = "gpumon_training_run_start_timestamp_seconds"
            always[started, (*target, ("run", job.run))] = float(since_s)
        for (name, labels), value in always.items():
            _write(text, name, labels, zip(times, repeat(value), strict=False))


def _write(text: TextIO, name: str, labels: Labels, samples: Iterable[tuple[int, float]]) -> None:
    inside = ",".join(f'{key}="{value}"' for key, value in labels)
    series = f"{name}{{{inside}}}" if inside else name
    text.writelines(f"{series} {value:.6f} {at}\n" for at, value in samples)


def make_blocks(text: Path, folder: Path) -> None:
    """Add the samples of an OpenMetrics file, completed here, to a Prometheus that is not running.

    Args:
        text: Closed file, without its last line.
        folder: For ``--storage.tsdb.path``.
    """
    with text.open("a", encoding="utf-8") as end:
        end.write("# EOF\n")
    # Each block costs one more pass through the file.
    command = ["promtool", "tsdb", "create-blocks-from", "--max-block-duration=162h", "--quiet"]
    subprocess.run(
        [*command, "openmetrics", str(text), str(folder)], check=True, stdout=subprocess.DEVNULL
    )
