"""What other tools' rules would say of the same GPU, on what each of them can see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gpumon.core.phase import PHASE_NUMBER, TrainingPhase
from tests.truth.score.finding import NS_PER_MS, Finding
from tests.truth.workloads.seeing import SeenLog
from tests.truth.workloads.truth import GpuTruth

Percents = NDArray[np.uint8]

_LOW_MEAN: Final = 70.0
_WINDOW: Final = 500
_PATIENCE: Final = 1_000
_HIGH_PERCENTILE, _LOW_PERCENTILE = 95, 5
_LOW_USE, _FLUCTUATION = 70.0, 10.0
_WAIT_SHARE: Final = 0.15
_STEP: Final = PHASE_NUMBER[TrainingPhase.TRAIN_STEP]


def mean_below_70(percents: Percents) -> Finding:
    """The rule of thumb: mean utilisation below 70 %."""
    return Finding(is_starved=bool(percents.mean() < _LOW_MEAN))


def sagemaker(percents: Percents) -> Finding:
    """SageMaker Debugger: p95 below 70 % is low use; p95 above with p5 below 10 % fluctuation.

    Over windows of 500 readings; one that fires is an alarm. The first that is
    looked at ends with reading 1,000, as its patience asks for. Where a job
    has fewer, all are looked at: it would say nothing at all of such a log.
    """
    if len(percents) >= _PATIENCE:
        percents = percents[_PATIENCE - _WINDOW :]
    windows = [
        percents[at : at + _WINDOW] for at in range(0, max(1, len(percents) - _WINDOW + 1), _WINDOW)
    ]
    return Finding(is_starved=any(_fires(window) for window in windows))


def sagemaker_in_jobs(log: SeenLog, gpu: GpuTruth) -> Finding:
    """The same of each run, which is all that it watches: nothing before, after or between."""
    at_ms = log.stamps_ns // NS_PER_MS
    jobs = [log.percents[(begin <= at_ms) & (at_ms < end)] for begin, end in _runs(gpu)]
    return Finding(is_starved=any(sagemaker(job).is_starved for job in jobs if job.size))


def _fires(window: Percents) -> bool:
    high, low = np.percentile(window, [_HIGH_PERCENTILE, _LOW_PERCENTILE])
    return bool(high < _LOW_USE or (high > _LOW_USE and low < _FLUCTUATION))


def gpuprof(gpu: GpuTruth) -> Finding:
    """gpuprof: gaps between steps of at least 15 % of the steps, on the host's own clock.

    It sees no GPU that it is not built into, and every gap of those: a
    checkpoint as well as a wait. What lies between two training runs is none.
    """
    step_ms = gap_ms = 0
    for begin_ms, end_ms in _runs(gpu):
        first, last = np.searchsorted(gpu.marks.at_ms, (begin_ms, end_ms))
        lengths_ms = np.diff(gpu.marks.at_ms[first:last], append=end_ms)
        in_step = gpu.marks.phase[first:last] == _STEP
        steps = np.flatnonzero(in_step)
        if steps.size:
            within = slice(steps[0], steps[-1] + 1)
            step_ms += int(lengths_ms[within][in_step[within]].sum())
            gap_ms += int(lengths_ms[within][~in_step[within]].sum())
    return Finding(is_starved=step_ms > 0 and gap_ms >= _WAIT_SHARE * step_ms)


def _runs(gpu: GpuTruth) -> Iterator[tuple[int, int]]:
    """From when to when, in ms, each process was there that someone could tag."""
    for begin_ms, end_ms in gpu.held.tolist():
        first, last = np.searchsorted(gpu.marks.at_ms, (begin_ms, end_ms))
        if last > first:
            yield begin_ms, end_ms
