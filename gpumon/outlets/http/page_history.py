"""The last minutes of every GPU, tick by tick, for a page that is opened later.

Counters show what was settled *in* a tick; a picture must show what happened *at* a time.
A pause is pending while it lasts and gets its cause when it ends, so a tick that settles also
rewrites the points of the pause. A tick may bring the samples of several seconds: these are points
of about a period each, busy as their samples were; what was idle in them is divided in proportion.
"""

from __future__ import annotations

import threading
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from math import isnan, nan
from typing import Any, Final, NamedTuple

from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.clock import seconds
from gpumon.core.codecs.field_codec import encode_document
from gpumon.core.phase import CAUSES, IdleCause
from gpumon.core.state import GpuState, MonitorState, Stretch, grown_stretches
from gpumon.core.view.view import BUSY, PARTS, PENDING, SUSPECTED, RecentCells
from gpumon.core.wording import label_text

KEPT_PERIODS: Final = 600
"""How many periods are kept: ten minutes at one tick a second."""

_PERIODS_IN_CELL: Final = 10
_CELLS: Final = KEPT_PERIODS // _PERIODS_IN_CELL
_MAX_POINTS: Final = KEPT_PERIODS + 12
"""Room for a few more, as ticks may come a little early."""

_SEQUENCE, _END, _OBSERVED, _BUSY, _PENDING, _SUSPECTED, _NOT_STARVED, _CAUSES = range(8)
_COLUMN: Final = {cause: number for number, cause in enumerate(CAUSES, start=_CAUSES)}
_WIDTH: Final = _CAUSES + len(CAUSES)
_INPUT_WAIT: Final = _COLUMN[IdleCause.INPUT_WAIT]
_UNKNOWN: Final = _COLUMN[IdleCause.UNKNOWN]
_NOTHING: Final = array("q", bytes(8 * _WIDTH))


