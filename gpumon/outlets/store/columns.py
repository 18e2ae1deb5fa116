"""What the store counts, in this order: sums that add up over any rows.

Time is in whole milliseconds, so that a row takes little room. Nothing is rounded twice: what is
left of a millisecond counts in the next row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gpumon.core.accounting.totals import GapTotals, GpuTotals
from gpumon.core.phase import CAUSES, OUT_OF_USE, UNPROVED, IdleCause, InputWaitReason
from gpumon.core.state import GpuState

NS_PER_MS: Final = 1_000_000

BUSY: Final = 0
PENDING: Final = 1
FIRST_CAUSE: Final = 2
COLUMN_OF_CAUSE: Final = {cause: FIRST_CAUSE + number for number, cause in enumerate(CAUSES)}
UNKNOWN: Final = COLUMN_OF_CAUSE[IdleCause.UNKNOWN]
SUSPECTED: Final = FIRST_CAUSE + len(CAUSES)
PARTS: Final = ("busy", "pending", *(cause.value for cause in CAUSES), "suspected")
"""Of each cell: all but the last add up to the observed time; that is a part of ``unknown``."""

_REASONS: Final = tuple(one for one in InputWaitReason if one is not InputWaitReason.UNKNOWN)
"""Those of waits for input; what they leave of it has none."""
_COMMON: Final = ("low_ns", "high_ns", "hidden_input_wait_ns")
COUNTERS: Final = (
    *(f"why_{reason.value}" for reason in _REASONS),
    *(name.removesuffix("_ns") for name in _COMMON),
    "unused_busy",
    "paused",
    "pauses",
)
"""Further columns of a minute, which a verdict needs: ``unused_busy`` is busy and not in use."""
COLUMNS: Final = (*PARTS, *COUNTERS)
LEVELS: Final = ("memory_4_mib", "power_deciwatts", "sm_clock_mhz", "temperature_celsius")
"""Means of a cell; NULL: no answer. A minute also has ``longest_pause``."""
MEMORY_UNIT_BYTES: Final = 4 << 20
"""So that 80 GiB take two bytes."""

_RARE_TIMES: Final = (
    "validation_input_wait_ns", "hanging_ns", "rank_wait_low_ns", "rank_wait_high_ns",
    "irregular_ns", "first_input_wait_ns", "epoch_input_wait_ns",
)  # fmt: skip
_RARE_COUNTS: Final = ("episodes", "sampled_pauses", "seen_input_pauses", "low_levels")
_RARE_BY_CAUSE: Final = ("may_be_less_ns", "may_be_more_ns", "hanging_idle_ns", "seen_ns")
RARE: Final = (
    *_RARE_TIMES,
    *(f"{name}.{cause.value}" for name in _RARE_BY_CAUSE for cause in CAUSES),
    *(f"within_step.{reason.value}" for reason in InputWaitReason),
    *_RARE_COUNTS,
    *(f"seen_samples.{cause.value}" for cause in CAUSES),
)
"""Counters that few GPUs have: the number of each is kept with it, so the order stays."""
RARE_NUMBER: Final = {name: number for number, name in enumerate(RARE)}
FIRST_RARE_COUNT: Final = RARE_NUMBER[_RARE_COUNTS[0]]

FIRST_COUNTER: Final = len(PARTS)
_PAUSES: Final = COLUMNS.index("pauses")


def scale_of(column: int) -> int:
    """By how much a counter is divided: time is kept in milliseconds, numbers as they are."""
    return 1 if column == _PAUSES else NS_PER_MS


def parts_of(totals: GpuTotals) -> list[int]:
    """The parts of the observed time so far, and the suspected one, in nanoseconds."""
    idle_ns = totals.idle_ns
    causes = [idle_ns.get(cause, 0) for cause in CAUSES]
    return [totals.busy_ns, totals.pending_ns, *causes, totals.suspected_ns]


def counters_of(totals: GpuTotals) -> list[int]:
    """The further columns so far: nanoseconds, and a number of pauses."""
    waited_ns, pauses = totals.input_wait_by_reason_ns, totals.pauses
    reasons = [waited_ns.get(reason.value, 0) for reason in _REASONS]
    common = [getattr(totals, name) for name in _COMMON]
    unused_ns = totals.busy_ns - totals.in_use_busy_ns
    return [*reasons, *common, unused_ns, pauses.total_ns, pauses.count]


def rare_of(totals: GpuTotals) -> dict[int, int]:
    """The rare counters so far that are not 0, by number."""
    found = {
        RARE_NUMBER[name]: amount
        for name in (*_RARE_TIMES, *_RARE_COUNTS)
        if (amount := getattr(totals, name))
    }
    by_cause = (*_RARE_BY_CAUSE, "seen_samples")
    for name in by_cause:
        amounts: Mapping[IdleCause, int] = getattr(totals, name)
        for cause, amount in amounts.items():
            found[RARE_NUMBER[f"{name}.{cause.value}"]] = amount
    for reason, amount in totals.within_step_by_reason_ns.items():
        found[RARE_NUMBER[f"within_step.{reason}"]] = amount
    return found


def levels_of(gpu: GpuState) -> tuple[float | None, ...]:
    """The present levels in the units of ``LEVELS``; ``None``: no answer."""
    latest = gpu.latest
    if latest is None or not gpu.present:
        return (None,) * len(LEVELS)
    memory, power, clock = latest.memory_used_bytes, latest.power_watts, latest.sm_clock_hertz
    return (
        None if memory is None else memory / MEMORY_UNIT_BYTES,
        None if power is None else power * 10,
        None if clock is None else clock / 1e6,
        latest.temperature_celsius,
    )


def totals_from(
    row: Mapping[str, int], rare: Mapping[int, int], longest_pause_ms: int
) -> GpuTotals:
    """The totals that sums of rows stand for; what is no sum is left out.

    Args:
        row: Sums by the names of ``COLUMNS``.
        rare: Sums by the numbers of ``RARE``.
        longest_pause_ms: The longest of the pauses.
    """
    idle_ns = {cause: ms * NS_PER_MS for cause in CAUSES if (ms := row[cause.value]) > 0}
    busy_ns, pending_ns = (max(0, row[name]) * NS_PER_MS for name in ("busy", "pending"))
    common = {name: max(0, row[name.removesuffix("_ns")]) * NS_PER_MS for name in _COMMON}
    in_use_busy_ns = busy_ns - min(max(0, row["unused_busy"]) * NS_PER_MS, busy_ns)
    lost_ns = sum(ns for cause, ns in idle_ns.items() if cause not in OUT_OF_USE)
    proved_ns = sum(ns for cause, ns in idle_ns.items() if cause not in UNPROVED)
    unknown_ns = idle_ns.get(IdleCause.UNKNOWN, 0)
    suspected_ns = min(max(0, row["suspected"]) * NS_PER_MS, unknown_ns)
    input_ns = idle_ns.get(IdleCause.INPUT_WAIT, 0)
    # What a kill left pending counts as a pause, and not as lost.
    paused_ns = min(row["paused"] * NS_PER_MS, lost_ns)
    pauses = _pauses(row["pauses"], paused_ns, longest_pause_ms * NS_PER_MS)
    times = {name: max(0, rare.get(RARE_NUMBER[name], 0)) * NS_PER_MS for name in _RARE_TIMES}
    times["irregular_ns"] = min(times["irregular_ns"], unknown_ns - suspected_ns)
    for name in ("first_input_wait_ns", "epoch_input_wait_ns", "validation_input_wait_ns"):
        times[name] = min(times[name], input_ns)
    times["rank_wait_low_ns"] = min(times["rank_wait_low_ns"], times["rank_wait_high_ns"])
    counts = {name: rare.get(RARE_NUMBER[name], 0) for name in _RARE_COUNTS}
    maps = {
        name: {
            cause: ns if name == "may_be_more_ns" else min(ns, idle_ns.get(cause, 0))
            for cause in CAUSES
            if (ns := rare.get(RARE_NUMBER[f"{name}.{cause.value}"], 0) * NS_PER_MS) > 0
        }
        for name in _RARE_BY_CAUSE
    }
    # These parts of waits for input do not overlap.
    rest_ns = input_ns - times["first_input_wait_ns"]
    for name in ("hanging_idle_ns", "may_be_less_ns"):
        if IdleCause.INPUT_WAIT in maps[name]:
            maps[name][IdleCause.INPUT_WAIT] = min(maps[name][IdleCause.INPUT_WAIT], rest_ns)
            rest_ns -= maps[name][IdleCause.INPUT_WAIT]
    seen_samples = {
        cause: number
        for cause in CAUSES
        if (number := rare.get(RARE_NUMBER[f"seen_samples.{cause.value}"], 0)) > 0
    }
    waited_ns = _by_reason({one: row[f"why_{one.value}"] for one in _REASONS}, input_ns)
    within_step_ns = {
        reason.value: ms * NS_PER_MS
        for reason in InputWaitReason
        if (ms := rare.get(RARE_NUMBER[f"within_step.{reason.value}"], 0)) > 0
    }
    kept: dict[str, Any] = {**common, **times, **counts, **maps}
    return GpuTotals(
        observed_ns=busy_ns + pending_ns + sum(idle_ns.values()),
        busy_ns=busy_ns,
        pending_ns=pending_ns,
        idle_ns=idle_ns,
        in_use_ns=in_use_busy_ns + lost_ns,
        in_use_busy_ns=in_use_busy_ns,
        inferred_ns=proved_ns,
        suspected_ns=suspected_ns,
        input_wait_by_reason_ns=waited_ns,
        within_step_by_reason_ns=within_step_ns,
        gaps=pauses,
        pauses=pauses,
        seen_samples=seen_samples,
        **kept,
    )


def _by_reason(known_ms: Mapping[InputWaitReason, int], input_ns: int) -> dict[str, int]:
    """Waits for input by reason, which add up to all of them."""
    by_reason, left_ns = {}, input_ns
    for reason, ms in known_ms.items():
        ns = min(max(0, ms) * NS_PER_MS, left_ns)
        left_ns -= ns
        if ns:
            by_reason[reason.value] = ns
    if left_ns:
        by_reason[InputWaitReason.UNKNOWN.value] = left_ns
    return by_reason


def _pauses(count: int, total_ns: int, longest_ns: int) -> GapTotals:
    if count <= 0 or total_ns <= 0:
        return GapTotals()
    mean_ns = total_ns // count  # how long most were is not kept
    longest_ns = max(mean_ns, min(longest_ns, total_ns))
    return GapTotals(count, total_ns, longest_ns, p50_ns=mean_ns, p95_ns=longest_ns)
