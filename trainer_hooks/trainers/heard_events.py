"""Who hears of which event of a Hugging Face ``Trainer``, and how long each takes over it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from trainer_hooks.trainers.callback_classes import CallbackClasses
from trainer_hooks.trainers.tagger import Tagger

Slots = dict[type, int]

TELL_PHASES: Final = frozenset(
    {"on_train_begin", "on_epoch_begin", "on_step_end", "on_epoch_end", "on_train_end"}
)
"""In the loop of a training, and inside of no other method of its trainer."""


class HeardEvents:
    """The classes to be timed at an event, and whether it is to be told of at all."""

    def __init__(self, empty: type, untimed: Sequence[type]) -> None:
        """Look at nothing yet.

        Args:
            empty: The class of a callback that does nothing anywhere.
            untimed: Classes that are the trainer's own business.
        """
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
            if getattr(type(callback), event, None) is not nothing or event in _own(callback)
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

    def _timed(self) -> Iterator[Any]:
        times, slots = self._times, self._slots
        for callback in super().__iter__():
            slot = slots.get(type(callback))
            if slot is None:
                yield callback
                continue
            times.begin(slot)
            try:
                yield callback
            finally:  # also if it raised: then this is closed
                times.end()


def _own(callback: object) -> dict[str, Any]:
    return getattr(callback, "__dict__", {})
