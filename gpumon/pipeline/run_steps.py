"""What the steps of one run tell: how long they take, and how busy its GPUs are in them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Final, NamedTuple

from gpumon.core.accounting.histograms import WARM_UP_STEPS, LengthHistogram
from gpumon.core.ring_format.events import RingKind, RingReading, RingRecords
from gpumon.core.settings.detector import DEFAULT_SETTINGS

_LEAST_STEP_NS: Final = DEFAULT_SETTINGS.advice.min_step_ns


class StepBalance:
    """How busy each GPU of a run is in its training steps, since its ratios last changed.

    Windows that began under other ratios are left out.
    """

    def __init__(self) -> None:
        self._times_ns: dict[str, tuple[int, int]] = {}  # in steps, and busy of it; by UUID
        self._shares: dict[str, float] = {}
        self._ratio_changes = 0
        self._changed_at_ns = 0

    def update(self, reading: RingReading) -> None:
        """Begin anew where the ring tells of other shares."""
        facts = reading.facts
        if facts.ratio_changes == self._ratio_changes and facts.shares == self._shares:
            return
        self._ratio_changes, self._shares = facts.ratio_changes, facts.shares
        self._times_ns = {}
        events = reading.events
        self._changed_at_ns = reading.read_at_ns
        for at in events.positions(RingKind.EVENT):
            if events.values[at] == facts.ratio_changes:
                self._changed_at_ns = events.stamps_ns[at]

    def add(self, uuid: str, start_ns: int, step_ns: int, busy_ns: int) -> None:
        """Count a window: how much of it lay in training steps, and how busy the GPU was then."""
        if step_ns > 0 and start_ns >= self._changed_at_ns:
            before_ns, before_busy_ns = self._times_ns.get(uuid, (0, 0))
            self._times_ns[uuid] = before_ns + step_ns, before_busy_ns + busy_ns

    def forget(self, uuid: str) -> None:
        """That GPU does not count for the run."""
        self._times_ns.pop(uuid, None)

    @property
    def busy_ratios(self) -> dict[str, float]:
        """The busy part, 0 to 1, of the time in training steps, by UUID of those known."""
        return {
            uuid: busy_ns / step_ns
            for uuid, (step_ns, busy_ns) in sorted(self._times_ns.items())
            if step_ns >= _LEAST_STEP_NS
        }


_STEP: Final = int(RingKind.STEP)
_DEVICE_DONE: Final = int(RingKind.DEVICE_DONE)
_LOOKS: Final = 8
_LOOKS_AT_FIRST: Final = 160
"""A short training is over after a reading or two: those must tell enough."""
_ENOUGH_LOOKS: Final = 400
_STEADY_COUNT: Final = 50  # beyond so many steps, the median is taken anew when 2 % have come


class _Step(NamedTuple):
    """A step that was counted: when, and how many there were with it."""

    at_ns: int
    number: int


def _step(events: RingRecords, at: int) -> _Step:
    return _Step(events.stamps_ns[at], events.values[at])


_Look = tuple[_Step, _Step]


def _is_across_epochs(look: _Look, epochs_ns: Sequence[int]) -> bool:
    """Whether an epoch began between the two. By stamps: a device may report its last step late."""
    before, after = look
    next_epoch = bisect_right(epochs_ns, before.at_ns)
    return next_epoch < len(epochs_ns) and epochs_ns[next_epoch] <= after.at_ns


class StepPace:
    """How long a run's steps take: the median of some in each reading, evenly spread over it.

    A step is the time from its predecessor's end to its own. Where the trainer reports when the
    device finished its steps, those are the ends: a host that runs ahead counts a step as soon as
    it has handed it over. Elsewhere they are when the host counted them.
    What lies between two epochs is none: validation, checkpoints and the
    loader's start are no part of a step.
    """

    def __init__(self) -> None:
        self._end = _STEP  # the kind of record that ends a step
        self._epoch_ns: int | None = None  # when the newest epoch began
        self._begin_afresh()

    def _begin_afresh(self) -> None:
        self._lengths = LengthHistogram()
        self._looked = 0
        self._due_at = 1
        self._median_ns: int | None = None
        self._last: _Step | None = None  # the newest step

    def ingest(
        self, events: RingRecords, suspended_ns: Callable[[int, int], int] = lambda *_: 0
    ) -> None:
        """Take what is new in the ring, oldest first.

        Args:
            events: The new records.
            suspended_ns: For how long the process could not run between two instants: a step in
                which it could not tells nothing of the pace.
        """
        kinds = events.kinds
        if self._end == _STEP and _DEVICE_DONE in kinds:
            self._end = _DEVICE_DONE
            self._begin_afresh()
        epochs_ns = [] if self._epoch_ns is None else [self._epoch_ns]
        epochs_ns += compress(events.stamps_ns, events.selected(RingKind.EPOCH))
        if epochs_ns:
            self._epoch_ns = epochs_ns[-1]
        first, last = kinds.find(self._end), kinds.rfind(self._end)
        if first < 0:
            return
        since, newest = self._last, _step(events, last)
        looks = [] if since is None else [(since, _step(events, first))]
        stride = len(kinds) // (_LOOKS if self._looked > _ENOUGH_LOOKS else _LOOKS_AT_FIRST)
        at = first
        while 0 <= at < last:
            end = kinds.find(self._end, at + 1)
            look = _step(events, at), _step(events, end)
            if _is_across_epochs(look, epochs_ns):
                at = end  # else a stride as long as some epochs might find nothing but their ends
                continue
            looks.append(look)
            at = kinds.find(self._end, max(end, at + stride))
        looks = [
            look
            for look in looks
            if not _is_across_epochs(look, epochs_ns)
            and not suspended_ns(look[0].at_ns, look[1].at_ns)
        ]
        self._count_in(looks, newest.number - (since or _step(events, first)).number)
        self._last = newest

    @property
    def median_ns(self) -> int | None:
        """The median step, exact to 0.8 %; ``None`` where none was seen after the warm-up."""
        count = self._lengths.count
        if count >= self._due_at:
            median_ns = self._lengths.median_ns
            self._median_ns = None if median_ns is None else round(median_ns)
            self._due_at = count + 1 + count // _STEADY_COUNT
        return self._median_ns

    def _count_in(self, looks: Sequence[_Look], steps: int) -> None:
        """Take each look for its part of the steps of a reading."""
        part = max(1, steps // max(1, len(looks)))
        self._looked += len(looks)
        for before, after in looks:
            done, spent_ns = after.number - before.number, after.at_ns - before.at_ns
            if before.number >= WARM_UP_STEPS and 0 < done <= spent_ns:
                self._lengths.add((spent_ns // done,), each=part)
