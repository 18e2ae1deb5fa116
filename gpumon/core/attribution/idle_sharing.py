"""Whose fault is the idle time of one driver window: the rule, and nothing else.

A driver says only how much of a window was idle, not when. The phases of the
training say what the host was doing meanwhile. The device can be short of
work only while it has none: outside the step, or, where the end of each step
on the device is known, from there to the next dispatch. So idle time goes to

1. the phases in which the host kept the device waiting, and time without any
   phase, in proportion to their exposed length and never beyond it;
2. validation and prediction, up to their length;
3. waits for input beside the step, as far as idle time is left: such a wait is
   gross, the device may have computed all the while;
4. imbalance, at most as long as a peer of the same job was busier;
5. and the rest was lost within the step. Where the run counts steps and tags none, its
   untagged code is the step, and what is lost there stays unexplained.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import add
from types import MappingProxyType
from typing import Final, NamedTuple

from gpumon.core.phase import IdleCause, InputWaitReason


@dataclass(slots=True)
class WindowParts:
    """What one or several runs did during one window; lengths in nanoseconds.

    Attributes:
        waits: Exposed length of the waiting phases, by the cause they stand for.
        validation_ns: Time in validation or prediction that is not a wait for input.
        step_ns: Time in which the device had been given a training step.
        gross_input_wait_ns: Of further such time, what passed while the step
            waited for input and perhaps computed as well.
        first_input_wait_ns: Of the waits for input, what passed before the run's first step.
        validation_input_wait_ns: Of them, what passed in validation or prediction.
        epoch_input_wait_ns: Of them, what passed at the start of an epoch, before its first step;
            the run's first one has ``first_input_wait_ns``.
        hidden_input_wait_ns: Time the host waited for input while the device still worked.
        silent_ns: Time in phases that say nothing of what the process does.
        own_step_ns: Untagged time of a run that counts steps and tags none: its step.
        outside_ns: Time of the window in no phase at all.
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
        """Time of the window of which no phase says anything."""
        return self.silent_ns + self.own_step_ns + self.outside_ns

    @property
    def input_wait_ns(self) -> int:
        """All waits for input that the device may have felt."""
        return self.waits.get(IdleCause.INPUT_WAIT, 0) + self.gross_input_wait_ns

    @property
    def sole_cause(self) -> IdleCause | None:
        """The one cause that the whole window was spent in, if there is one."""
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
"""Those that several runs of one window share, beside ``waits``."""


_NO_REASONS: Final[Mapping[tuple[IdleCause, InputWaitReason], int]] = MappingProxyType({})


class SharedIdle(NamedTuple):
    """Idle time of one window, shared out.

    Attributes:
        idle_ns: By cause; sums to at most the window's idle time. What is
            missing fell where no phase was.
        reasons_ns: Why, of those causes of which the machine can show it: by cause and reason;
            what is missing is unknown.
        resolved_ns: Of it, what a wholly idle window wholly in one phase proves.
        hidden_input_wait_ns: Waits for input that the device did not feel.
        first_input_wait_ns: Of ``input_wait``, the wait for the run's very first batch.
        validation_input_wait_ns: Of ``input_wait``, what passed in validation or prediction.
        epoch_input_wait_ns: Of ``input_wait``, what passed at the start of an epoch.
        unfelt_ns: How much longer the waits were than the device was idle.
    """

    idle_ns: dict[IdleCause, int]
    reasons_ns: Mapping[tuple[IdleCause, InputWaitReason], int] = _NO_REASONS
    resolved_ns: int = 0
    hidden_input_wait_ns: int = 0
    first_input_wait_ns: int = 0
    validation_input_wait_ns: int = 0
    epoch_input_wait_ns: int = 0
    unfelt_ns: int = 0

    @property
    def amounts_ns(self) -> tuple[int, ...]:
        """Those of its fields that are one number each."""
        return self[2:]

    def plus(self, other: SharedIdle) -> SharedIdle:
        """This window's and another one's together."""
        idle_ns, reasons_ns = Counter(self.idle_ns), Counter(self.reasons_ns)
        idle_ns.update(other.idle_ns)
        reasons_ns.update(other.reasons_ns)
        return SharedIdle(idle_ns, reasons_ns, *map(add, self.amounts_ns, other.amounts_ns))


_NEVER_RESOLVED: Final = (None, IdleCause.UNKNOWN, IdleCause.NOT_IN_USE)