class PageHistory:
    """Bounded recent points of each GPU. Any thread may read while one appends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lanes: dict[str, _Lane] = {}
        self._sequence = 0
        self._kept_ns = 0
        self._state: MonitorState | None = None

    def append(self, state: MonitorState) -> None:
        """Add a tick: the growth of the counters since the tick before."""
        with self._lock:
            self._sequence += 1
            before, self._state = self._state, state
            if state.repeats(before):
                return
            self._kept_ns = KEPT_PERIODS * state.period_ns
            uuids = {gpu.device.uuid for gpu in state.gpus}
            for gone in self._lanes.keys() - uuids:
                del self._lanes[gone]
            for gpu in state.gpus:
                lane = self._lanes.get(gpu.device.uuid)
                if lane is None:
                    lane = self._lanes[gpu.device.uuid] = _Lane()
                lane.drop_before(state.taken_at_ns - self._kept_ns)
                lane.append(state, gpu)

    def encode(self) -> bytes:
        """All points, oldest first, as JSON: the body of ``/api/v1/history``.

        One GPU after the other: all points as dictionaries at once would be the
        daemon's largest object, and would delay the next tick.
        """
        with self._lock:
            head, lanes = self._head(), [*self._lanes.items()]
        encoded = []
        for uuid, lane in lanes:
            with self._lock:
                points = [point.document() for point in lane.points()]
            name = encode_document(label_text(uuid)).rstrip()
            encoded.append(name + b":" + encode_document(points).rstrip())
        return b'%s,"gpus":{%s}}\n' % (encode_document(head).rstrip()[:-1], b",".join(encoded))

    def newest(self) -> dict[str, Any]:
        """The points that the last tick added or rewrote, as a document."""
        with self._lock:
            gpus = {
                label_text(uuid): [point.document() for point in lane.touched.values()]
                for uuid, lane in self._lanes.items()
            }
            return {**self._head(), "gpus": gpus}

    def cells(self) -> dict[str, RecentCells]:
        """The same time of each GPU in sixty cells, by UUID."""
        with self._lock:
            state = self._state
            if state is None:
                return {}
            cell_ns = _PERIODS_IN_CELL * state.period_ns
            last = state.taken_at_ns // cell_ns
            return {uuid: lane.cells(last, cell_ns) for uuid, lane in self._lanes.items()}

    def _head(self) -> dict[str, Any]:
        """Values for all lanes.

        ``kept_ns`` is how far back they go at most; ``kept_from_ns`` is the end of the newest
        point that was dropped, ``None`` if none was.
        """
        gone = [lane.gone_until_ns for lane in self._lanes.values()]
        kept_from_ns = max((end_ns for end_ns in gone if end_ns is not None), default=None)
        return {
            "sequence": self._sequence,
            "kept_ns": self._kept_ns,
            "kept_from_ns": kept_from_ns,
        }


class _Point(NamedTuple):
    """About a period of a GPU: a row of its lane, which may be changed in place.

    Without observed time, it ends with the newest tick without a sample.
    """

    utilization_ratio: float | None
    cells: memoryview  # its number in the lane, then nanoseconds

    def document(self) -> dict[str, Any]:
        cells = self.cells
        return {
            "sequence": cells[_SEQUENCE],
            "end_ns": cells[_END],
            "observed_ns": cells[_OBSERVED],
            "busy_ns": cells[_BUSY],
            "pending_ns": cells[_PENDING],
            "starved_ns": cells[_INPUT_WAIT] - cells[_NOT_STARVED],
            "suspected_ns": cells[_SUSPECTED],
            "idle_ns": {cause.value: cells[at] for cause, at in _COLUMN.items() if cells[at]},
            "utilization_ratio": self.utilization_ratio,
        }

    def parts_ns(self) -> dict[str, int]:
        """Its time by part of ``PARTS``, without parts that have none."""
        cells, suspected_ns = self.cells, self.cells[_SUSPECTED]
        parts = {cause.value: cells[at] for cause, at in _COLUMN.items() if cells[at]}
        parts |= {BUSY: cells[_BUSY], PENDING: cells[_PENDING], SUSPECTED: suspected_ns}
        if suspected_ns:
            parts[IdleCause.UNKNOWN.value] -= suspected_ns
        return {part: ns for part, ns in parts.items() if ns > 0}

    def settle(self, released_ns: int, grown: array[int]) -> int:
        """Move pending time to the causes that a later tick settled; return how much."""
        left_ns = released_ns
        for column in _COLUMN.values():
            share_ns = min(grown[column], self.cells[_PENDING], left_ns)
            if share_ns > 0:
                grown[column] -= share_ns
                self.cells[column] += share_ns
                self.cells[_PENDING] -= share_ns
                left_ns -= share_ns
        return released_ns - left_ns


class _Lane:
    """One GPU's points: rows of one preallocated array, in which the newest replaces the oldest.

    Attributes:
        touched: Points that the last tick added or rewrote, by tick number.
        gone_until_ns: End of the newest point that was dropped; ``None``: none was.
    """

    def __init__(self) -> None:
        self._cells = memoryview(array("q", bytes(8 * _WIDTH * _MAX_POINTS)))
        self._ratios = array("d", bytes(8 * _MAX_POINTS))  # nan: none
        self._oldest = self._count = self._sequence = 0
        self.touched: dict[int, _Point] = {}
        self.gone_until_ns: int | None = None
        self._before = array("q", bytes(8 * _WIDTH))
        self._settled_ns = 0
        self._totals: GpuTotals | None = None
        self._is_newest_empty = False
        self._summed: dict[int, Mapping[str, int]] = {}  # by number: nanoseconds by part

    def points(self, *, newest_first: bool = False) -> Iterator[_Point]:
        """All points, the oldest first by default."""
        numbers = range(self._count)
        for number in reversed(numbers) if newest_first else numbers:
            yield self._point((self._oldest + number) % _MAX_POINTS)

    def drop_before(self, until_ns: int) -> None:
        """Drop the points that ended by then, and the oldest if there is no room for more."""
        while self._count:
            if self._point(self._oldest).cells[_END] > until_ns and self._count < _MAX_POINTS:
                break
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        self.gone_until_ns = self._point(self._oldest).cells[_END]
        self._oldest, self._count = (self._oldest + 1) % _MAX_POINTS, self._count - 1

    def append(self, state: MonitorState, gpu: GpuState) -> None:
        self._follow(state, gpu)
        cell_ns = _PERIODS_IN_CELL * state.period_ns
        for point in self.touched.values():
            self._summed.pop(point.cells[_END] // cell_ns, None)

    def cells(self, last: int, cell_ns: int) -> RecentCells:
        """Its time in cells of that length; ``last`` is the number of the newest."""
        numbers = range(last - _CELLS + 1, last + 1)
        self._summed = {at: self._summed[at] for at in numbers if at in self._summed}
        missing = {at: Counter[str]() for at in numbers if at not in self._summed}
        oldest = min(missing, default=last + 1)
        for point in self.points(newest_first=True):
            number = point.cells[_END] // cell_ns
            if number < oldest:
                break
            if number in missing:
                missing[number].update(point.parts_ns())
        self._summed |= missing
        parts = {
            part: tuple(seconds(self._summed[at].get(part, 0)) for at in numbers)
            for part in PARTS
            if any(part in cell for cell in self._summed.values())
        }
        return RecentCells(seconds(numbers[0] * cell_ns), seconds(cell_ns), parts)

    def _follow(self, state: MonitorState, gpu: GpuState) -> None:
        if gpu.totals is self._totals:  # as in most ticks between two drains
            self._add_empty(state, gpu)
            return
        self._totals = gpu.totals
        before, now = self._before, _counters(gpu)
        grown = array("q", [new - old for new, old in zip(now, before, strict=True)])
        self._before = now
        settled_ns, self._settled_ns = self._settled_ns, gpu.unsettled.settled_ns
        pending_ns = before[_PENDING]
        released_ns = max(-grown[_PENDING], min(self._settled_ns - settled_ns, pending_ns))
        grown[_PENDING] += released_ns
        suspected_ns, grown[_SUSPECTED] = grown[_SUSPECTED], 0
        not_starved_ns, grown[_NOT_STARVED] = grown[_NOT_STARVED], 0
        waiting = self._waiting(pending_ns) if released_ns > 0 else []
        settled = []
        for earlier in waiting:
            moved_ns = earlier.settle(released_ns, grown)
            if moved_ns:
                released_ns -= moved_ns
                settled.append(earlier)
        stretches = grown_stretches(gpu, before[_OBSERVED], before[_BUSY], state.period_ns)
        if stretches:
            self._drop_empty()
            newest = [self._add(*row) for row in _divided(grown, stretches)]
            self.touched = {point.cells[_SEQUENCE]: point for point in newest}
        else:
            self._add_empty(state, gpu)
        for point in settled:
            self.touched[point.cells[_SEQUENCE]] = point
        self._mark(_SUSPECTED, suspected_ns, _UNKNOWN, waiting)
        self._mark(_NOT_STARVED, not_starved_ns, _INPUT_WAIT, waiting)

    def _add_empty(self, state: MonitorState, gpu: GpuState) -> None:
        """Add a point without time, or let the newest one last, until a sample comes."""
        self._drop_empty()
        ratio = gpu.latest.utilization_ratio if gpu.latest and gpu.present else None
        point = self._add(ratio, _NOTHING)
        point.cells[_END] = state.taken_at_ns
        self.touched = {point.cells[_SEQUENCE]: point}
        self._is_newest_empty = True

    def _drop_empty(self) -> None:
        """Drop the newest point if it has no time: the next one takes its place."""
        if self._is_newest_empty and self._count:
            self._count -= 1
            self._sequence -= 1
        self._is_newest_empty = False

    def _add(self, ratio: float | None, cells: array[int]) -> _Point:
        if self._count == _MAX_POINTS:
            self._drop_oldest()
        at = (self._oldest + self._count) % _MAX_POINTS
        self._count += 1
        self._sequence += 1
        self._cells[at * _WIDTH : (at + 1) * _WIDTH] = cells
        self._cells[at * _WIDTH + _SEQUENCE] = self._sequence
        self._ratios[at] = nan if ratio is None else ratio
        return self._point(at)

    def _point(self, at: int) -> _Point:
        ratio = self._ratios[at]
        cells = self._cells[at * _WIDTH : (at + 1) * _WIDTH]
        return _Point(None if isnan(ratio) else ratio, cells)

    def _waiting(self, pending_ns: int) -> list[_Point]:
        found: list[_Point] = []
        for point in self.points(newest_first=True):
            if pending_ns <= 0:
                break
            if point.cells[_PENDING]:
                found.append(point)
                pending_ns -= point.cells[_PENDING]
        return found[::-1]

    def _mark(self, column: int, amount_ns: int, cause: int, settled: Sequence[_Point]) -> None:
        """Mark idle time of a cause, as suspected for example: newly settled points first."""
        for point in chain(settled, self.points(newest_first=True)):
            if amount_ns <= 0:
                break
            share_ns = min(point.cells[cause] - point.cells[column], amount_ns)
            if share_ns > 0:
                point.cells[column] += share_ns
                amount_ns -= share_ns
                self.touched.setdefault(point.cells[_SEQUENCE], point)


def _counters(gpu: GpuState) -> array[int]:
    totals = gpu.totals
    # Waits for a first batch, waits in hangs, and waits that may have another cause.
    not_starved_ns = totals.idle_ns.get(IdleCause.INPUT_WAIT, 0) - totals.starved_ns
    fixed = [0, 0, totals.observed_ns, totals.busy_ns, totals.pending_ns, totals.suspected_ns,
             not_starved_ns]  # fmt: skip
    return array("q", [*fixed, *(totals.idle_ns.get(cause, 0) for cause in CAUSES)])


def _divided(
    grown: array[int], stretches: Sequence[Stretch]
) -> Iterator[tuple[float | None, array[int]]]:
    """Divide what was counted between stretches, each with its utilisation.

    Pending time is the newest idle time. The rest is divided in proportion to idle time, because
    it is not known in which of the stretches it was. What is more than their idle time passed
    before the oldest point.
    """
    rooms_ns = [one.observed_ns - one.busy_ns for one in stretches]
    pendings_ns = [0] * len(rooms_ns)
    for at in reversed(range(len(rooms_ns))):
        pendings_ns[at] = min(rooms_ns[at], grown[_PENDING])
        rooms_ns[at] -= pendings_ns[at]
        grown[_PENDING] -= pendings_ns[at]
    columns = [column for column in _COLUMN.values() if grown[column]]
    for at, (stretch, room_ns) in enumerate(zip(stretches, rooms_ns, strict=True)):
        cells = array("q", bytes(8 * _WIDTH))
        cells[_END], cells[_OBSERVED], cells[_BUSY] = stretch[:3]
        cells[_PENDING] = pendings_ns[at]
        whole_ns = max(sum(rooms_ns[at:]), sum(grown[_CAUSES:]))
        rounded_ns = room_ns
        for column in columns if room_ns else ():
            cells[column] = grown[column] * room_ns // whole_ns
            rounded_ns -= cells[column]
        for column in columns:
            more_ns = min(rounded_ns, grown[column] - cells[column])
            rounded_ns -= more_ns
            cells[column] += more_ns
            grown[column] -= cells[column]
        yield stretch.utilization_ratio, cells
