"""Workloads of some minutes in which one thing is late, as often and as long as a test wants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from tests.truth.workloads import Workload
from tests.truth.workloads.draws import Draws, Millis
from tests.truth.workloads.training import TrainingPlan, TrainingRun

STEP_MS: Final = 100
_NOTHING: Final[Mapping[int, int]] = MappingProxyType({})


@dataclass
class CostsOf:
    """What each batch costs its worker; ``late_ms`` has exceptions by number from 0."""

    usual_ms: int
    late_ms: Mapping[int, int]
    loaded: int = 0

    def __call__(self, _draws: Draws, _epoch: int, count: int) -> Millis:
        numbers = range(self.loaded, self.loaded + count)
        self.loaded += count
        return np.array([self.late_ms.get(at, self.usual_ms) for at in numbers], dtype=np.int64)


def training(
    *,
    seconds: int = 200,
    steps: int = 1_000_000,
    cost_ms: int = STEP_MS // 5,
    late_ms: Mapping[int, int] = _NOTHING,
    begins_s: int = 5,
    **plan: Any,
) -> Workload:
    """A run with steps of 0.1 s whose one worker is one batch ahead unless given otherwise.

    Args:
        seconds: How long it is observed.
        steps: Its process ends after so many.
        cost_ms: Time of its worker for a batch.
        late_ms: Time for these batches instead, by their number from 0.
        begins_s: When it requests its first batch.
        plan: As in ``TrainingPlan``.
    """
    usual: dict[str, Any] = {
        "step_ms": STEP_MS, "step_spread": 0.0, "workers": 1, "depth": 1, "host_ms": 1.0,
        "steps_per_epoch": steps, "epochs": 1, "epoch_end_ms": 0.0, "hold_spread": 0.0,
        "start_up_ms": 1_000 * begins_s,
    }  # fmt: skip
    set_up = TrainingPlan(costs_ms=CostsOf(cost_ms, late_ms), **(usual | plan))
    run = TrainingRun(Draws.of("small", 0), set_up, 0, 1_000 * seconds)
    return Workload("small", 0, 1_000 * seconds, run.truths())


def late_every(steps: int, late_ms: int) -> dict[int, int]:
    """Every ``steps`` batches, one is late."""
    return dict.fromkeys(range(steps, 100_000, steps), late_ms)
