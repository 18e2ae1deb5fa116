"""How long a run's steps take, from the records of its ring: a median of a few looks each time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.core.length_histogram import WARM_UP_STEPS, LengthHistogram
from gpumon.core.ring_events import RingEvent, RingKind
from gpumon.core.ring_records import RingRecords

_STEP: Final = int(RingKind.STEP)
_EPOCH: Final = int(RingKind.EPOCH)
_LOOKS: Final = 8
_LOOKS_AT_FIRST: Final = 160
"""A short training is over after a reading or two: those must tell enough."""
_ENOUGH_LOOKS: Final = 400
_STEADY_COUNT: Final = 50  # beyond so many steps, the median is taken anew when 2 % have come


class StepPace:
    """Looks at some steps of each reading, evenly spread over it.

    A step is the time from the record of its predecessor's end to its own.
    What lies between two epochs is none: validation, checkpoints and the
    loader's start are no part of a step.
    """

    __slots__ = ("_due_at", "_last", "_lengths", "_looked", "_median_ns")

    def __init__(self) -> None:
        self._lengths = LengthHistogram()
        self._looked = 0
        self._due_at = 1
        self._median_ns: int | None = None
        self._last: RingEvent | None = None  # the newest step, if its epoch goes on

    def take(self, events: Sequence[RingEvent]) -> None:
        """Take what is new in the ring, oldest first."""
        if isinstance(events, RingRecords):
            kinds = events.kinds
        else:
            kinds = bytes(event.kind for event in events)
        first, last = kinds.find(_STEP), kinds.rfind(_STEP)
        if first < 0:
            self._last = None if _EPOCH in kinds else self._last
            return
        since, newest = self._last, events[last]
        looks = []
        if since is not None and _EPOCH not in kinds[:first]:
            looks.append((since, events[first]))
        stride = len(kinds) // (_LOOKS if self._looked > _ENOUGH_LOOKS else _LOOKS_AT_FIRST)
        at = first
        while 0 <= at < last:
            end = kinds.find(_STEP, at + 1)
            if _EPOCH in kinds[at:end]:
                at = end  # else a stride as long as some epochs might find nothing but their ends
                continue
            looks.append((events[at], events[end]))
            at = kinds.find(_STEP, max(end, at + stride))
        self._count_in(looks, newest.value - (since or events[first]).value)
        self._last = None if _EPOCH in kinds[last:] else newest

    @property
    def median_ns(self) -> int | None:
        """The median step, exact to 0.8 %; ``None`` where none was seen after the warm-up."""
        count = self._lengths.count
        if count >= self._due_at:
            median_ns = self._lengths.median_ns
            self._median_ns = None if median_ns is None else round(median_ns)
            self._due_at = count + 1 + count // _STEADY_COUNT
        return self._median_ns

    def _count_in(self, looks: Sequence[tuple[RingEvent, RingEvent]], steps: int) -> None:
        """Take each look for its part of the steps of a reading."""
        part = max(1, steps // max(1, len(looks)))
        self._looked += len(looks)
        for before, after in looks:
            done, spent_ns = after.value - before.value, after.at_ns - before.at_ns
            if before.value >= WARM_UP_STEPS and 0 < done <= spent_ns:
                self._lengths.add((spent_ns // done,), each=part)
