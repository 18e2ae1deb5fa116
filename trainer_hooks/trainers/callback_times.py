"""How long each class of callback took, by marks between the callbacks of a list."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic_ns
from typing import Final

from gpumon.core.ring_format.facts import MAX_CALLBACK_CLASSES, MAX_CLASS_NAME
from gpumon.core.wording import label_text
from trainer_hooks.ring.ring_writer import RingWriter

_RESTATE_NS: Final = 1_000_000_000
OTHERS: Final = "others"
"""What the classes beyond the sixteenth are called together."""


class CallbackTimes:
    """Adds up by class; a class has a slot, so that adding is one store.

    >>> times = CallbackTimes({"TensorBoard": 5})
    >>> slot = times.slot_of("TensorBoard")
    >>> times.begin(1_000)
    >>> times.returned(slot, 1_040)
    >>> times.spent_ns
    {'TensorBoard': 45}

    Attributes:
        since_ns: When the last one returned, or the first was called.
    """

    def __init__(self, known_ns: dict[str, int] | None = None) -> None:
        """Go on from ``known_ns``, what an earlier training of this process took."""
        known_ns = known_ns or {}
        self._names = list(known_ns)[:MAX_CALLBACK_CLASSES]
        self._spent_ns = [known_ns[name] for name in self._names]
        self.since_ns = monotonic_ns()
        self._told_ns = self.spent_ns
        self._restated_ns = 0

    @property
    def spent_ns(self) -> dict[str, int]:
        """Nanoseconds by class name: those that took any."""
        spent = zip(self._names, self._spent_ns, strict=True)
        return {name: spent_ns for name, spent_ns in spent if spent_ns}

    def slot_of(self, class_name: str) -> int:
        """The slot of a class; one for all that come after the sixteenth."""
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
        """One of them returned; what was since the last did is its own."""
        now_ns = monotonic_ns() if now_ns is None else now_ns
        self._spent_ns[slot] += now_ns - self.since_ns
        self.since_ns = now_ns

    def restate_now_and_then(self, writer: RingWriter) -> None:
        """As ``restate``, but not more than once a second: epochs may be short."""
        if monotonic_ns() - self._restated_ns > _RESTATE_NS:
            self.restate(writer)

    def restate(self, writer: RingWriter) -> None:
        """Say in the ring's first page what was added up so far."""
        self._restated_ns = monotonic_ns()
        facts = writer.facts
        for name, told_ns in facts.callback_ns.items():
            # A training within a callback has told of its own since.
            self._spent_ns[self.slot_of(name)] += max(0, told_ns - self._told_ns.get(name, 0))
        self._told_ns = spent_ns = self.spent_ns
        if spent_ns != facts.callback_ns:
            writer.restate(replace(facts, callback_ns=spent_ns))
