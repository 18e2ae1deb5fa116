"""How long each class of callback takes in a trainer, and over which event of Hugging Face's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from time import monotonic_ns
from typing import Any, Final

from trainer_hooks.ring.guard import carries, quietly
from trainer_hooks.ring.ring_writer import RingWriter
from trainer_hooks.trainers.callback_times import CallbackTimes
from trainer_hooks.trainers.tagger import Tagger

NOBODY: Final = -1
"""The slot of what runs inside a callback and is not its own time, such as a validation."""


class CallbackClasses:
    """Adds up the callbacks of one training and says so in its ring, at most once a second.

    Callbacks may be called inside others: each is then told of its own time.
    """

    def __init__(self, writer: RingWriter) -> None:
        """Go on from what an earlier training of this process took."""
        self._writer = writer
        self._times = CallbackTimes(writer.facts.callback_ns)
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
        self._times.restate_now_and_then(self._writer)

    def restate(self) -> None:
        """Say in the ring what was added up so far."""
        self._times.restate(self._writer)

    def _credit(self, slot: int, now_ns: int) -> None:
        if slot == NOBODY:
            self._times.begin(now_ns)
        else:
            self._times.returned(slot, now_ns)


Slots = dict[type, int]

TELL_PHASES: Final = frozenset(
    {"on_train_begin", "on_epoch_begin", "on_step_end", "on_epoch_end", "on_train_end"}
)
"""In the loop of a training, and inside of no other method of its trainer."""


class EventCallbacks:
    """The classes to be timed at an event, and whether it is to be told of at all."""

    def __init__(self, empty: type, untimed: Sequence[type]) -> None:
        """``empty`` is a callback that does nothing; ``untimed`` are the trainer's own business."""
        self._empty, self._untimed = empty, frozenset(untimed)

    def of(
        self, event: str, callbacks: Sequence[Any], slot_of: Callable[[object], int]
    ) -> Slots | None:
        """The slots of those classes that do anything at the event.

        Returns:
            ``None`` where nobody does, and no phase changes either.
        """
        nothing = getattr(self._empty, event, None)
        busy = [
            callback
            for callback in callbacks
            if getattr(type(callback), event, None) is not nothing
            or event in getattr(callback, "__dict__", {})
        ]
        others = [callback for callback in busy if not isinstance(callback, Tagger)]
        if not others and event not in TELL_PHASES:
            return None
        timed = [callback for callback in others if type(callback) not in self._untimed]
        return {type(callback): slot_of(callback) for callback in timed}


class TimedCallbacks(list[Any]):
    """A handler's callbacks for one round of an event: whoever goes through them times each.

    It equals the list it is made from, and stands in its place for that round.
    """

    def __init__(self, callbacks: list[Any], slots: Slots, times: CallbackClasses) -> None:
        super().__init__(callbacks)
        self._before = callbacks
        self._slots, self._times = slots, times
        self._is_round = True

    def __reduce__(self) -> tuple[type[list[Any]], tuple[list[Any]]]:
        """A copy is a list, and times nothing."""
        return list, (list(self),)

    @carries("the round of an event")
    def __iter__(self) -> Iterator[Any]:
        if not self._is_round:
            return super().__iter__()
        self._is_round = False  # others may look, too
        return self._timed()

    def give_back(self) -> list[Any]:
        """The list as it was, but for those that were put in or taken away meanwhile."""
        if self != self._before:
            self._before[:] = list(self)
        return self._before

    @carries("the round of an event")
    def _timed(self) -> Iterator[Any]:
        times, slots = self._times, self._slots
        for callback in super().__iter__():
            slot = slots.get(type(callback))
            if slot is None:
                yield callback
                continue
            quietly(times.begin, slot)
            try:
                yield callback
            finally:  # also if it raised: then this is closed
                quietly(times.end)
