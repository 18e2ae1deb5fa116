"""A week of a well-fed training: how often the detector raises an alarm for nothing."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tests.truth.score.by_log import found_in_logs
from tests.truth.workloads import workload
from tests.truth.workloads.seeing import seen_all

KIND = "healthy_prefetch"
HOURS = 168.0


class Week(NamedTuple):
    """What was reported of one.

    Attributes:
        seed: Of the workload.
        lost_ratio: True share of its time in use that was lost.
        false_alarms: GPUs that were accused in the end.
        suspected_s: Seconds that were called suspect on the way.
    """

    seed: int
    lost_ratio: float
    false_alarms: int
    suspected_s: float


def week(seed: int, period_s: float = 1.0, hours: float = HOURS) -> Week:
    """A week of one workload, logged."""
    made = workload(KIND, seed, hours)
    seen = seen_all(made, period_s, np.random.default_rng(seed))
    found = found_in_logs(made, seen, when=False)
    lost_ms = sum(gpu.lost_ms for gpu in made.gpus)
    in_use_ms = sum(gpu.in_use_ms for gpu in made.gpus)
    return Week(
        seed=seed,
        lost_ratio=lost_ms / in_use_ms,
        false_alarms=sum(one.is_starved for one in found),
        suspected_s=sum(one.starved_s or 0.0 for one in found),
    )
