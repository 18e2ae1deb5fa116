"""How long each class of callback took."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from time import monotonic_ns
from typing import Any, Final

from gpumon.core.ring_format.facts import MAX_CALLBACK_CLASSES, MAX_CLASS_NAME
from gpumon.core.wording import label_text
from trainer_hooks.ring.guard import passes_through, quietly
from trainer_hooks.ring.ring_writer import RingWriter
from trainer_hooks.trainers.tagger import Tagger

_RESTATE_NS: Final = 1_000_000_000
OTHERS: Final = "others"
"""The shared name of classes after the sixteenth."""


class CallbackTimes:
    """Sums by class; each class has a slot, so that adding is one store.

    >>> times = CallbackTimes({"TensorBoard": 5})
    >>> slot = times.slot_of("TensorBoard")
    >>> times.begin(1_000)
    >>> times.returned(slot, 1_040)
    >>> times.spent_ns
    {'TensorBoard': 45}

    Attributes:
        since_ns: When the last callback returned, or the first was called.
    """

    def __init__(self, known_ns: dict[str, int] | None = None) -> None:
        """Continue from ``known_ns``, the times of earlier runs in this process."""
        known_ns = known_ns or {}
        self._names = list(known_ns)[:MAX_CALLBACK_CLASSES]
        self._spent_ns = [known_ns[name] for name in self._names]
        self.since_ns = monotonic_ns()
        self._published_ns = self.spent_ns
        self._restated_ns = 0

    @property
    def spent_ns(self) -> dict[str, int]:
        """Nanoseconds by class name, without zeros."""
        spent = zip(self._names, self._spent_ns, strict=True)
        return {name: spent_ns for name, spent_ns in spent if spent_ns}

    def slot_of(self, class_name: str) -> int:
        """Return the slot of a class; all after the sixteenth share one."""
        name = label_text(class_name, MAX_CLASS_NAME)
        if name not in self._names:
            named = sum(known != OTHERS for known in self._names)
            if named >= MAX_CALLBACK_CLASSES - 1:
                name = OTHERS
            if name not in self._names:
                self._names.append(name)
                self._spent_ns.append(0)
        return self._names.index(name)

    def begin(self, now_ns: int | None = None) -> None:
        """Callbacks are called from now on, one after the other."""
        self.since_ns = monotonic_ns() if now_ns is None else now_ns

    def returned(self, slot: int, now_ns: int | None = None) -> None:
        """A callback returned; the time since the last one is its own."""
        now_ns = monotonic_ns() if now_ns is None else now_ns
        self._spent_ns[slot] += now_ns - self.since_ns
        self.since_ns = now_ns

    def publish_rarely(self, writer: RingWriter) -> None:
        """Call ``write_facts`` at most once a second: epochs may be short."""
        if monotonic_ns() - self._restated_ns > _RESTATE_NS:
            self.write_facts(writer)

    def write_facts(self, writer: RingWriter) -> None:
        self._restated_ns = monotonic_ns()
        facts = writer.facts
        for name, written_ns in facts.callback_ns.items():
            # A run inside a callback has written its own times since.
            self._spent_ns[self.slot_of(name)] += max(
                0, written_ns - self._published_ns.get(name, 0)
            )
        self._published_ns = spent_ns = self.spent_ns
        if spent_ns != facts.callback_ns:
            writer.write_facts(replace(facts, callback_ns=spent_ns))


NO_CALLBACK: Final = -1
"""The slot of what runs inside a callback but is not its own time, such as a validation."""


class CallbackClasses:
    """Sums the callbacks of one run and writes them to its ring, at most once a second.

    Callbacks may be called inside others; each gets its own time.
    """

    def __init__(self, writer: RingWriter) -> None:
        """Continue from the times of earlier runs in this process."""
        self._writer = writer
        self._times = CallbackTimes(writer.facts.callback_ns)
        self._open: list[int] = []

    def slot_of(self, callback: object) -> int:
        return self._times.slot_of(type(callback).__name__)

    def begin(self, slot: int) -> None:
        """A callback of that class is called, or something that is ``NO_CALLBACK`` begins."""
        now_ns = monotonic_ns()
        if self._open:
            self._credit(self._open[-1], now_ns)
        else:
            self._times.begin(now_ns)
        self._open.append(slot)

    def end(self) -> None:
        if not self._open:
            return
        now_ns = monotonic_ns()
        self._credit(self._open.pop(), now_ns)
        self._times.publish_rarely(self._writer)

    def write_facts(self) -> None:
        self._times.write_facts(self._writer)

    def _credit(self, slot: int, now_ns: int) -> None:
        if slot == NO_CALLBACK:
            self._times.begin(now_ns)
        else:
            self._times.returned(slot, now_ns)


Slots = dict[type, int]

PHASE_EVENTS: Final = frozenset(
    {"on_train_begin", "on_epoch_begin", "on_step_end", "on_epoch_end", "on_train_end"}
)
"""Events of the training loop itself, outside any other method of the trainer."""


class EventCallbacks:
    """Finds the classes to time at an event."""

    def __init__(self, empty: type, untimed: Sequence[type]) -> None:
        """``empty`` is a callback that does nothing; ``untimed`` are the trainer's own."""
        self._empty, self._untimed = empty, frozenset(untimed)

    def of(
        self, event: str, callbacks: Sequence[Any], slot_of: Callable[[object], int]
    ) -> Slots | None:
        """Return the slots of the classes that do anything at the event.

        Returns:
            ``None`` if none does and no phase changes.
        """
        nothing = getattr(self._empty, event, None)
        busy = [
            callback
            for callback in callbacks
            if getattr(type(callback), event, None) is not nothing
            or event in getattr(callback, "__dict__", {})
        ]
        others = [callback for callback in busy if not isinstance(callback, Tagger)]
        if not others and event not in PHASE_EVENTS:
            return None
        timed = [callback for callback in others if type(callback) not in self._untimed]
        return {type(callback): slot_of(callback) for callback in timed}


class TimedCallbacks(list[Any]):
    """A handler's callbacks for one round of an event: iterating over them times each.

    It equals the list it is made from, and replaces it for that round.
    """

    def __init__(self, callbacks: list[Any], slots: Slots, times: CallbackClasses) -> None:
        super().__init__(callbacks)
        self._before = callbacks
        self._slots, self._times = slots, times
        self._is_round = True

    def __reduce__(self) -> tuple[type[list[Any]], tuple[list[Any]]]:
        """A copy is a simple list."""
        return list, (list(self),)

    @passes_through
    def __iter__(self) -> Iterator[Any]:
        if not self._is_round:
            return super().__iter__()
        self._is_round = False  # others may iterate, too
        return self._timed()

    def give_back(self) -> list[Any]:
        """Return the original list, with callbacks added or removed meanwhile."""
        if self != self._before:
            self._before[:] = list(self)
        return self._before

    @passes_through
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
            finally:  # if it raised, this generator is closed
                quietly(times.end)
