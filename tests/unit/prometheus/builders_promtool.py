"""Scenarios for ``promtool test rules``, as a Prometheus with given intervals sees them.

A failed scrape makes every series of its target ``stale``, as in a real Prometheus, and scrapes
need not coincide with evaluations.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from tests.needs import needed
from tests.waiting import HANG_S

RULES = Path(__file__).resolve().parents[3] / "prometheus"
STEP_S = 5
IS_WHOLE = bool(os.environ.get("GPUMON_WHOLE_TABLE"))
"""Whether ``make truth`` asks for every pair of intervals."""
Spans: TypeAlias = tuple[tuple[float, float], ...]
"""Minutes from (inclusive) to."""
Value: TypeAlias = Callable[[float], float | None]
"""Value of a metric by Unix time in seconds; ``None``: no series."""


def without_tiles(rules: str) -> str:
    """The rules that alerts use: the others take promtool as long again."""
    return rules.split("  - name: gpumon-fleet-5m")[0]


def within(second: float, spans: Spans) -> bool:
    return any(first * 60 <= second < last * 60 for first, last in spans)


@dataclass(frozen=True)
class Rhythm:
    """Intervals of scrapes and evaluations, and the offset between them."""

    scrape_s: int
    evaluation_s: int
    offset_s: int = 0

    def __str__(self) -> str:
        return f"{self.scrape_s}-{self.evaluation_s}-{self.offset_s}"


@dataclass
class Target:
    """A scraped daemon.

    Attributes:
        unscraped: When scrapes fail although the daemon runs.
        down: When there is no daemon; its counters start at 0 afterwards.
        undiscovered: When it is missing from service discovery.
        read_every_s: How often the driver's samples are read, by which times and counters of GPUs
            move; 0: all the time.
    """

    instance: str = "a:19835"
    job: str = "gpumon"
    unscraped: Spans = ()
    down: Spans = ()
    undiscovered: Spans = ()
    read_every_s: float = 0.0
    series: list[tuple[str, Value]] = field(default_factory=list)

    def has(self, name: str, value: Value, /, **labels: str) -> None:
        """Add a series."""
        words = {"job": self.job, "instance": self.instance, **labels}
        text = ",".join(f'{key}="{one}"' for key, one in words.items())
        moves_seldom = name.endswith(("_seconds_total", "last_sample_timestamp_seconds"))
        read = self._when_read(value) if moves_seldom and self.read_every_s else value
        self.series.append((f"{name}{{{text}}}", read))

    def _when_read(self, value: Value) -> Value:
        return lambda second: value(second // self.read_every_s * self.read_every_s)

    def running_s(self, second: float) -> float:
        """Seconds since the daemon started."""
        ends = [last * 60 for _, last in self.down if last * 60 <= second]
        return second - max(ends, default=0.0)

    def answers(self, second: float) -> bool:
        return not within(second, self.unscraped) and not within(second, self.down)

    def lines(self, rhythm: Rhythm, minutes: int) -> list[dict[str, str]]:
        """The ``input_series`` of promtool."""
        known = [(f'up{{job="{self.job}",instance="{self.instance}"}}', always(1)), *self.series]
        return [
            {"series": name, "values": " ".join(self._values(name, value, rhythm, minutes))}
            for name, value in known
        ]

    def _values(self, name: str, value: Value, rhythm: Rhythm, minutes: int) -> list[str]:
        written, was_there = [], False
        for second in range(0, minutes * 60 + 1, STEP_S):
            if second < rhythm.offset_s or (second - rhythm.offset_s) % rhythm.scrape_s:
                written.append("_")
                continue
            number = self._number(name, value, second)
            written.append(f"{number:.3f}" if number is not None else "stale" if was_there else "_")
            was_there = number is not None
        return written

    def _number(self, name: str, value: Value, second: float) -> float | None:
        if within(second, self.undiscovered):
            return None
        if name.startswith("up{"):
            return float(self.answers(second))
        return value(second) if self.answers(second) else None


def daemon(
    target: Target, gpus: Mapping[str, Spans], *, lost_at: Mapping[str, float] | None = None
) -> Target:
    """A daemon that reads GPUs.

    Args:
        target: Its target.
        gpus: When each GPU is absent, by UUID, in index order.
        lost_at: Minute from which on a listed GPU does not answer. Its last sample is shown until
            the daemon restarts.
    """
    lost = {uuid: minute * 60 for uuid, minute in (lost_at or {}).items()}

    def success(second: float) -> float:
        return float(not any(second >= at for at in lost.values()))

    target.has("gpumon_build_info", always(1), version="1.0")
    target.has("gpumon_samples_total", target.running_s)
    target.has("gpumon_collector_success", success, collector="nvml")
    for index, (uuid, absent) in enumerate(gpus.items()):
        gpu = Gpu(target, absent, lost.get(uuid, math.inf))
        name = {"gpu": str(index), "name": "H200", "driver_version": "570.1"}
        target.has("gpumon_gpu_info", gpu.shown(always(1)), uuid=uuid, **name)
        target.has("gpumon_gpu_observed_seconds_total", gpu.shown(target.running_s), uuid=uuid)
        target.has("gpumon_last_sample_timestamp_seconds", gpu.last_sample, uuid=uuid)
    return target


@dataclass(frozen=True)
class Gpu:
    """One GPU of a daemon, which may be absent for a while, or lost."""

    target: Target
    absent: Spans = ()
    lost_s: float = math.inf

    def shown(self, value: Value) -> Value:
        """This value, while the GPU answers."""
        return lambda second: (
            None if within(second, self.absent) or second >= self.lost_s else value(second)
        )

    def last_sample(self, second: float) -> float | None:
        newest_s = min(second - 0.3, self.lost_s)
        is_known = newest_s >= second - self.target.running_s(second)
        return newest_s if is_known and not within(second, self.absent) else None


def always(number: float) -> Value:
    return lambda second: number


def until(minute: float, *, since: float = 0.0) -> Value:
    """1 between two minutes; no series before and after."""
    return lambda second: 1.0 if since * 60 <= second < minute * 60 else None


def grows(per_second: float, *, since: float = 0.0, lump: float = 0.0, at: float = 1e9) -> Value:
    """Grows from a minute on, and by a lump at a minute."""
    return lambda second: (
        per_second * max(0.0, second - since * 60) + (lump if second >= at * 60 else 0.0)
    )


def restarted(target: Target, value: Value) -> Value:
    """The value by the daemon's running time, which restarts with it."""
    return lambda second: value(target.running_s(second))


