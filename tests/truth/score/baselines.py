"""What other tools' rules would say of the same GPU, on what each of them can see."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from gpumon.core.phase import PHASE_NUMBER, TrainingPhase
from tests.truth.score.finding import Finding
from tests.truth.worlds.truth import GpuTruth

Percents = NDArray[np.uint8]

_LOW_MEAN: Final = 70.0
_WINDOW: Final = 500
_HIGH_PERCENTILE, _LOW_PERCENTILE = 95, 5
_LOW_USE, _FLUCTUATION = 70.0, 10.0
_WAIT_SHARE: Final = 0.15
_STEP: Final = PHASE_NUMBER[TrainingPhase.TRAIN_STEP]


def mean_below_70(percents: Percents) -> Finding:
    """The rule of thumb: mean utilisation below 70 %."""
    return Finding(is_starved=bool(percents.mean() < _LOW_MEAN))


def sagemaker(percents: Percents) -> Finding:
    """SageMaker Debugger: p95 below 70 % is low use; p95 above with p5 below 10 % fluctuation.

    Over windows of 500 readings, or over all where there are fewer; one that
    fires is an alarm. Its patience (no alarm in the first 1,000) is left out:
    with it a log of 1,000 rows could not be judged at all.
    """
    windows = [
        percents[at : at + _WINDOW] for at in range(0, max(1, len(percents) - _WINDOW + 1), _WINDOW)
    ]
    return Finding(is_starved=any(_fires(window) for window in windows))


def _fires(window: Percents) -> bool:
    high, low = np.percentile(window, [_HIGH_PERCENTILE, _LOW_PERCENTILE])
    return bool(high < _LOW_USE or low < _FLUCTUATION)


def gpuprof(gpu: GpuTruth) -> Finding:
    """gpuprof: gaps between steps of at least 15 % of the steps, on the host's own clock.

    It sees no GPU that it is not built into, and every gap of those: a
    checkpoint as well as a wait.
    """
    marks = gpu.marks
    if marks.at_ms.size < 2:
        return Finding(is_starved=False)
    lengths_ms = np.diff(marks.at_ms)
    in_step = marks.phase[:-1] == _STEP
    first, last = np.flatnonzero(in_step)[[0, -1]] if in_step.any() else (0, -1)
    within = slice(first, last + 1)
    step_ms = int(lengths_ms[within][in_step[within]].sum())
    gap_ms = int(lengths_ms[within][~in_step[within]].sum())
    return Finding(is_starved=step_ms > 0 and gap_ms >= _WAIT_SHARE * step_ms)
