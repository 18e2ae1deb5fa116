"""How long each class of callback takes in a trainer that says when it calls which."""

from __future__ import annotations

from time import monotonic_ns
from typing import Final

from trainer_hooks.keras_fit.callback_times import CallbackTimes
from trainer_hooks.ring.ring_writer import RingWriter

NOBODY: Final = -1
"""The slot of what runs inside a callback and is not its own time, such as a validation."""


class CallbackClasses:
    """Adds up the callbacks of one training and says so in its ring, at most once a second.

    Callbacks may be called inside others: each is then told of its own time.
    """

    def __init__(self, pen: RingWriter) -> None:
        """Go on from what an earlier training of this process took."""
        self._pen = pen
        self._times = CallbackTimes(pen.facts.callback_ns)
        self._open: list[int] = []

    def slot_of(self, callback: object) -> int:
        """The slot of a callback's class."""
        return self._times.slot_of(type(callback).__name__)

    def begin(self, slot: int) -> None:
        """A callback of that class is called, or what is ``NOBODY``'s begins."""
        now_ns = monotonic_ns()
        if self._open:
            self._credit(self._open[-1], now_ns)
        else:
            self._times.begin(now_ns)
        self._open.append(slot)

    def end(self) -> None:
        """What began last returned, or raised."""
        if not self._open:
            return
        now_ns = monotonic_ns()
        self._credit(self._open.pop(), now_ns)
        self._times.restate_now_and_then(self._pen)

    def restate(self) -> None:
        """Say in the ring what was added up so far."""
        self._times.restate(self._pen)

    def _credit(self, slot: int, now_ns: int) -> None:
        if slot == NOBODY:
            self._times.begin(now_ns)
        else:
            self._times.returned(slot, now_ns)
