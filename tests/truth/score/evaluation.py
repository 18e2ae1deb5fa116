"""Every workload through every detector, on all cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Final, NamedTuple

import numpy as np

from tests.truth.score.baselines import gpuprof, mean_below_70, sagemaker_in_jobs
from tests.truth.score.by_daemon import found_by_daemon
from tests.truth.score.by_log import found_in_logs
from tests.truth.score.finding import Finding
from tests.truth.score.tally import Tally
from tests.truth.workloads import workload
from tests.truth.workloads.seeing import seen_all
from tests.truth.workloads.truth import Workload

PERIODS_S: Final = (0.1, 1.0, 5.0, 15.0, 60.0)
LOG, BARE = "gpumon analyze", "gpumon analyze, no memory.used"
DAEMON, TAGGED = "gpumon serve", "gpumon serve, tagged"
MEAN, SAGEMAKER, GPUPROF = "mean below 70 %", "SageMaker p95/p5", "gpuprof 15 %"


class Row(NamedTuple):
    """Whose findings they are: a detector, and seconds between its readings (``None``: its own)."""

    detector: str
    period_s: float | None


class Work(NamedTuple):
    """One workload to be looked at.

    Attributes:
        kind: Of the workload.
        seed: Of the workload.
        hours: How long it is watched.
        periods_s: Of the logs.
        daemons: Which daemons watch it, too: one that reads no tags, one that does.
    """

    kind: str
    seed: int
    hours: float
    periods_s: tuple[float, ...] = PERIODS_S
    daemons: tuple[str, ...] = (DAEMON, TAGGED)


Tallies = dict[tuple[Row, str], Tally]
"""By whose findings they are, and the kind of workload."""


def rows(periods_s: Sequence[float] = PERIODS_S) -> list[Row]:
    """Every detector at every period, in the order of the page."""
    by_log = [
        Row(name, period_s) for name in (LOG, BARE, MEAN, SAGEMAKER) for period_s in periods_s
    ]
    return [*by_log, Row(DAEMON, None), Row(TAGGED, None), Row(GPUPROF, None)]


def looked_at(work: Work) -> Tallies:
    """What all detectors say of one workload, counted."""
    made, tallies = workload(work.kind, work.seed, work.hours), Tallies()
    for row, found in _all_findings(made, work):
        tally = tallies.setdefault((row, work.kind), Tally())
        for truth, finding in zip(made.gpus, found, strict=True):
            tally.add(truth, finding, made.duration_ms)
    return tallies


def evaluate(work: Sequence[Work], done_one: Callable[[], None], processes: int | None) -> Tallies:
    """All of it.

    Args:
        work: The workloads.
        read: Called after each of them.
        processes: How many at once; ``None``: as many as there are cores.
    """
    tallies = Tallies()
    with ProcessPoolExecutor(processes) as pool:
        for done in as_completed([pool.submit(looked_at, one) for one in work]):
            for key, tally in done.result().items():
                tallies.setdefault(key, Tally()).join(tally)
            done_one()
    return tallies


def over(tallies: Tallies, row: Row, kinds: Sequence[str]) -> Tally:
    """The workloads of several kinds together."""
    joined = Tally()
    for kind in kinds:
        if (row, kind) in tallies:
            joined.join(tallies[row, kind])
    return joined


def _all_findings(made: Workload, work: Work) -> Iterator[tuple[Row, list[Finding]]]:
    for number, period_s in enumerate(work.periods_s):
        seen = seen_all(made, period_s, _chance(work, number))
        percents = [log.percents for log in seen]
        yield Row(LOG, period_s), found_in_logs(made, seen)
        yield Row(BARE, period_s), found_in_logs(made, seen, memory=False, when=False)
        yield Row(MEAN, period_s), [mean_below_70(one) for one in percents]
        by_job = [sagemaker_in_jobs(log, gpu) for log, gpu in zip(seen, made.gpus, strict=True)]
        yield Row(SAGEMAKER, period_s), by_job
    yield Row(GPUPROF, None), [gpuprof(gpu) for gpu in made.gpus]
    for daemon in work.daemons:
        found = found_by_daemon(made, _chance(work, 100), tagged=daemon == TAGGED)
        yield Row(daemon, None), found


def _chance(work: Work, purpose: int) -> np.random.Generator:
    """The same for the same workload, whatever else is looked at."""
    return np.random.default_rng([work.seed, purpose, len(work.kind), *work.kind.encode()])