def healthy(
    target: Target,
    gpus: Mapping[str, Spans],
    *,
    reloaded: Spans = (),
    collectors: Mapping[str, Value] | None = None,
) -> Target:
    """A daemon with busy GPUs and all its series.

    Args:
        target: Its target.
        gpus: As of ``daemon``.
        reloaded: When the driver is away; its count of memory errors restarts then.
        collectors: Those that do not always succeed.
    """
    daemon(target, {uuid: (*spans, *reloaded) for uuid, spans in gpus.items()})
    target.has("process_start_time_seconds", lambda second: second - target.running_s(second))
    for family in ("gpumon_gpu", "gpumon_training", "gpumon_gpu_xid_errors_total"):
        target.has("gpumon_label_sets_dropped_total", always(0), family=family)
    for name in ("phase_rings", "host_evidence", "state_file", "web_server", "metrics_gpu_time"):
        value = (collectors or {}).get(name, always(1))
        target.has("gpumon_collector_success", value, collector=name)

    def old_errors(second: float) -> float:
        return 0.0 if any(second >= first * 60 for first, _ in reloaded) else 3.0

    for uuid in gpus:
        gpu = Gpu(target, reloaded)
        idle = {"checkpoint": 0.08, "imbalance": 0.05, "unknown": 0.02, "not_in_use": 0.0}
        busy = restarted(target, grows(0.85))
        target.has("gpumon_gpu_busy_seconds_total", gpu.shown(busy), uuid=uuid)
        for cause, share in idle.items():
            value = gpu.shown(restarted(target, grows(share)))
            target.has("gpumon_gpu_idle_seconds_total", value, uuid=uuid, cause=cause)
        target.has("gpumon_gpu_rank_wait_seconds_total", gpu.shown(always(0)), uuid=uuid)
        name = "gpumon_gpu_ecc_errors_total"
        target.has(name, gpu.shown(old_errors), uuid=uuid, kind="uncorrected")
    return target


@dataclass
class Story:
    """Targets, and the expected values and alerts by minute."""

    minutes: int
    targets: tuple[Target, ...]
    tests_tiles: bool = False
    """Whether it is on the tiles of a fleet, which no alert uses; otherwise on alerts."""
    expected: list[tuple[str, float, float]] = field(default_factory=list)

    def at(self, minute: float, expr: str, value: float) -> Story:
        """Expect this value of an expression; 0: no series."""
        self.expected.append((f"({expr}) or vector(0)", minute, value))
        return self

    def fires(self, alert: str, first: float, last: float, count: int = 1) -> Story:
        """Expect so many firing alerts at every evaluation between two minutes."""
        firing = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)'
        over = f"({firing})[{round((last - first) * 60)}s:15s]"
        return self.at(last, f"min_over_time({over}) == max_over_time({over})", count)

    def is_silent(self, alerts: str, first: float, last: float, *, state: str = "firing") -> Story:
        """Expect none of these alerts (a regular expression) in this state between two minutes."""
        chosen = f'ALERTS{{alertname=~"{alerts}",alertstate=~"{state}"}}'
        return self.at(last, f"count(last_over_time({chosen}[{round((last - first) * 60)}s]))", 0)

    def failures(self, rhythm: Rhythm, folder: Path) -> str:
        """The output of promtool; empty if everything is as expected."""
        test = {
            "interval": f"{STEP_S}s",
            "input_series": [
                line for target in self.targets for line in target.lines(rhythm, self.minutes)
            ],
            "promql_expr_test": [
                {
                    "expr": expr,
                    "eval_time": f"{round(minute * 60)}s",
                    "exp_samples": [{"labels": "{}", "value": value}],
                }
                for expr, minute, value in self.expected
            ],
        }
        path = folder / f"{rhythm}.yml"
        document = {
            "rule_files": [str(path) for path in self._rules(folder)],
            "evaluation_interval": f"{rhythm.evaluation_s}s",
            "tests": [test],
        }
        path.write_text(json.dumps(document), encoding="utf-8")
        done = subprocess.run(
            [needed("promtool", "prometheus"), "test", "rules", str(path)],
            capture_output=True,
            text=True,
            check=False,
            timeout=HANG_S,
            env=os.environ | {"GOGC": "400"},  # less garbage collection: less CPU
        )
        return "" if done.returncode == 0 else f"at {rhythm}: {done.stdout}{done.stderr}"

    def _rules(self, folder: Path) -> tuple[Path, ...]:
        if self.tests_tiles:
            return (RULES / "rules.yml",)
        rules = folder / "rules.yml"
        text = (RULES / "rules.yml").read_text(encoding="utf-8")
        rules.write_text(without_tiles(text), encoding="utf-8")
        return rules, RULES / "alerts.yml"


Verify: TypeAlias = Callable[[Story], None]
"""Asserts that the alerts of a story are as expected."""
