"""Which idle time stack samples explain.

A stack sample counts only where every driver window that it touches was idle: then the process was
seen while its GPU had nothing to do. A pause takes a cause when it ends, if its samples show that
cause for at least ``AGREEING_FROM`` of the time that they stand for, and only near them: from one
interval before the first to one after the last.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Final, NamedTuple

from gpumon.core.clock import NS_PER_S
from gpumon.core.phase import IdleCause
from gpumon.core.sample import BusySample
from gpumon.core.stacks.place import STOPPED, Place
from gpumon.core.stacks.sample_join import Joined, SampleJoin, SampleKind

AGREEING_FROM: Final = 0.8
"""Share of the time near a pause's samples that must show one cause."""
_MAX_KEPT: Final = 256
_SHORTEST_NS: Final = 2 * NS_PER_S
_LONGEST_NS: Final = 10 * NS_PER_S


def interval_ns(paused_ns: int) -> int:
    """The time between two stack samples of a pause that has lasted so long.

    One sample is enough for 2 s. Later samples come more and more seldom, at least every 10 s.

    >>> [interval_ns(s * NS_PER_S) // NS_PER_S for s in (0, 2, 9, 60)]
    [2, 2, 3, 10]
    """
    return min(max(_SHORTEST_NS, paused_ns // 3), _LONGEST_NS)


class PlacedSample(NamedTuple):
    """A stack sample, and where it shows the process to be.

    Attributes:
        start_ns: CLOCK_MONOTONIC just before the stack was read.
        end_ns: CLOCK_MONOTONIC just after.
        owner_uid: User of the process; ``None``: unknown.
    """

    start_ns: int
    end_ns: int
    place: Place
    owner_uid: int | None = None


class SeenPause(NamedTuple):
    """What stack samples show of a pause.

    Attributes:
        samples: How many there were.
        agreeing: How many of them show the cause that was shown for longest.
        cause: That cause; ``None``: they do not agree, or show none.
        idle_ns: How much idle time of the pause takes it.
        is_whole: Whether that is all of it.
        is_elsewhere: Whether they agree on code that the table does not know as a wait for input:
            it has no cause, and is not suspected of one.
    """

    samples: int = 0
    agreeing: int = 0
    cause: IdleCause | None = None
    idle_ns: int = 0
    is_whole: bool = False
    is_elsewhere: bool = False


_NOTHING_SEEN: Final = SeenPause()


class SeenPauses:
    """Joins the stack samples of one GPU's process to its driver samples. Memory is constant."""

    def __init__(self) -> None:
        self._join = SampleJoin[PlacedSample]()
        self._decided: list[Joined[PlacedSample]] = []
        self._in_pause: list[PlacedSample] = []
        self._stretches: list[list[int]] = []  # start, end, idle time

    def note(self, sample: PlacedSample) -> None:
        """Add a stack sample, later than all before; its driver samples come later."""
        self._join.add(sample.start_ns, sample.end_ns, sample)

    def note_late(self, sample: PlacedSample) -> None:
        """Add a stack sample whose driver samples came, and were settled, before it."""
        self._decided.append(Joined(SampleKind.UNOBSERVED, sample))

    def pop_decided(self) -> list[Joined[PlacedSample]]:
        """The stack samples whose driver samples came since the last call."""
        decided, self._decided = self._decided, []
        return decided

    def observe(self, sample: BusySample) -> None:
        """Add the next driver sample, before it is settled."""
        for joined in self._join.ingest((sample,), sample.end_ns):
            self._decided.append(joined)
            if joined.kind is SampleKind.IDLE:
                self._in_pause.append(joined.item)
        del self._decided[:-_MAX_KEPT], self._in_pause[:-_MAX_KEPT]

    def add_idle(self, sample: BusySample) -> None:
        """Add idle time of the open pause, whose cause is not decided yet."""
        last = self._stretches[-1] if self._stretches else None
        if last is not None and last[1] == sample.start_ns:
            last[1] = sample.end_ns
            last[2] += sample.idle_ns
        else:
            self._stretches.append([sample.start_ns, sample.end_ns, sample.idle_ns])
            del self._stretches[:-_MAX_KEPT]

    def end_pause(self) -> SeenPause:
        """End the open pause; return what was seen of it."""
        samples, self._in_pause = self._in_pause, []
        stretches, self._stretches = self._stretches, []
        if not samples or not stretches:
            return _NOTHING_SEEN
        times_ns = _times_ns(samples, stretches[0][0], stretches[-1][1])
        by_cause: Counter[IdleCause | None] = Counter()
        for sample, time_ns in zip(samples, times_ns, strict=True):
            by_cause[sample.place.cause] += time_ns
        cause, agreeing_ns = by_cause.most_common(1)[0]
        agreeing = sum(sample.place.cause is cause for sample in samples)
        enough_ns = AGREEING_FROM * sum(times_ns)
        if cause is None or agreeing_ns < enough_ns:
            elsewhere_ns = sum(
                time_ns
                for sample, time_ns in zip(samples, times_ns, strict=True)
                if _is_elsewhere(sample.place)
            )
            is_elsewhere = elsewhere_ns >= enough_ns
            return SeenPause(len(samples), agreeing, is_elsewhere=is_elsewhere)
        near = _near(samples, stretches[0][0])
        idle_ns = sum(
            idle_ns * _overlap_ns(start_ns, end_ns, span) // (end_ns - start_ns)
            for start_ns, end_ns, idle_ns in stretches
            for span in near
        )
        is_whole = near[0][0] <= stretches[0][0] and near[-1][1] >= stretches[-1][1]
        return SeenPause(len(samples), agreeing, cause, idle_ns, is_whole and len(near) == 1)


def _is_elsewhere(place: Place) -> bool:
    """Whether it was read, and is no known wait for input."""
    is_read = place.caller is not None or place.what == STOPPED
    return place.cause is not IdleCause.INPUT_WAIT and is_read


def _times_ns(samples: list[PlacedSample], began_ns: int, ended_ns: int) -> list[int]:
    """For how long each sample stands, if that ends half-way to the next.

    Samples are denser at the beginning of a pause, so counting them would not do.
    """
    at_ns = [(sample.start_ns + sample.end_ns) // 2 for sample in samples]
    first_ns, last_ns = (interval_ns(one_ns - began_ns) for one_ns in (at_ns[0], at_ns[-1]))
    ends_ns = [
        max(began_ns, at_ns[0] - first_ns),
        *((one_ns + next_ns) // 2 for one_ns, next_ns in pairwise(at_ns)),
        min(ended_ns, at_ns[-1] + last_ns),
    ]
    return [max(1, until_ns - from_ns) for from_ns, until_ns in pairwise(ends_ns)]


def _near(samples: list[PlacedSample], began_ns: int) -> list[tuple[int, int]]:
    """The time within one interval of a sample, as disjoint spans, oldest first."""
    near: list[tuple[int, int]] = []
    for sample in samples:
        reach_ns = interval_ns(sample.start_ns - began_ns)
        start_ns, end_ns = sample.start_ns - reach_ns, sample.end_ns + reach_ns
        if near and start_ns <= near[-1][1]:
            near[-1] = near[-1][0], max(near[-1][1], end_ns)
        else:
            near.append((start_ns, end_ns))
    return near


def _overlap_ns(start_ns: int, end_ns: int, span: tuple[int, int]) -> int:
    return max(0, min(end_ns, span[1]) - max(start_ns, span[0]))
