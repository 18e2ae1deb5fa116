"""The last minutes of every GPU, tick by tick, for a page that is opened later.

Counters show what was settled *in* a tick; a picture must show what happened *at* a time.
A pause is pending while it lasts and gets its cause when
it ends, so a tick that settles also rewrites the points of the pause.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterator, Sequence
from itertools import chain
from math import isnan, nan
from typing import Any, Final, NamedTuple

from gpumon.core.codecs.field_codec import encode_document
from gpumon.core.phase import CAUSES, IdleCause
from gpumon.core.state import GpuState, MonitorState
from gpumon.core.wording import label_text

KEPT_PERIODS: Final = 600
"""How many periods are kept: ten minutes at one tick a second."""

_MAX_POINTS: Final = KEPT_PERIODS + 12
"""Room for a few more, as ticks may come a little early."""

_SEQUENCE, _END, _OBSERVED, _BUSY, _PENDING, _SUSPECTED, _NOT_STARVED, _CAUSES = range(8)
_COLUMN: Final = {cause: number for number, cause in enumerate(CAUSES, start=_CAUSES)}
_WIDTH: Final = _CAUSES + len(CAUSES)
_INPUT_WAIT: Final = _COLUMN[IdleCause.INPUT_WAIT]
_UNKNOWN: Final = _COLUMN[IdleCause.UNKNOWN]


class PageHistory:
    """Bounded recent points of each GPU. Any thread may read while one appends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lanes: dict[str, _Lane] = {}
        self._sequence = 0
        self._kept_ns = 0

    def append(self, state: MonitorState) -> None:
        """Add a tick: the growth of the counters since the tick before."""
        with self._lock:
            self._sequence += 1
            self._kept_ns = KEPT_PERIODS * state.period_ns
            uuids = {gpu.device.uuid for gpu in state.gpus}
            for gone in self._lanes.keys() - uuids:
                del self._lanes[gone]
            for gpu in state.gpus:
                lane = self._lanes.get(gpu.device.uuid)
                if lane is None:
                    lane = self._lanes[gpu.device.uuid] = _Lane()
                lane.drop_before(state.taken_at_ns - self._kept_ns)
                lane.append(self._sequence, state.taken_at_ns, gpu)

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
    """One tick of a GPU: a row of its lane, which may be changed in place."""

    utilization_ratio: float | None
    cells: memoryview  # the tick's number, then nanoseconds

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
        self._oldest = self._count = 0
        self.touched: dict[int, _Point] = {}
        self.gone_until_ns: int | None = None
        self._before = array("q", bytes(8 * _WIDTH))

    def points(self, *, newest_first: bool = False) -> Iterator[_Point]:
        """All points, the oldest first by default."""
        numbers = range(self._count)
        for number in reversed(numbers) if newest_first else numbers:
            yield self._point((self._oldest + number) % _MAX_POINTS)

    def drop_before(self, until_ns: int) -> None:
        """Drop the points that ended by then, and the oldest if there is no room for more."""
        while self._count:
            end_ns = self._point(self._oldest).cells[_END]
            if end_ns > until_ns and self._count < _MAX_POINTS:
                break
            self.gone_until_ns = end_ns
            self._oldest, self._count = (self._oldest + 1) % _MAX_POINTS, self._count - 1

    def append(self, sequence: int, taken_at_ns: int, gpu: GpuState) -> None:
        now = _counters(taken_at_ns, gpu)
        grown = array(
            "q", [after - before for after, before in zip(now, self._before, strict=True)]
        )
        grown[_SEQUENCE] = sequence
        grown[_END] = now[_END] if grown[_OBSERVED] else taken_at_ns
        pending_before_ns, self._before = self._before[_PENDING], now
        suspected_ns, grown[_SUSPECTED] = grown[_SUSPECTED], 0
        not_starved_ns, grown[_NOT_STARVED] = grown[_NOT_STARVED], 0
        released_ns, grown[_PENDING] = max(0, -grown[_PENDING]), max(0, grown[_PENDING])
        latest = gpu.latest.utilization_ratio if gpu.latest is not None and gpu.present else None
        waiting = self._waiting(pending_before_ns) if released_ns else []
        settled = []
        for earlier in waiting:
            moved_ns = earlier.settle(released_ns, grown)
            if moved_ns:
                released_ns -= moved_ns
                settled.append(earlier)
        newest = self._add(latest, grown)
        self.touched = {point.cells[_SEQUENCE]: point for point in (newest, *settled)}
        self._mark(_SUSPECTED, suspected_ns, _UNKNOWN, waiting)
        self._mark(_NOT_STARVED, not_starved_ns, _INPUT_WAIT, waiting)

    def _add(self, ratio: float | None, cells: array[int]) -> _Point:
        at = (self._oldest + self._count) % _MAX_POINTS
        self._count += 1
        self._cells[at * _WIDTH : (at + 1) * _WIDTH] = cells
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


def _counters(taken_at_ns: int, gpu: GpuState) -> array[int]:
    totals, last_ns = gpu.totals, gpu.last_sample_at_ns
    # Observation ends with the newest sample, which is a little older than the tick.
    end_ns = taken_at_ns if last_ns is None else min(taken_at_ns, last_ns)
    # Waits for a first batch, waits in hangs, and waits that may have another cause.
    not_starved_ns = totals.idle_ns.get(IdleCause.INPUT_WAIT, 0) - totals.starved_ns
    fixed = [0, end_ns, totals.observed_ns, totals.busy_ns, totals.pending_ns,
             totals.suspected_ns, not_starved_ns]  # fmt: skip
    return array("q", [*fixed, *(totals.idle_ns.get(cause, 0) for cause in CAUSES)])
