"""Arithmetic on ranges of idle time by cause."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from gpumon.core.attribution.idle_sharing import SharedIdle, WindowParts, in_proportion
from gpumon.core.phase import IdleCause

Amounts = dict[IdleCause, int]


class Bounds(NamedTuple):
    """Shares of some idle time by cause, and how certain they are.

    ``IdleCause.UNKNOWN`` is idle time that no phase explains.

    Attributes:
        best_ns: The shares; they sum to the idle time.
        less_ns: How much of a share may belong to another cause; zeros are left out.
        more_ns: How much more than its share may belong to a cause; zeros are left out.
    """

    best_ns: Amounts
    less_ns: Amounts
    more_ns: Amounts


_NOTHING: Final = Bounds({}, {}, {})


class Narrowed(NamedTuple):
    """What became known of earlier windows, by cause.

    Attributes:
        low_ns: How much more is certain.
        high_ns: How much less is possible.
    """

    low_ns: Amounts
    high_ns: Amounts


def narrowed_to(bounds: Bounds, low_ns: Amounts, high_ns: Amounts) -> tuple[Narrowed, Bounds]:
    """Narrow the bounds to these limits, but never below or above the best share."""
    best_ns, less_ns, more_ns = bounds
    new_less_ns = {
        cause: min(ns, max(0, best_ns[cause] - low_ns[cause])) if cause in low_ns else ns
        for cause, ns in less_ns.items()
    }
    new_more_ns = {
        cause: min(ns, max(0, high_ns[cause] - best_ns.get(cause, 0))) if cause in high_ns else ns
        for cause, ns in more_ns.items()
    }
    narrowed = Narrowed(
        {cause: ns - new_less_ns[cause] for cause, ns in less_ns.items()},
        {cause: ns - new_more_ns[cause] for cause, ns in more_ns.items()},
    )
    return narrowed, Bounds(best_ns, new_less_ns, new_more_ns)


def settled_as(bounds: Bounds, shares_ns: Mapping[IdleCause, int]) -> Narrowed:
    """Narrow the bounds so that each cause has exactly its share."""
    causes = {*bounds.best_ns, *bounds.less_ns, *bounds.more_ns}
    known_ns = {cause: shares_ns.get(cause, 0) for cause in causes}
    narrowed, _ = narrowed_to(bounds, known_ns, known_ns)
    return narrowed


def all_of(each: Iterable[Bounds]) -> Bounds:
    """The sum of the bounds of several windows."""
    return Bounds(*map(sums_of, zip(_NOTHING, *each, strict=True)))


def together(each: Iterable[Narrowed]) -> Narrowed:
    """The sum of all."""
    return Narrowed(*map(sums_of, zip(*each, strict=True)))


def window_bounds(idle_ns: int, length_ns: int, parts: WindowParts, shared: SharedIdle) -> Bounds:
    """The bounds that follow from one window alone."""
    best_ns = with_untagged(idle_ns, shared.idle_ns)
    less_ns: Amounts = {}
    more_ns: Amounts = {}
    busy_ns = length_ns - idle_ns
    imbalance_ns = best_ns.get(IdleCause.IMBALANCE, 0)
    for cause, part_ns in _lengths(parts):
        own_ns = share_ns = best_ns.get(cause, 0)
        if imbalance_ns and cause is IdleCause.WITHIN_STEP:
            share_ns += imbalance_ns  # a slower peer's part is taken from the step
        if own_ns:
            unsure_ns = share_ns - part_ns + busy_ns if part_ns > busy_ns else share_ns
            if unsure_ns > 0:
                less_ns[cause] = unsure_ns if unsure_ns < own_ns else own_ns
        room_ns = (part_ns if part_ns < idle_ns else idle_ns) - share_ns
        if room_ns > 0:
            more_ns[cause] = room_ns
    if imbalance_ns:
        unsure_ns = imbalance_ns - max(0, parts.step_ns - busy_ns)
        if unsure_ns > 0:
            less_ns[IdleCause.IMBALANCE] = unsure_ns
    return Bounds(best_ns, less_ns, more_ns)


def _lengths(parts: WindowParts) -> Iterable[tuple[IdleCause, int]]:
    waits_ns = parts.waits
    if parts.gross_input_wait_ns:
        input_ns = waits_ns.get(IdleCause.INPUT_WAIT, 0) + parts.gross_input_wait_ns
        waits_ns = {**waits_ns, IdleCause.INPUT_WAIT: input_ns}
    uncovered_ns = parts.silent_ns + parts.own_step_ns + parts.outside_ns
    lengths_ns = [*waits_ns.items()]
    if parts.step_ns:
        lengths_ns.append((IdleCause.WITHIN_STEP, parts.step_ns))
    if parts.validation_ns:
        lengths_ns.append((IdleCause.VALIDATION, parts.validation_ns))
    if uncovered_ns:
        lengths_ns.append((IdleCause.UNKNOWN, uncovered_ns))
    return lengths_ns


def with_untagged(idle_ns: int, shares_ns: Amounts) -> Amounts:
    """The shares, with the rest of the idle time as ``UNKNOWN``."""
    untagged_ns = idle_ns - sum(shares_ns.values())
    if not untagged_ns:
        return shares_ns
    unknown_ns = shares_ns.get(IdleCause.UNKNOWN, 0) + untagged_ns
    return {**shares_ns, IdleCause.UNKNOWN: unknown_ns}


def by_waits(idle_ns: int, parts: WindowParts) -> Amounts:
    """Idle time by the waits alone, in proportion to their lengths."""
    waited_ns = sum(parts.waits.values())
    if not waited_ns:
        return {IdleCause.UNKNOWN: idle_ns} if idle_ns else {}
    return in_proportion(idle_ns, parts.waits, waited_ns)


def split_by(idle_parts: Mapping[IdleCause, float], bounds: Bounds) -> Bounds:
    """The bounds with shares by how idle the time of each cause is in this loop."""
    best_ns, less_ns, more_ns = bounds
    causes = [*best_ns, *(cause for cause in more_ns if cause not in best_ns)]
    lows = {cause: best_ns.get(cause, 0) - less_ns.get(cause, 0) for cause in causes}
    rooms = {cause: less_ns.get(cause, 0) + more_ns.get(cause, 0) for cause in causes}
    unassigned_ns = sum(less_ns.values())
    weights = {cause: room_ns * idle_parts.get(cause, 0.0) for cause, room_ns in rooms.items()}
    total = sum(weights.values())
    if total <= 0:
        return bounds
    shares = {
        cause: min(rooms[cause], int(unassigned_ns * weight / total))
        for cause, weight in weights.items()
    }
    unassigned_ns -= sum(shares.values())
    for cause in sorted(causes, key=lambda cause: shares[cause] - rooms[cause]):
        more = min(unassigned_ns, rooms[cause] - shares[cause])
        shares[cause] += more
        unassigned_ns -= more
    return Bounds(
        {cause: lows[cause] + shares[cause] for cause in causes},
        {cause: ns for cause, ns in shares.items() if ns},
        {cause: rooms[cause] - ns for cause, ns in shares.items() if rooms[cause] > ns},
    )


def sums_of(amounts: Iterable[Mapping[IdleCause, int]]) -> Amounts:
    """Sums by cause."""
    total_ns: Amounts = {}
    for one in amounts:
        for cause, ns in one.items():
            total_ns[cause] = total_ns.get(cause, 0) + ns
    return total_ns