def share_idle(
    idle_ns: int, parts: WindowParts, *, peer_excess_ns: int = 0, wholly_idle: bool = False
) -> SharedIdle:
    """Share the idle time of one window between causes.

    Args:
        idle_ns: Idle time of the window.
        parts: What the runs on this GPU did meanwhile.
        peer_excess_ns: By how much the busiest GPU of the same job was busier
            in this window; 0 where there is no peer.
        wholly_idle: Whether the sample was idle altogether, as far as a
            driver can tell.

    Returns:
        Shares that sum to ``idle_ns`` less what fell into uncovered time.

    >>> parts = WindowParts(waits={IdleCause.INPUT_WAIT: 300}, step_ns=700)
    >>> {cause.value: ns for cause, ns in share_idle(500, parts).idle_ns.items()}
    {'input_wait': 300, 'within_step': 200}
    """
    waiting_ns = sum(parts.waits.values()) + parts.silent_ns + parts.outside_ns
    to_waits_ns = min(idle_ns, waiting_ns)
    shares = _in_proportion(to_waits_ns, parts.waits, waiting_ns)
    left_ns = idle_ns - to_waits_ns
    for cause, most_ns in (
        (IdleCause.VALIDATION, parts.validation_ns),
        (IdleCause.INPUT_WAIT, parts.gross_input_wait_ns),
        (IdleCause.IMBALANCE, peer_excess_ns),
        (IdleCause.WITHIN_STEP, parts.step_ns if parts.own_step_ns else left_ns),
    ):
        taken_ns = min(left_ns, most_ns)
        if taken_ns > 0:
            shares[cause] = shares.get(cause, 0) + taken_ns
            left_ns -= taken_ns
    resolved = wholly_idle and parts.sole_cause not in _NEVER_RESOLVED
    resolved_ns = sum(shares.values()) if resolved else 0
    return SharedIdle(
        shares, _NO_REASONS, resolved_ns, *_of_input(parts, shares), waiting_ns - to_waits_ns
    )


def reshared(
    shared: SharedIdle, parts: WindowParts, idle_ns: Mapping[IdleCause, int]
) -> SharedIdle:
    """The same window, its idle time shared in another way: what no phase explains is left out."""
    unknown = IdleCause.UNKNOWN
    kept_ns: dict[IdleCause, int] = {
        cause: ns for cause, ns in idle_ns.items() if ns and cause is not unknown
    }
    if kept_ns == shared.idle_ns:
        return shared
    return SharedIdle(kept_ns, shared.reasons_ns, 0, *_of_input(parts, kept_ns), shared.unfelt_ns)


def _of_input(parts: WindowParts, idle_ns: Mapping[IdleCause, int]) -> tuple[int, int, int, int]:
    """Waits for input that were not felt; of those that were, the parts of ``SharedIdle``."""
    waited_ns, felt_ns = parts.input_wait_ns, idle_ns.get(IdleCause.INPUT_WAIT, 0)
    hidden_ns = parts.hidden_input_wait_ns + waited_ns - felt_ns
    if not felt_ns:
        return hidden_ns, 0, 0, 0
    return (
        hidden_ns,
        felt_ns * parts.first_input_wait_ns // waited_ns,
        felt_ns * parts.validation_input_wait_ns // waited_ns,
        felt_ns * parts.epoch_input_wait_ns // waited_ns,
    )


def hide_input_wait(parts: WindowParts, hidden_ns: int) -> None:
    """Count so much of the waits for input as hidden, in place: a GPU of the run had work then.

    One process feeds all GPUs of a run at once. While one of them computes, the others do not
    wait for input, whatever the process does: they wait for that one.
    """
    waited_ns = parts.input_wait_ns
    beside_ns = max(0, min(hidden_ns, parts.gross_input_wait_ns))  # these are hidden sooner
    parts.gross_input_wait_ns -= beside_ns
    exposed_ns = max(0, min(hidden_ns - beside_ns, parts.waits.get(IdleCause.INPUT_WAIT, 0)))
    if exposed_ns:
        parts.waits[IdleCause.INPUT_WAIT] -= exposed_ns
    parts.hidden_input_wait_ns += beside_ns + exposed_ns
    parts.step_ns += beside_ns + exposed_ns
    if waited_ns:
        felt_ns = parts.input_wait_ns
        parts.first_input_wait_ns = parts.first_input_wait_ns * felt_ns // waited_ns
        parts.validation_input_wait_ns = parts.validation_input_wait_ns * felt_ns // waited_ns
        parts.epoch_input_wait_ns = parts.epoch_input_wait_ns * felt_ns // waited_ns


def _in_proportion(
    amount_ns: int, weights: dict[IdleCause, int], total_weight: int
) -> dict[IdleCause, int]:
    # Running sums are rounded, not shares, so that no nanosecond is lost or made.
    shares: dict[IdleCause, int] = {}
    passed = given = 0
    for cause, weight in weights.items():
        passed += weight
        until = amount_ns * passed // total_weight if total_weight else 0
        if until > given:
            shares[cause] = until - given
        given = until
    return shares


def merge_parts(parts: Sequence[WindowParts], window_ns: int) -> WindowParts:
    """What several runs on one GPU did in one window: idle time is split between them.

    By how much of the window each covers; together they cover no more than all of it.
    """
    each_covers_ns = [window_ns - part.outside_ns for part in parts]
    covered_ns, longest_ns = sum(each_covers_ns), max(each_covers_ns, default=0)
    merged = WindowParts(outside_ns=window_ns - longest_ns)
    if covered_ns == 0:
        return merged
    for part in parts:
        for cause, length_ns in part.waits.items():
            share_ns = length_ns * longest_ns // covered_ns
            merged.waits[cause] = merged.waits.get(cause, 0) + share_ns
        for name in _LENGTHS:
            share_ns = getattr(part, name) * longest_ns // covered_ns
            setattr(merged, name, getattr(merged, name) + share_ns)
    return merged
