"""A script of four hosts: what a Prometheus scraped from them, with the truth for dashboards.

The script has three parts of equal length. Host 0 runs ``resnet``, which waits for input more and
more, while its GPU 1 gets warmer, because a fan fails; in the last part heat holds its clocks down.
Host 1 runs ``bert``, which hardly loses. Host 2 is not in use until ``gpt`` starts there in the
last part. Host 3 is not in use, and its daemon is down in the last part.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, TextIO

from benchmarks.fleet_block import (
    NO_JOB,
    NOT_IN_USE,
    WATTS,
    FleetScript,
    Job,
    Labels,
    Rates,
    Span,
    rates_of_daemons,
    uuid_of,
)

NOON_S: Final = 1_767_268_800
"""1 January 2026, 12:00 UTC: old enough that it lies in the past, and always the same."""
SCRAPE_S: Final = 15
PAUSE_S: Final = 1.2
PAUSE_BOUNDS: Final = ("0.25", "0.5", "1", "1.5", "2", "5", "+Inf")
GIB: Final = 2**30

RESNET_FIRST: Final = Job(
    "resnet", "ada", {"input_wait": 0.1, "checkpoint": 0.05}, {"disk_bound": 1.0}
)
RESNET_THEN: Final = Job(
    "resnet",
    "ada",
    {"input_wait": 0.4, "checkpoint": 0.05, "within_step": 0.05},
    {"disk_bound": 0.75, "cpu_bound": 0.25},
)
RESNET_LAST: Final = Job(
    "resnet",
    "ada",
    {"input_wait": 0.6, "within_step": 0.05},
    {"disk_bound": 0.5, "cpu_bound": 0.5},
)
BERT: Final = Job("bert", "bob", {"validation": 0.04, "within_step": 0.02})
GPT: Final = Job("gpt", "ada", {"start_up": 0.3, "input_wait": 0.1}, {"unknown": 1.0})
WAITING: Final = Job("queued", "ada", {NOT_IN_USE: 1.0})
"""A run that holds a GPU and does nothing."""
HEAT: Final = ((RESNET_FIRST, 6.0), (RESNET_THEN, 20.0), (RESNET_LAST, 30.0))
"""How many degrees the failing fan of GPU 1 adds on host 0."""
MOST_HERTZ: Final = 1.98e9
HOT_HERTZ: Final = 1.32e9
"""The clock of that GPU while heat holds it down."""

HOSTS: Final = 4
GPUS: Final = 2
DOWN: Final = 3


def _script(*jobs: Job) -> FleetScript:
    return FleetScript(hosts=HOSTS, gpus=GPUS, jobs=jobs)


@dataclass(frozen=True)
class Part:
    """A third of the script: constant rates, and hosts whose daemon is down."""

    fleet: FleetScript
    down: frozenset[int] = frozenset()


USED: Final = (
    Part(_script(RESNET_FIRST, BERT, NO_JOB, NO_JOB)),
    Part(_script(RESNET_THEN, BERT, NO_JOB, NO_JOB)),
    Part(_script(RESNET_LAST, BERT, GPT, NO_JOB), frozenset({DOWN})),
)
UNUSED: Final = (Part(_script(WAITING, NO_JOB, NO_JOB, NO_JOB)),) * 3


@dataclass(frozen=True)
class Hours:
    """The script in a span of time.

    Attributes:
        parts: What happens, each for the same time.
        minutes: Length of all parts together; tiles of five minutes fit into each.
    """

    parts: tuple[Part, ...] = USED
    minutes: int = 30

    @property
    def span(self) -> Span:
        return Span(NOON_S, NOON_S + self.minutes * 60)

    @property
    def part_s(self) -> int:
        return self.minutes * 60 // len(self.parts)

    def lost_seconds(self, by: str) -> dict[str, float]:
        """The truth: as ``FleetScript.lost_seconds``."""
        return self._added(lambda fleet: fleet.lost_seconds(by, self.part_s))

    def busy_seconds(self, by: str) -> dict[str, float]:
        """The truth: as ``FleetScript.busy_seconds``."""
        return self._added(lambda fleet: fleet.busy_seconds(by, self.part_s))

    def joules(self) -> dict[str, float]:
        """The truth: as ``FleetScript.joules``, without hosts that are down."""
        return self._added(lambda fleet: fleet.joules(self.part_s))

    def _added(self, truth: Callable[[FleetScript], dict[str, float]]) -> dict[str, float]:
        sums: dict[str, float] = defaultdict(float)
        for part in self.parts:
            for key, value in truth(part.fleet).items():
                sums[key] += value
        return dict(sums)

    def write(self, text: TextIO) -> None:
        """Write all scrapes as OpenMetrics, without the last line."""
        for (name, labels), values in sorted(self._series.items()):
            inside = ",".join(f'{key}="{value}"' for key, value in labels)
            text.writelines(f"{name}{{{inside}}} {value:.6f} {at}\n" for at, value in values)

    @cached_property
    def _series(self) -> dict[tuple[str, Labels], list[tuple[int, float]]]:
        found: dict[tuple[str, Labels], list[tuple[int, float]]] = defaultdict(list)
        totals: Rates = defaultdict(float)
        for number, part in enumerate(self.parts):
            rates = {**rates_of_daemons(part.fleet), **_rates_of_boards(part.fleet)}
            growing = {key: rate for key, rate in rates.items() if not _is_down(key[1], part)}
            gauges = {
                key: value
                for key, value in _gauges(part.fleet, number).items()
                if not _is_down(key[1], part)
            }
            start_s = self.span.first_s + number * self.part_s
            for key in growing.keys() - totals.keys():  # a counter is born with 0
                found[key].append((start_s, 0.0))
            for at in Span(start_s, start_s + self.part_s).times(SCRAPE_S):
                for key, rate in growing.items():
                    totals[key] += rate * SCRAPE_S
                for key in totals:
                    if not _is_down(key[1], part):
                        found[key].append((at, totals[key]))
                for key, value in (gauges | dict(self._always(number, part, at))).items():
                    found[key].append((at, value))
        return found

    def _always(
        self, number: int, part: Part, at: int
    ) -> Iterator[tuple[tuple[str, Labels], float]]:
        for host in range(HOSTS):
            target = _target(part.fleet, host)
            is_up = host not in part.down
            yield ("up", target), float(is_up)
            if is_up:
                yield ("process_start_time_seconds", target), float(self.span.first_s)
            for gpu in range(GPUS if is_up else 0):
                key = "gpumon_last_sample_timestamp_seconds", _on_gpu(part.fleet, host, gpu)
                yield key, float(at)
        if part.down:
            down = (
                ("alertname", "GpumonDown"),
                ("alertstate", "firing"),
                *_target(part.fleet, DOWN),
                ("severity", "page"),
            )
            yield ("ALERTS", down), 1.0
        if number == len(self.parts) - 1 and self.parts is USED:
            hot = (
                ("alertname", "GpumonGPUThrottled"),
                ("alertstate", "firing"),
                ("gpu", "1"),
                *_on_gpu(part.fleet, 0, 1),
                ("severity", "info"),
            )
            yield ("ALERTS", hot), 1.0
            starved = (
                ("alertname", "GpumonGPUStarved"),
                ("alertstate", "firing"),
                *_target(part.fleet, 0),
                ("run", "resnet"),
                ("user", "ada"),
                ("severity", "page"),
            )
            yield ("ALERTS", starved), 1.0


def write_file(hours: Hours, path: Path) -> None:
    """Write all scrapes to a new file."""
    with path.open("w", encoding="utf-8") as text:
        hours.write(text)


def _target(fleet: FleetScript, host: int) -> Labels:
    return ("job", "gpumon"), ("instance", f"{fleet.host(host)}:19835")


def _on_gpu(fleet: FleetScript, host: int, gpu: int) -> Labels:
    return *_target(fleet, host), ("uuid", uuid_of(host, gpu))


def _is_down(labels: Labels, part: Part) -> bool:
    instance = dict(labels).get("instance", "")
    return any(instance == f"{part.fleet.host(host)}:19835" for host in part.down)


def _rates_of_boards(fleet: FleetScript) -> Rates:
    """Growth per second of what ``rates_of_daemons`` does not have."""
    rates: Rates = {}
    for host, (_, job) in enumerate(fleet):
        target = _target(fleet, host)
        input_wait = job.idle.get("input_wait", 0.0)
        for gpu in range(fleet.gpus):
            on_gpu = _on_gpu(fleet, host, gpu)
            rates["gpumon_gpu_starved_seconds_total", on_gpu] = input_wait
            rates["gpumon_gpu_suspected_seconds_total", on_gpu] = 0.0
            for bound in PAUSE_BOUNDS:
                bucket = "gpumon_gpu_idle_gap_seconds_bucket", (*on_gpu, ("le", bound))
                rates[bucket] = input_wait / PAUSE_S if float(bound) > PAUSE_S else 0.0
            rates["gpumon_gpu_idle_gap_seconds_count", on_gpu] = input_wait / PAUSE_S
            if job is RESNET_LAST and gpu == 1:
                by_heat = (*on_gpu, ("reason", "sw_thermal_slowdown"))
                rates["gpumon_gpu_throttled_seconds_total", by_heat] = 1.0
            for kind in ("corrected", "uncorrected"):
                rates["gpumon_gpu_ecc_errors_total", (*on_gpu, ("kind", kind))] = 0.0
        if job.run:
            of_run = (*target, ("run", job.run))
            rates["gpumon_training_steps_total", of_run] = 4 * job.busy
            rates["gpumon_training_samples_total", of_run] = 512 * job.busy
            phases = {"train_step": job.busy + job.idle.get("within_step", 0.0), **job.lost}
            phases.pop("within_step", None)
            for phase, share in phases.items():
                key = "gpumon_training_phase_seconds_total", (*of_run, ("phase", phase))
                rates[key] = share
        rates["gpumon_samples_total", target] = 1.0
        rates["gpumon_samples_missed_total", target] = 0.0
    return rates


def _gauges(fleet: FleetScript, part: int) -> Rates:
    """Present values in a part of the script."""
    values: Rates = {}
    for host, (_, job) in enumerate(fleet):
        target = _target(fleet, host)
        values["gpumon_build_info", (*target, ("version", "1.0"))] = 1.0
        for collector, seconds in (("nvml", 0.003), ("phase_rings", 0.001), ("host", 0.002)):
            of_collector = (*target, ("collector", collector))
            values["gpumon_collector_success", of_collector] = 1.0
            values["gpumon_collector_duration_seconds", of_collector] = seconds
        for gpu in range(fleet.gpus):
            values.update(_gauges_of_gpu(fleet, host, gpu, job))
        if job.run:
            of_run = (*target, ("run", job.run))
            values["gpumon_training_run_start_timestamp_seconds", of_run] = float(NOON_S)
            values["gpumon_training_hanging", of_run] = 0.0
            values["gpumon_training_epoch", of_run] = 0.0
            if job.run == "resnet":
                values["gpumon_training_epoch", of_run] = float(part)
                has_changed = part == 2
                shares = (0.6, 0.4) if has_changed else (0.5, 0.5)
                values["gpumon_training_ratio_changes_total", of_run] = float(has_changed)
                for gpu, share in enumerate(shares):
                    key = (*of_run, ("uuid", uuid_of(host, gpu)))
                    values["gpumon_training_share_ratio", key] = share
    return values


def _gauges_of_gpu(fleet: FleetScript, host: int, gpu: int, job: Job) -> Rates:
    on_gpu = _on_gpu(fleet, host, gpu)
    watts = sum(WATTS[use] * share for use, share in job.by_use.items())
    heat = sum(degrees for hot, degrees in HEAT if job is hot and gpu == 1)
    is_hot = job is RESNET_LAST and gpu == 1
    hertz = HOT_HERTZ if is_hot else MOST_HERTZ if job.busy else 0.345e9
    named = (*on_gpu, ("gpu", str(gpu)), ("name", "NVIDIA H200"))
    of_board = {
        "starved": float(job.idle.get("input_wait", 0.0) >= 0.05),
        "memory_used_bytes": (90.0 if job.run else 1.0) * GIB,
        "memory_capacity_bytes": 141.0 * GIB,
        "power_watts": watts,
        "power_limit_watts": 700.0,
        "temperature_celsius": 30.0 + watts / 12 + heat,
        "sm_clock_hertz": hertz,
        "sm_clock_max_hertz": MOST_HERTZ,
        "memory_clock_hertz": 3.2e9,
        "performance_state": 0.0 if job.busy else 8.0,
        "sm_active_ratio": 0.8 * job.busy,
        "tensor_active_ratio": 0.4 * job.busy,
        "memory_bandwidth_ratio": 0.5 * job.busy,
    }
    values: Rates = {(f"gpumon_gpu_{name}", on_gpu): value for name, value in of_board.items()}
    values["gpumon_gpu_info", named] = 1.0
    if is_hot:
        values["gpumon_gpu_throttled", (*on_gpu, ("reason", "sw_thermal_slowdown"))] = 1.0
    if job.run:
        values["gpumon_gpu_job_info", (*on_gpu, ("run", job.run), ("user", job.user))] = 1.0
        values["gpumon_gpu_user_info", (*on_gpu, ("user", job.user))] = 1.0
    return values
