"""Step times of one run, and how busy its GPUs are in its steps."""

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
    """How busy each GPU of a run is in its training steps since its ratios last changed."""

    def __init__(self) -> None:
        self._times_ns: dict[str, tuple[int, int]] = {}  # step time, and busy part of it, by UUID
        self._shares: dict[str, float] = {}
        self._ratio_changes = 0
        self._changed_at_ns = 0

    def update(self, reading: RingReading) -> None:
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
        """Count a window's time in training steps, and the busy part of it."""
        if step_ns > 0 and start_ns >= self._changed_at_ns:
            before_ns, before_busy_ns = self._times_ns.get(uuid, (0, 0))
            self._times_ns[uuid] = before_ns + step_ns, before_busy_ns + busy_ns

    def forget(self, uuid: str) -> None:
        self._times_ns.pop(uuid, None)

    @property
    def busy_ratios(self) -> dict[str, float]:
        """The busy part, 0 to 1, of the time in training steps, by UUID, where known."""
        return {
            uuid: busy_ns / step_ns
            for uuid, (step_ns, busy_ns) in sorted(self._times_ns.items())
            if step_ns >= _LEAST_STEP_NS
        }


_STEP: Final = int(RingKind.STEP)
_DEVICE_DONE: Final = int(RingKind.DEVICE_DONE)
_SAMPLES: Final = 8
_SAMPLES_AT_FIRST: Final = 160
"""A short run is over after a reading or two, which must be enough."""
_ENOUGH_SAMPLES: Final = 400
_STEADY_COUNT: Final = 50  # after this many steps, the median is updated only every 2 %


class _Step(NamedTuple):
    """A counted step: its time, and how many steps there were by then."""

    at_ns: int
    number: int


def _step(events: RingRecords, at: int) -> _Step:
    return _Step(events.stamps_ns[at], events.values[at])


_Pair = tuple[_Step, _Step]


def _is_across_epochs(pair: _Pair, epochs_ns: Sequence[int]) -> bool:
    """Whether an epoch began between two steps, by stamps: a device may mark its last step late."""
    before, after = pair
    next_epoch = bisect_right(epochs_ns, before.at_ns)
    return next_epoch < len(epochs_ns) and epochs_ns[next_epoch] <= after.at_ns


class StepPace:
    """How long a run's steps take: the median of some steps in each reading, evenly spread.

    A step lasts from the end of the one before to its own. If the trainer marks when the
    device finished its steps, those are the ends, because a host that runs ahead counts a step
    as soon as it has dispatched it. Else they are when the host counted them. The time between
    two epochs is no step: it has validation, checkpoints and the loader's start.
    """

    def __init__(self) -> None:
        self._end = _STEP  # the kind of record that ends a step
        self._epoch_ns: int | None = None  # when the newest epoch began
        self._start_over()

    def _start_over(self) -> None:
        self._lengths = LengthHistogram()
        self._sampled = 0
        self._due_at = 1
        self._median_ns: int | None = None
        self._last: _Step | None = None  # the newest step

    def ingest(
        self, events: RingRecords, suspended_ns: Callable[[int, int], int] = lambda *_: 0
    ) -> None:
        """Take the new records of the ring, oldest first.

        Args:
            events: The new records.
            suspended_ns: For how long the process could not run between two times: a step in
                which it was stopped does not count.
        """
        kinds = events.kinds
        if self._end == _STEP and _DEVICE_DONE in kinds:
            self._end = _DEVICE_DONE
            self._start_over()
        epochs_ns = [] if self._epoch_ns is None else [self._epoch_ns]
        epochs_ns += compress(events.stamps_ns, events.selected(RingKind.EPOCH))
        if epochs_ns:
            self._epoch_ns = epochs_ns[-1]
        first, last = kinds.find(self._end), kinds.rfind(self._end)
        if first < 0:
            return
        since, newest = self._last, _step(events, last)
        pairs = [] if since is None else [(since, _step(events, first))]
        stride = len(kinds) // (_SAMPLES if self._sampled > _ENOUGH_SAMPLES else _SAMPLES_AT_FIRST)
        at = first
        while 0 <= at < last:
            end = kinds.find(self._end, at + 1)
            pair = _step(events, at), _step(events, end)
            if _is_across_epochs(pair, epochs_ns):
                at = end  # else a stride as long as an epoch might find only ends of epochs
                continue
            pairs.append(pair)
            at = kinds.find(self._end, max(end, at + stride))
        pairs = [
            (before, after)
            for before, after in pairs
            if not _is_across_epochs((before, after), epochs_ns)
            and not suspended_ns(before.at_ns, after.at_ns)
        ]
        self._count_in(pairs, newest.number - (since or _step(events, first)).number)
        self._last = newest

    @property
    def median_ns(self) -> int | None:
        """The median step, exact to 0.8 %; ``None`` if there was none after the warm-up."""
        count = self._lengths.count
        if count >= self._due_at:
            median_ns = self._lengths.median_ns
            self._median_ns = None if median_ns is None else round(median_ns)
            self._due_at = count + 1 + count // _STEADY_COUNT
        return self._median_ns

    def _count_in(self, pairs: Sequence[_Pair], steps: int) -> None:
        """Count each pair of steps for its part of the steps of a reading."""
        part = max(1, steps // max(1, len(pairs)))
        self._sampled += len(pairs)
        for before, after in pairs:
            done, spent_ns = after.number - before.number, after.at_ns - before.at_ns
            if before.number >= WARM_UP_STEPS and 0 < done <= spent_ns:
                self._lengths.add((spent_ns // done,), each=part)
