"""Idle time whose cause is not decided yet, and how it is decided, oldest first."""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NamedTuple

from gpumon.core.phase import IdleCause

_MAX_SETTLEMENTS: Final = 128
"""How many are kept: pauses of ten minutes at one every five seconds."""


class Unsettled(NamedTuple):
    """One GPU's time that is not settled yet, and how earlier pending time was settled.

    Every nanosecond that was ever pending has a number, counted from 0. So time that was pending
    at some point, and the cause that it got later, can be found.

    Attributes:
        settled_ns: How much has been settled so far: the number of the next nanosecond to settle.
        until_ns: By settlement: the number after its last nanosecond, rising.
        causes: By settlement: its cause.
        unsure_busy_ns: Busy part of the inactive samples since the last active one: in use only
            if another follows.
        unsure_low_ns: Time of such samples that would count in ``GpuTotals.low_ns``.
        open_pause_ns: Idle time of the open pause, if one is.
    """

    settled_ns: int = 0
    until_ns: tuple[int, ...] = ()
    causes: tuple[IdleCause, ...] = ()
    unsure_busy_ns: int = 0
    unsure_low_ns: int = 0
    open_pause_ns: int = 0

    def of(self, from_ns: int, amount_ns: int) -> dict[IdleCause, int]:
        """How the nanoseconds with these numbers were settled; the rest is still pending.

        Settlements that are too old to be kept count as the oldest known cause.
        """
        by_cause: dict[IdleCause, int] = {}
        end_ns = min(from_ns + amount_ns, self.settled_ns)
        for (start_ns, until_ns), cause in zip(
            pairwise((0, *self.until_ns)), self.causes, strict=True
        ):
            inside_ns = min(end_ns, until_ns) - max(from_ns, start_ns)
            if inside_ns > 0:
                by_cause[cause] = by_cause.get(cause, 0) + inside_ns
        return by_cause

    @property
    def to_subtract(self) -> Unsettled:
        """The part that later values are compared with; those know the settlements themselves."""
        return self._replace(until_ns=(), causes=()) if self.causes else self


NOTHING_UNSETTLED: Final = Unsettled()


class PendingTime:
    """Counts pending time, and remembers how it was settled."""

    def __init__(self) -> None:
        self.amount_ns = 0
        self._settled_ns = 0
        self._until_ns: list[int] = []
        self._causes: list[IdleCause] = []
        self._settlements: tuple[tuple[int, ...], tuple[IdleCause, ...]] | None = ((), ())

    def snapshot(self, unsure_busy_ns: int, unsure_low_ns: int, open_pause_ns: int) -> Unsettled:
        """How it was settled so far, with the other unsettled time."""
        if self._settlements is None:
            self._settlements = tuple(self._until_ns), tuple(self._causes)
        return Unsettled(
            self._settled_ns, *self._settlements, unsure_busy_ns, unsure_low_ns, open_pause_ns
        )

    def settle(self, cause: IdleCause, amount_ns: int) -> None:
        """Settle so much of it, the oldest first: more than 0, at most what is pending."""
        self.amount_ns -= amount_ns
        self._settled_ns += amount_ns
        self._settlements = None
        if self._causes and self._causes[-1] is cause:
            self._until_ns[-1] = self._settled_ns
            return
        self._until_ns.append(self._settled_ns)
        self._causes.append(cause)
        if len(self._causes) > _MAX_SETTLEMENTS:
            del self._until_ns[0], self._causes[0]
