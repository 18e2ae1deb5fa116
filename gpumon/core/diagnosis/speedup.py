"""How many times as fast work can become at most, and how many times as fast it became."""

from __future__ import annotations

from typing import Final

from gpumon.core.diagnosis.run_pace import pairs_of
from gpumon.core.diagnosis.unlike import unlike
from gpumon.core.report.report import Report

WAVERS: Final = 1.02
"""What is measured twice differs by as much, though nothing has changed."""


def speedup_upper_bound(in_use_ns: int, lost_ns: float) -> float:
    """How many times faster work can become at most, when time lost to one cause is won back.

    Infinite only where all time was lost, which a GPU in use never does;
    then, and without any time in use, 1 is all that can be promised.

    >>> speedup_upper_bound(100, 50)
    2.0
    """
    left_ns = in_use_ns - lost_ns
    return max(1.0, in_use_ns / left_ns) if left_ns > 0 else 1.0


def speedup(before: Report, after: Report) -> float | None:
    """How many times as fast the work became.

    ``None`` where steps were not counted in both, or other hardware did the work.
    """
    if any(one.of_work for one in unlike(before, after)):
        return None
    return pairs_of(before, after).speedup


def compute_speedup(before: Report, after: Report) -> float | None:
    """By how much the compute of a step itself became faster: no advice on waiting did that.

    ``None`` where it is not known what of the busy time was whose.
    """
    pairs = pairs_of(before, after)
    if not pairs.is_whole:
        return None
    if any(pair.has_unlike_steps for pair in pairs.both):
        work = [(pair.before.samples or 0, pair.after.samples or 0) for pair in pairs.both]
    else:
        work = [(pair.before.steps, pair.after.steps) for pair in pairs.both]
    slow, fast = (sum(amounts) for amounts in zip(*work, strict=True)) if work else (0, 0)
    slow_ns, fast_ns = before.in_use_busy_ns, after.in_use_busy_ns
    if not (slow and fast and slow_ns and fast_ns):
        return None
    return (slow_ns / slow) / (fast_ns / fast)


def promise_was_kept(bound: float, measured: float) -> bool:
    """Whether a gain stayed within its upper bound, give or take what a measurement wavers."""
    return measured <= bound * WAVERS
