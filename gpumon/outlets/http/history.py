"""The last few minutes of every GPU, tick by tick, for whoever opens the page late.

Counters say what was settled *in* a tick; a picture wants to say what was
going on *at* a time. A pause is pending while it lasts and gets its cause when
it ends, so a tick that settles also rewrites the points of the pause itself.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterator
from typing import Any, Final

from gpumon.core.documents.state_codec import encode_document
from gpumon.core.phase import CAUSES, IdleCause
from gpumon.core.state import GpuState, MonitorState
from gpumon.core.wording import label_text

KEPT_PERIODS: Final = 600
"""What is kept is a stretch of time, so many periods long: ten minutes at one tick a second."""

_SPARE_POINTS: Final = 12
"""Ticks come a little early and late: a stretch of time has room for a few more of them."""

_END, _OBSERVED, _BUSY, _PENDING, _SUSPECTED, _FIRST_BATCH, _CAUSES = range(7)
_WIDTH: Final = _CAUSES + len(CAUSES)
_COLUMN: Final = {cause: _CAUSES + number for number, cause in enumerate(CAUSES)}
_INPUT_WAIT: Final = _COLUMN[IdleCause.INPUT_WAIT]
_UNKNOWN: Final = _COLUMN[IdleCause.UNKNOWN]
_NO_ANSWER: Final = -1.0


class History:
    """Bounded recent points of each GPU. Any thread may ask while one appends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lanes: dict[str, _Lane] = {}
        self._sequence = 0
        self._kept_ns = 0

    def append(self, state: MonitorState) -> None:
        """Add one tick: what its counters grew by since the tick before."""
        with self._lock:
            self._sequence += 1
            self._kept_ns = KEPT_PERIODS * state.period_ns
            uuids = {gpu.device.uuid for gpu in state.gpus}
            for gone in self._lanes.keys() - uuids:
                del self._lanes[gone]
            for gpu in state.gpus:
                lane = self._lanes.get(gpu.device.uuid)
                if lane is None:
                    lane = self._lanes[gpu.device.uuid] = _Lane(KEPT_PERIODS + _SPARE_POINTS)
                lane.let_go(state.taken_at_ns - self._kept_ns)
                lane.append(self._sequence, state.taken_at_ns, gpu)

    def encode(self) -> bytes:
        """All points, oldest first, as JSON: the body of ``/api/v1/history``.

        One GPU after the other: all points as dictionaries at once would be the
        largest thing the daemon ever holds, and would keep the next tick waiting.
        """
        with self._lock:
            head, lanes = self._head(), [*self._lanes.items()]
        encoded = []
        for uuid, lane in lanes:
            with self._lock:
                points = [lane.point(row) for row in lane.rows()]
            name = encode_document(label_text(uuid)).rstrip()
            encoded.append(name + b":" + encode_document(points).rstrip())
        return b'%s,"gpus":{%s}}\n' % (encode_document(head).rstrip()[:-1], b",".join(encoded))

    def newest(self) -> dict[str, Any]:
        """The points that the last tick added or rewrote, in the same form but not yet as text."""
        with self._lock:
            gpus = {
                label_text(uuid): [lane.point(row) for row in lane.touched]
                for uuid, lane in self._lanes.items()
            }
            return {**self._head(), "gpus": gpus}

    def _head(self) -> dict[str, Any]:
        """What is true of all lanes.

        ``kept_ns`` is how far back they go at most; ``kept_from_ns`` until when points were let
        go of, ``None`` while there are all: before that, nobody can say what was observed.
        """
        gone = [lane.gone_until_ns for lane in self._lanes.values()]
        kept_from_ns = max((end_ns for end_ns in gone if end_ns is not None), default=None)
        return {
            "sequence": self._sequence,
            "kept_ns": self._kept_ns,
            "kept_from_ns": kept_from_ns,
        }


