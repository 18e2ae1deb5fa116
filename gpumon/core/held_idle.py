"""What phases say of idle time before a run has used its GPU: kept until it does, or never will."""

from __future__ import annotations

from typing import Final

from gpumon.core.phase import IdleCause
from gpumon.core.sharing import SharedIdle

_LEFT_TO_START_UP: Final = frozenset(
    {IdleCause.START_UP, IdleCause.UNKNOWN, IdleCause.WITHIN_STEP, IdleCause.IMBALANCE}
)
"""Causes that say nothing more than "not at work yet" of a GPU that never was. ``within_step`` is
among them: the first step of a framework that compiles unseen is where it sets the device up."""


class HeldIdle:
    """Idle time by cause, not settled yet: a part of what the ledger has pending.

    Attributes:
        idle_ns: By cause.
        resolved_ns: Of it, what wholly idle windows wholly in one phase prove.
        hidden_ns: Waits for input beside it that the device did not feel.
    """

    __slots__ = ("hidden_ns", "idle_ns", "resolved_ns")

    def __init__(self) -> None:
        self.idle_ns: dict[IdleCause, int] = {}
        self.resolved_ns = self.hidden_ns = 0

    @property
    def total_ns(self) -> int:
        """All of it."""
        return sum(self.idle_ns.values())

    def add(self, shared: SharedIdle, *, most_ns: int) -> None:
        """Keep what the phases of one more stretch say.

        Args:
            shared: Its idle time by cause.
            most_ns: How much there can be in all; what goes beyond is not kept.
        """
        kept = {cause: ns for cause, ns in shared.idle_ns.items() if cause not in _LEFT_TO_START_UP}
        kept_ns = sum(kept.values())
        if not kept_ns or self.total_ns + kept_ns > most_ns:
            return
        for cause, amount_ns in kept.items():
            self.idle_ns[cause] = self.idle_ns.get(cause, 0) + amount_ns
        self.resolved_ns += min(kept_ns, shared.resolved_ns)
        self.hidden_ns += shared.hidden_input_wait_ns

    def clear(self) -> None:
        """Forget it: what was pending has become something else."""
        if self.idle_ns:
            self.idle_ns = {}
            self.resolved_ns = self.hidden_ns = 0
