"""What a detector says of one GPU, in the same words for every detector."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gpumon.core.report.report import GpuReport
from gpumon.core.verdict import VerdictName
from tests.truth.workloads.spans import Spans, spans_of

NS_PER_MS = 1_000_000
_NEAR = 8
STARVED = frozenset({VerdictName.STARVED, VerdictName.STARVATION_SUSPECTED})
"""The verdicts that send someone to look at the input pipeline."""


class Finding(NamedTuple):
    """What was found of one GPU; ``None`` where the detector has no such figure.

    Attributes:
        is_starved: Whether it says that the GPU waits for its input.
        lost_s: Idle time while in use, whoever's fault, but for the wait for the first batch: a
            workload is in use from its first burst on.
        starved_s: Of it, what the detector puts down to the input.
        starved: When that was, in ms of the workload.
        detected_at_ms: From when on it says so.
    """

    is_starved: bool
    lost_s: float | None = None
    starved_s: float | None = None
    starved: Spans | None = None
    detected_at_ms: float | None = None


def finding_of(gpu: GpuReport, origin_ns: int, detected_at_ms: float | None) -> Finding:
    """gpumon's own, from its report.

    Args:
        gpu: What the report says.
        origin_ns: Where the workload begins, on the report's clock.
        detected_at_ms: When the detector first spoke, in ms of the workload.
    """
    totals = gpu.totals
    spans = [
        ((span.start_ns - origin_ns) // NS_PER_MS, (span.end_ns - origin_ns) // NS_PER_MS)
        for span in totals.starved_intervals
    ]
    is_starved = gpu.verdict.name in STARVED
    return Finding(
        is_starved=is_starved,
        lost_s=totals.diagnosed.lost_ns / 1e9,
        starved_s=(totals.starved_ns + totals.suspected_ns) / 1e9,
        starved=spans_of(spans),
        detected_at_ms=detected_at_ms if is_starved else None,
    )


def first_true(holds: Callable[[int], bool], count: int) -> int | None:
    """Smallest n up to ``count`` for which ``holds(n)``, which once true stays true.

    Looks near first: what is found soon costs little, however much there is.
    """
    high = _NEAR
    while high < count and not holds(high):
        high *= 2
    high = min(high, count)
    if not holds(high):
        return None
    low = high // 2 if high > _NEAR else 0
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