class _Lane:
    """One GPU's points in a ring of whole nanoseconds: 170 bytes a point, whatever happens."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._cells = array("q", bytes(8 * _WIDTH * capacity))
        self._utilization = array("d", bytes(8 * capacity))
        self._first_sequence = 1
        self._first = self._end = 0  # Rows kept: row n lives in slot n % capacity.
        self._before = [0] * _WIDTH
        self.touched: list[int] = []
        self.gone_until_ns: int | None = None

    def let_go(self, until_ns: int) -> None:
        """Forget the rows that ended by then, and the oldest where there is no room for another."""
        while self._first < self._end:
            end_ns = self._cells[(self._first % self._capacity) * _WIDTH + _END]
            if end_ns > until_ns and self._end - self._first < self._capacity:
                return
            self._first, self.gone_until_ns = self._first + 1, end_ns

    def append(self, sequence: int, taken_at_ns: int, gpu: GpuState) -> None:
        now = _counters(taken_at_ns, gpu)
        grown = [after - before for after, before in zip(now, self._before, strict=True)]
        grown[_END] = now[_END] if grown[_OBSERVED] else taken_at_ns
        pending_before, self._before = self._before[_PENDING], now
        if self._end == 0:
            self._first_sequence = sequence
        row, self._end = self._end, self._end + 1
        self.touched = [row]
        suspected_ns, grown[_SUSPECTED] = grown[_SUSPECTED], 0
        first_batch_ns, grown[_FIRST_BATCH] = grown[_FIRST_BATCH], 0
        released_ns, grown[_PENDING] = max(0, -grown[_PENDING]), max(0, grown[_PENDING])
        waiting = list(self._rows_with_pending(pending_before)) if released_ns else []
        for earlier in waiting:
            released_ns -= self._settle(earlier, released_ns, grown)
        start = (row % self._capacity) * _WIDTH
        self._cells[start : start + _WIDTH] = array("q", grown)
        latest = gpu.latest.utilization_ratio if gpu.latest is not None and gpu.present else None
        self._utilization[row % self._capacity] = _NO_ANSWER if latest is None else latest
        self._mark(_SUSPECTED, suspected_ns, _UNKNOWN, waiting)
        self._mark(_FIRST_BATCH, first_batch_ns, _INPUT_WAIT, waiting)

    def rows(self) -> range:
        return range(self._first, self._end)

    def point(self, row: int) -> dict[str, Any]:
        start = (row % self._capacity) * _WIDTH
        cells = self._cells[start : start + _WIDTH]
        utilization = self._utilization[row % self._capacity]
        return {
            "sequence": self._first_sequence + row,
            "end_ns": cells[_END],
            "observed_ns": cells[_OBSERVED],
            "busy_ns": cells[_BUSY],
            "pending_ns": cells[_PENDING],
            "starved_ns": cells[_INPUT_WAIT] - cells[_FIRST_BATCH],
            "suspected_ns": cells[_SUSPECTED],
            "idle_ns": {cause.value: cells[at] for cause, at in _COLUMN.items() if cells[at]},
            "utilization_ratio": None if utilization == _NO_ANSWER else utilization,
        }

    def _rows_with_pending(self, pending_ns: int) -> Iterator[int]:
        """Rows that hold the pending time, oldest first."""
        found: list[int] = []
        for row in reversed(range(self.rows().start, self._end - 1)):
            if pending_ns <= 0:
                break
            held_ns = self._cells[(row % self._capacity) * _WIDTH + _PENDING]
            if held_ns:
                found.append(row)
                pending_ns -= held_ns
        return reversed(found)

    def _settle(self, row: int, released_ns: int, grown: list[int]) -> int:
        """Move pending time of an earlier row to the causes that the new tick settled."""
        start = (row % self._capacity) * _WIDTH
        cells = self._cells
        moved_ns = 0
        for column in range(_CAUSES, _WIDTH):
            share_ns = min(grown[column], cells[start + _PENDING], released_ns - moved_ns)
            if share_ns > 0:
                grown[column] -= share_ns
                cells[start + column] += share_ns
                cells[start + _PENDING] -= share_ns
                moved_ns += share_ns
        if moved_ns:
            self.touched.append(row)
        return moved_ns

    def _mark(self, column: int, amount_ns: int, cause: int, settled_rows: list[int]) -> None:
        """Mark idle time of a cause as suspected, say: what just settled first, then backwards."""
        if amount_ns <= 0:
            return
        for row in (*settled_rows, *reversed(self.rows())):
            if amount_ns <= 0:
                return
            start = (row % self._capacity) * _WIDTH
            room_ns = self._cells[start + cause] - self._cells[start + column]
            share_ns = min(room_ns, amount_ns)
            if share_ns > 0:
                self._cells[start + column] += share_ns
                amount_ns -= share_ns
                if row not in self.touched:
                    self.touched.append(row)


def _counters(taken_at_ns: int, gpu: GpuState) -> list[int]:
    totals, last_ns = gpu.totals, gpu.last_sample_at_ns
    # What was observed ends with the newest sample, and that is a little older than the tick.
    end_ns = taken_at_ns if last_ns is None else min(taken_at_ns, last_ns)
    fixed = [end_ns, totals.observed_ns, totals.busy_ns, totals.pending_ns,
             totals.suspected_ns, totals.first_input_wait_ns]  # fmt: skip
    return fixed + [totals.idle_ns.get(cause, 0) for cause in CAUSES]
