"""How the idle time of one driver window is attributed to causes.

A driver reports only how much of a window was idle, not when. The phases show what the
host was doing meanwhile. The device can be short of work only while it has none: outside
the step, or, if the end of each step on the device is known, from there to the next
dispatch. So idle time is attributed to

1. the phases in which the host kept the device waiting, and time without any
   phase, in proportion to their exposed length and never beyond it;
2. validation and prediction, up to their length;
3. waits for input during the step, as far as idle time is left: such a wait is
   gross, because the device may have computed meanwhile;
4. imbalance, at most as long as a peer of the same job was busier;
5. the step. If the run counts steps but tags none, its untagged code is the step, and
   time lost there stays unexplained.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import add, mul
from types import MappingProxyType
from typing import Final, NamedTuple

from gpumon.core.phase import IdleCause, InputWaitReason


@dataclass(slots=True)
class WindowParts:
    """What one or several runs did during one window.

    Attributes:
        waits: Exposed length of the waiting phases, by cause.
        validation_ns: Time in validation or prediction that is not a wait for input.
        step_ns: Time in which the device had been given a training step.
        gross_input_wait_ns: Further such time in which the step waited for input and perhaps
            computed as well.
        first_input_wait_ns: Part of the waits for input before the run's first step.
        validation_input_wait_ns: Part of them in validation or prediction.
        epoch_input_wait_ns: Part of them at the start of an epoch, before its first step;
            the first epoch counts as ``first_input_wait_ns``.
        hidden_input_wait_ns: Time the host waited for input while the device still worked.
        silent_ns: Time in phases that do not show what the process does.
        own_step_ns: Untagged time of a run that counts steps but tags none: its step.
        outside_ns: Time of the window in no phase.
    """

    waits: dict[IdleCause, int] = field(default_factory=dict)
    validation_ns: int = 0
    step_ns: int = 0
    gross_input_wait_ns: int = 0
    first_input_wait_ns: int = 0
    validation_input_wait_ns: int = 0
    epoch_input_wait_ns: int = 0
    hidden_input_wait_ns: int = 0
    silent_ns: int = 0
    own_step_ns: int = 0
    outside_ns: int = 0

    @property
    def uncovered_ns(self) -> int:
        """Time of the window that no phase explains."""
        return self.silent_ns + self.own_step_ns + self.outside_ns

    @property
    def input_wait_ns(self) -> int:
        """All waits for input that may have kept the device waiting."""
        return self.waits.get(IdleCause.INPUT_WAIT, 0) + self.gross_input_wait_ns

    @property
    def sole_cause(self) -> IdleCause | None:
        """The cause to which the entire window belongs, if it is one."""
        if self.uncovered_ns:
            return None
        lengths_ns = (
            *self.waits.items(),
            (IdleCause.INPUT_WAIT, self.gross_input_wait_ns),
            (IdleCause.VALIDATION, self.validation_ns),
            (IdleCause.WITHIN_STEP, self.step_ns),
        )
        causes = {cause for cause, length_ns in lengths_ns if length_ns}
        return causes.pop() if len(causes) == 1 else None


_LENGTHS: Final = tuple(
    one.name for one in fields(WindowParts) if one.name not in ("waits", "outside_ns")
)
"""Fields that are split between several runs, besides ``waits``."""

_NO_REASONS: Final[Mapping[tuple[IdleCause, InputWaitReason], int]] = MappingProxyType({})


class SharedIdle(NamedTuple):
    """Idle time of one window by cause.

    Attributes:
        idle_ns: By cause; sums to at most the window's idle time. The rest
            lies in no phase.
        reasons_ns: By cause and reason, for causes with known reasons; the rest is unknown.
        resolved_ns: Part that is proved by an entirely idle window in one phase.
        hidden_input_wait_ns: Waits for input that did not keep the device waiting.
        first_input_wait_ns: Part of ``input_wait`` for the run's very first batch.
        validation_input_wait_ns: Part of ``input_wait`` in validation or prediction.
        epoch_input_wait_ns: Part of ``input_wait`` at the start of an epoch.
        wait_without_idle_ns: How much longer the waits were than the device was idle.
    """

    idle_ns: dict[IdleCause, int]
    reasons_ns: Mapping[tuple[IdleCause, InputWaitReason], int] = _NO_REASONS
    resolved_ns: int = 0
    hidden_input_wait_ns: int = 0
    first_input_wait_ns: int = 0
    validation_input_wait_ns: int = 0
    epoch_input_wait_ns: int = 0
    wait_without_idle_ns: int = 0

    @property
    def amounts_ns(self) -> tuple[int, ...]:
        """The fields that are single numbers."""
        return self[2:]

    def plus(self, other: SharedIdle) -> SharedIdle:
        """The sum of this window and another one."""
        idle_ns, reasons_ns = Counter(self.idle_ns), Counter(self.reasons_ns)
        idle_ns.update(other.idle_ns)
        reasons_ns.update(other.reasons_ns)
        return SharedIdle(idle_ns, reasons_ns, *map(add, self.amounts_ns, other.amounts_ns))


_NEVER_RESOLVED: Final = (None, IdleCause.UNKNOWN, IdleCause.NOT_IN_USE)


def share_idle(
    idle_ns: int, parts: WindowParts, *, peer_excess_ns: int = 0, wholly_idle: bool = False
) -> SharedIdle:
    """Attribute the idle time of one window to causes.

    Args:
        idle_ns: Idle time of the window.
        parts: What the runs on this GPU did meanwhile.
        peer_excess_ns: By how much the busiest GPU of the same job was busier
            in this window; 0 if there is no peer.
        wholly_idle: Whether the sample was entirely idle.

    Returns:
        Shares that sum to ``idle_ns`` minus the part in uncovered time.

    >>> parts = WindowParts(waits={IdleCause.INPUT_WAIT: 300}, step_ns=700)
    >>> {cause.value: ns for cause, ns in share_idle(500, parts).idle_ns.items()}
    {'input_wait': 300, 'within_step': 200}
    """
    waiting_ns = sum(parts.waits.values()) + parts.silent_ns + parts.outside_ns
    to_waits_ns = min(idle_ns, waiting_ns)
    shares = in_proportion(to_waits_ns, parts.waits, waiting_ns)
    remaining_ns = idle_ns - to_waits_ns
    for cause, max_ns in (
        (IdleCause.VALIDATION, parts.validation_ns),
        (IdleCause.INPUT_WAIT, parts.gross_input_wait_ns),
        (IdleCause.IMBALANCE, peer_excess_ns),
        (IdleCause.WITHIN_STEP, parts.step_ns if parts.own_step_ns else remaining_ns),
    ):
        share_ns = min(remaining_ns, max_ns)
        if share_ns > 0:
            shares[cause] = shares.get(cause, 0) + share_ns
            remaining_ns -= share_ns
    resolved = wholly_idle and parts.sole_cause not in _NEVER_RESOLVED
    resolved_ns = sum(shares.values()) if resolved else 0
    return SharedIdle(
        shares, _NO_REASONS, resolved_ns, *_of_input(parts, shares), waiting_ns - to_waits_ns
    )


def reshared(
    shared: SharedIdle, parts: WindowParts, idle_ns: Mapping[IdleCause, int]
) -> SharedIdle:
    """The window with other shares of its idle time, without the unexplained part."""
    unknown = IdleCause.UNKNOWN
    kept_ns: dict[IdleCause, int] = {
        cause: ns for cause, ns in idle_ns.items() if ns and cause is not unknown
    }
    if kept_ns == shared.idle_ns:
        return shared
    return SharedIdle(
        kept_ns, shared.reasons_ns, 0, *_of_input(parts, kept_ns), shared.wait_without_idle_ns
    )


def _of_input(parts: WindowParts, idle_ns: Mapping[IdleCause, int]) -> tuple[int, int, int, int]:
    """Hidden waits for input, and the parts of the others, in the order of ``SharedIdle``."""
    waited_ns, exposed_wait_ns = parts.input_wait_ns, idle_ns.get(IdleCause.INPUT_WAIT, 0)
    hidden_ns = parts.hidden_input_wait_ns + waited_ns - exposed_wait_ns
    if not exposed_wait_ns:
        return hidden_ns, 0, 0, 0
    return (
        hidden_ns,
        exposed_wait_ns * parts.first_input_wait_ns // waited_ns,
        exposed_wait_ns * parts.validation_input_wait_ns // waited_ns,
        exposed_wait_ns * parts.epoch_input_wait_ns // waited_ns,
    )


def hide_input_wait(parts: WindowParts, hidden_ns: int) -> None:
    """Count ``hidden_ns`` of the waits for input as hidden: another GPU of the run had work.

    Modifies ``parts``.

    One process feeds all GPUs of a run at once. While one of them computes, the others wait for
    it and not for input, whatever the process does.
    """
    waited_ns = parts.input_wait_ns
    from_gross_ns = max(0, min(hidden_ns, parts.gross_input_wait_ns))  # hidden first
    parts.gross_input_wait_ns -= from_gross_ns
    from_waits_ns = max(0, min(hidden_ns - from_gross_ns, parts.waits.get(IdleCause.INPUT_WAIT, 0)))
    if from_waits_ns:
        parts.waits[IdleCause.INPUT_WAIT] -= from_waits_ns
    parts.hidden_input_wait_ns += from_gross_ns + from_waits_ns
    parts.step_ns += from_gross_ns + from_waits_ns
    if waited_ns:
        exposed_ns = parts.input_wait_ns
        parts.first_input_wait_ns = parts.first_input_wait_ns * exposed_ns // waited_ns
        parts.validation_input_wait_ns = parts.validation_input_wait_ns * exposed_ns // waited_ns
        parts.epoch_input_wait_ns = parts.epoch_input_wait_ns * exposed_ns // waited_ns


def in_proportion(
    amount_ns: int, weights: dict[IdleCause, int], total_weight: int
) -> dict[IdleCause, int]:
    """Split an amount by weights, which are all or a part of ``total_weight``."""
    # Round running sums, not shares, so that no nanosecond is lost or added.
    shares: dict[IdleCause, int] = {}
    passed = given = 0
    for cause, weight in weights.items():
        passed += weight
        until = amount_ns * passed // total_weight if total_weight else 0
        if until > given:
            shares[cause] = until - given
        given = until
    return shares


def merge_parts(
    parts: Sequence[WindowParts], window_ns: int, counts: Sequence[int] | None = None
) -> WindowParts:
    """Merge what several runs on one GPU did in one window, weighted by their part of it.

    Together they cover no more than the window.

    Args:
        parts: What runs did.
        window_ns: Length of the window.
        counts: How many runs did each; by default, one.
    """
    counts = counts or [1] * len(parts)
    each_covers_ns = [window_ns - part.outside_ns for part in parts]
    covered_ns, longest_ns = sum(map(mul, each_covers_ns, counts)), max(each_covers_ns, default=0)
    merged = WindowParts(outside_ns=window_ns - longest_ns)
    if covered_ns == 0:
        return merged
    for part, count in zip(parts, counts, strict=True):
        for cause, length_ns in part.waits.items():
            share_ns = count * (length_ns * longest_ns // covered_ns)
            merged.waits[cause] = merged.waits.get(cause, 0) + share_ns
        for name in _LENGTHS:
            if length_ns := getattr(part, name):
                share_ns = count * (length_ns * longest_ns // covered_ns)
                setattr(merged, name, getattr(merged, name) + share_ns)
    return merged
