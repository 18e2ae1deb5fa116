"""Findings of all detectors on all workloads, compared with the truth and counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from tests.truth.score.detectors import (
    Finding,
    found_by_daemon,
    found_in_logs,
    mean_below_70,
    sagemaker_in_runs,
)
from tests.truth.workloads import Workload, workload
from tests.truth.workloads.seeing import seen_all
from tests.truth.workloads.spans import lengths_ms
from tests.truth.workloads.truth import STARVED_FROM, GpuTruth

PERIODS_S: Final = (0.1, 1.0, 5.0, 15.0, 60.0)
LOG, BARE = "gpumon analyze", "gpumon analyze, no memory.used"
DAEMON, TAGGED = "gpumon serve", "gpumon serve, tagged"
MEAN, SAGEMAKER = "mean below 70 %", "SageMaker p95/p5"
VISIBLE_MS: Final = 1_000
"""A pause that contains a window of any driver."""
_DAY_MS: Final = 86_400_000


@dataclass
class Tally:
    """How often a detector was right, and the errors of its figures.

    Attributes:
        right: Starved, and reported.
        false: Not starved, and reported.
        missed: Starved, and not reported.
        quiet: Not starved, and not reported.
        false_on_healthy: ``false`` on GPUs that lose 5 % or less, to any cause.
        healthy_ms: Observed time of such GPUs.
        lost_errors: Relative error of the lost seconds of each starved GPU.
        starved_errors: The same of the seconds attributed to the input, of each that was reported.
        delays: Bursts between the first visible pause and the report.
    """

    right: int = 0
    false: int = 0
    missed: int = 0
    quiet: int = 0
    false_on_healthy: int = 0
    healthy_ms: int = 0
    lost_errors: list[float] = field(default_factory=list)
    starved_errors: list[float] = field(default_factory=list)
    delays: list[int] = field(default_factory=list)

    def add(self, truth: GpuTruth, found: Finding, observed_ms: int) -> None:
        """Count one GPU of one workload."""
        if not truth.is_starved:
            self.false += found.is_starved
            self.quiet += not found.is_starved
            if truth.lost_ms <= STARVED_FROM * truth.in_use_ms:
                self.healthy_ms += observed_ms
                self.false_on_healthy += found.is_starved
            return
        self.right += found.is_starved
        self.missed += not found.is_starved
        if found.lost_s is not None:
            self.lost_errors.append(found.lost_s * 1000 / truth.lost_ms - 1)
        if found.is_starved and found.starved_s is not None:
            self.starved_errors.append(found.starved_s * 1000 / truth.starved_ms - 1)
        pauses = truth.starved[lengths_ms(truth.starved) >= VISIBLE_MS]
        if found.detected_at_ms is not None and len(pauses):
            # Each burst ends where the next pause begins; one burst cannot be distinguished.
            self.delays.append(int(np.count_nonzero(pauses[1:, 0] < found.detected_at_ms)))

    def join(self, other: Tally) -> None:
        """Add what another counted."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    @property
    def gpus(self) -> int:
        return self.right + self.false + self.missed + self.quiet

    @property
    def precision(self) -> float | None:
        reported = self.right + self.false
        return self.right / reported if reported else None

    @property
    def recall(self) -> float | None:
        starved = self.right + self.missed
        return self.right / starved if starved else None

    @property
    def alarms_per_day(self) -> float | None:
        """False alarms in a day of a healthy GPU."""
        return self.false_on_healthy / (self.healthy_ms / _DAY_MS) if self.healthy_ms else None


class Row(NamedTuple):
    """A detector, and seconds between its readings (``None``: its own)."""

    detector: str
    period_s: float | None

    def __str__(self) -> str:
        return self.detector + (f", {self.period_s:g} s" if self.period_s else "")


class Work(NamedTuple):
    """One workload to evaluate.

    Attributes:
        periods_s: Of the logs.
        daemons: Which daemons watch it, too: ``DAEMON``, ``TAGGED``.
    """

    kind: str
    seed: int
    hours: float
    periods_s: tuple[float, ...] = PERIODS_S
    daemons: tuple[str, ...] = (DAEMON, TAGGED)


Tallies = dict[tuple[Row, str], Tally]
"""By detector and kind of workload."""


def rows(periods_s: Sequence[float] = PERIODS_S) -> list[Row]:
    """Every detector at every period, in the order of the page."""
    logs = [Row(name, period_s) for name in (LOG, BARE, MEAN, SAGEMAKER) for period_s in periods_s]
    return [*logs, Row(DAEMON, None), Row(TAGGED, None)]


def evaluate_one(work: Work) -> Tallies:
    """The findings of all detectors on one workload."""
    made, tallies = workload(work.kind, work.seed, work.hours), Tallies()
    for row, found in _findings(made, work):
        tally = tallies.setdefault((row, work.kind), Tally())
        for truth, finding in zip(made.gpus, found, strict=True):
            tally.add(truth, finding, made.duration_ms)
    return tallies


def evaluate(work: Sequence[Work], done_one: Callable[[], None]) -> Tallies:
    """All workloads, on all cores; ``done_one`` is called after each."""
    tallies = Tallies()
    with ProcessPoolExecutor() as pool:
        for done in as_completed([pool.submit(evaluate_one, one) for one in work]):
            for key, tally in done.result().items():
                tallies.setdefault(key, Tally()).join(tally)
            done_one()
    return tallies


def over(tallies: Tallies, row: Row, kinds: Sequence[str]) -> Tally:
    """The workloads of several kinds together."""
    joined = Tally()
    for kind in kinds:
        joined.join(tallies.get((row, kind), Tally()))
    return joined


def _findings(made: Workload, work: Work) -> Iterator[tuple[Row, list[Finding]]]:
    for number, period_s in enumerate(work.periods_s):
        seen = seen_all(made, period_s, _chance(work, number))
        yield Row(LOG, period_s), found_in_logs(made, seen)
        yield Row(BARE, period_s), found_in_logs(made, seen, memory=False, when=False)
        yield Row(MEAN, period_s), [mean_below_70(log.percents) for log in seen]
        by_run = [sagemaker_in_runs(log, gpu) for log, gpu in zip(seen, made.gpus, strict=True)]
        yield Row(SAGEMAKER, period_s), by_run
    for daemon in work.daemons:
        found = found_by_daemon(made, _chance(work, 100), tagged=daemon == TAGGED)
        yield Row(daemon, None), found


def _chance(work: Work, purpose: int) -> np.random.Generator:
    """The same for the same workload, whatever else is evaluated."""
    return np.random.default_rng([work.seed, purpose, len(work.kind), *work.kind.encode()])
