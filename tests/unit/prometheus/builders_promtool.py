"""Stories of machines for ``promtool test rules``: what a Prometheus of some rhythm gets to see.

A failed scrape takes every series of its target away (``stale``), as a real Prometheus does, and
scrapes need not fall on evaluations: what an alert does to one machine depends on both.
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
from tests.patience import HANG_S

RULES = Path(__file__).resolve().parents[3] / "prometheus"
STEP_S = 5
Spans: TypeAlias = tuple[tuple[float, float], ...]
"""Minutes from, inclusive, and to."""
Value: TypeAlias = Callable[[float], float | None]
"""Of a metric by the Unix time in seconds; ``None`` where the daemon does not show it."""


def within(second: float, spans: Spans) -> bool:
    return any(first * 60 <= second < last * 60 for first, last in spans)


@dataclass(frozen=True)
class Rhythm:
    """How often a Prometheus scrapes and evaluates, and how long after an evaluation it scrapes."""

    scrape_s: int
    evaluation_s: int
    offset_s: int = 0

    def __str__(self) -> str:
        return f"{self.scrape_s}-{self.evaluation_s}-{self.offset_s}"


@dataclass
class Target:
    """One daemon as it is scraped.

    Attributes:
        instance: Its address.
        job: Its job.
        unscraped: When a scrape fails although the daemon lives.
        down: When there is no daemon; it counts from 0 afterwards.
        undiscovered: When Prometheus does not know of it.
    """

    instance: str = "a:19835"
    job: str = "gpumon"
    unscraped: Spans = ()
    down: Spans = ()
    undiscovered: Spans = ()
    series: list[tuple[str, Value]] = field(default_factory=list)

    def has(self, name: str, value: Value, /, **labels: str) -> None:
        """One series more."""
        words = {"job": self.job, "instance": self.instance, **labels}
        text = ",".join(f'{key}="{one}"' for key, one in words.items())
        self.series.append((f"{name}{{{text}}}", value))

    def running_s(self, second: float) -> float:
        """Seconds since the daemon started."""
        ends = [last * 60 for _, last in self.down if last * 60 <= second]
        return second - max(ends, default=0.0)

    def answers(self, second: float) -> bool:
        return not within(second, self.unscraped) and not within(second, self.down)

    def lines(self, rhythm: Rhythm, minutes: int) -> list[dict[str, str]]:
        """What promtool calls ``input_series``."""
        known = [(f'up{{job="{self.job}",instance="{self.instance}"}}', _one), *self.series]
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


def _one(second: float) -> float:
    return 1.0


def daemon(
    target: Target, gpus: Mapping[str, Spans], *, lost_at: Mapping[str, float] | None = None
) -> Target:
    """A daemon that reads GPUs.

    Args:
        target: What it is scraped as.
        gpus: By UUID, in the order of their index, when they are not in the machine.
        lost_at: From which minute on one that is listed does not answer. Its last sample is shown
            until the daemon starts anew.
    """
    lost = {uuid: minute * 60 for uuid, minute in (lost_at or {}).items()}

    def success(second: float) -> float:
        return float(not any(second >= at for at in lost.values()))

    target.has("gpumon_build_info", _one, version="1.0")
    target.has("gpumon_samples_total", target.running_s)
    target.has("gpumon_collector_success", success, collector="nvml")
    for index, (uuid, absent) in enumerate(gpus.items()):
        gpu = Gpu(target, absent, lost.get(uuid, math.inf))
        name = {"gpu": str(index), "name": "H200", "driver_version": "570.1"}
        target.has("gpumon_gpu_info", gpu.shown(_one), uuid=uuid, **name)
        target.has("gpumon_gpu_observed_seconds_total", gpu.shown(target.running_s), uuid=uuid)
        target.has("gpumon_last_sample_timestamp_seconds", gpu.last_sample, uuid=uuid)
    return target


@dataclass(frozen=True)
class Gpu:
    """One GPU of a daemon; it may be away for a while, or be lost at a second."""

    target: Target
    absent: Spans = ()
    lost_s: float = math.inf

    def shown(self, value: Value) -> Value:
        """That, while the GPU answers."""
        return lambda second: (
            None if within(second, self.absent) or second >= self.lost_s else value(second)
        )

    def last_sample(self, second: float) -> float | None:
        newest_s = min(second - 0.3, self.lost_s)
        is_known = newest_s >= second - self.target.running_s(second)
        return newest_s if is_known and not within(second, self.absent) else None


@dataclass
class Story:
    """Targets, and what is to be said of them at which minute."""

    minutes: int
    targets: tuple[Target, ...]
    asked: list[tuple[str, float, float]] = field(default_factory=list)

    def at(self, minute: float, expr: str, value: float) -> Story:
        """An expression has that value then, 0 where it finds nothing."""
        self.asked.append((f"({expr}) or vector(0)", minute, value))
        return self

    def fires(self, alert: str, first: float, last: float, count: int = 1) -> Story:
        """So many of that alert fire at every evaluation from the one minute to the other."""
        firing = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)'
        over = f"({firing})[{round((last - first) * 60)}s:15s]"
        return self.at(last, f"min_over_time({over}) == max_over_time({over})", count)

    def is_silent(self, alerts: str, first: float, last: float, *, state: str = "firing") -> Story:
        """None of those alerts (a regular expression) is in that state at any time between."""
        chosen = f'ALERTS{{alertname=~"{alerts}",alertstate=~"{state}"}}'
        return self.at(last, f"count(last_over_time({chosen}[{round((last - first) * 60)}s]))", 0)

    def told(self, rhythm: Rhythm, folder: Path) -> str:
        """What promtool has against it; nothing if all is as was asked."""
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
                for expr, minute, value in self.asked
            ],
        }
        path = folder / f"{rhythm}.yml"
        document = {
            "rule_files": [str(RULES / "rules.yml"), str(RULES / "alerts.yml")],
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
            env=os.environ | {"GOGC": "400"},  # it has ended before it needs tidying: less CPU
        )
        return "" if done.returncode == 0 else f"at {rhythm}: {done.stdout}{done.stderr}"


Hold: TypeAlias = Callable[[Story], None]
"""Asserts of a story that the alerts do what it says."""
