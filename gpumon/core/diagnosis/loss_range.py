"""How much a cause cost a GPU: for certain, at most, and how the report puts it."""

from __future__ import annotations

from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.diagnosis.verdict_rules import main_cause
from gpumon.core.phase import UNPROVED, IdleCause
from gpumon.core.settings.detector import DEFAULT_SETTINGS, DetectorSettings
from gpumon.core.wording import in_percent, in_time, percent_range, time_range


def cost_ns(totals: GpuTotals, cause: IdleCause) -> int:
    """What a cause cost for certain, without the wait for the first batch, and hangs."""
    if cause is IdleCause.INPUT_WAIT:
        return totals.starved_ns
    if cause is IdleCause.UNKNOWN:
        return totals.idle_ns.get(cause, 0)  # unexplained time needs no proof
    return max(0, totals.bounds_ns(cause)[0] - totals.hanging_idle_ns.get(cause, 0))


def max_cost_ns(totals: GpuTotals, cause: IdleCause) -> int:
    """What it can have cost at most, likewise."""
    low_ns, high_ns = totals.bounds_ns(cause)
    return cost_ns(totals, cause) + high_ns - low_ns


def is_wide(
    totals: GpuTotals, cause: IdleCause, settings: DetectorSettings = DEFAULT_SETTINGS
) -> bool:
    """Whether both differ by so much that one figure would mislead."""
    if cause is IdleCause.UNKNOWN:
        return False
    range_ns = max_cost_ns(totals, cause) - cost_ns(totals, cause)
    return range_ns > settings.wide_range * totals.in_use_ns


def is_split_open(totals: GpuTotals) -> bool:
    """Whether tags leave open which cause the loss is mainly of."""
    return main_cause(totals) is None and any(
        is_wide(totals, cause) for cause in totals.may_be_less_ns
    )


def possible_causes(totals: GpuTotals) -> list[IdleCause]:
    """The known causes of a loss whose split is open, which can have cost most coming first."""
    min_ns = max(1, DEFAULT_SETTINGS.advice.min_share * totals.in_use_ns)
    causes = [
        cause
        for cause in {**totals.idle_ns, **totals.may_be_more_ns}
        if cause not in UNPROVED and max_cost_ns(totals, cause) >= min_ns
    ]
    return sorted(causes, key=lambda cause: -max_cost_ns(totals, cause))


def cost_in_time(totals: GpuTotals, cause: IdleCause) -> str:
    """What a cause cost: as a range where that is wide."""
    low_ns = cost_ns(totals, cause)
    if not is_wide(totals, cause):
        return in_time(low_ns)
    return time_range(low_ns, max_cost_ns(totals, cause))


def cost_in_percent(totals: GpuTotals, cause: IdleCause, *limits: float) -> str:
    """The same as a share of the time in use; ``limits`` as of ``in_percent``."""
    low_ns, in_use_ns = cost_ns(totals, cause), totals.in_use_ns
    if not is_wide(totals, cause):
        return in_percent(low_ns / in_use_ns, *limits)
    return percent_range(low_ns / in_use_ns, max_cost_ns(totals, cause) / in_use_ns, *limits)


def cost_of_use(totals: GpuTotals, cause: IdleCause) -> str:
    """What a cause cost, of the time in use."""
    return f"{cost_in_time(totals, cause)} of {in_time(totals.in_use_ns)}"


def speedup_upper_bound(in_use_ns: int, lost_ns: float) -> float:
    """How many times faster work can become at most, when time lost to one cause is won back.

    Infinite only where all time was lost, which a GPU in use never does;
    then, and without any time in use, 1 is all that can be promised.

    >>> speedup_upper_bound(100, 50)
    2.0
    """
    left_ns = in_use_ns - lost_ns
    return max(1.0, in_use_ns / left_ns) if left_ns > 0 else 1.0
