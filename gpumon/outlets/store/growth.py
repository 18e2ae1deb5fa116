"""What a tick adds to the store: by how much each counter of a GPU grew, and when.

Time is added to the cell in which it passed. What is pending is added as pending, and settled
later in the cells that have it, the oldest first: the database knows which, so nothing of it is
kept here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.clock import NS_PER_S
from gpumon.core.phase import CAUSES
from gpumon.core.sample import Device
from gpumon.core.state import GpuState, MonitorState, Stretch, grown_stretches
from gpumon.outlets.store.columns import (
    BUSY,
    COLUMN_OF_CAUSE,
    COLUMNS,
    FIRST_COUNTER,
    FIRST_RARE_COUNT,
    LEVELS,
    NS_PER_MS,
    PENDING,
    SUSPECTED,
    UNKNOWN,
    counters_of,
    levels_of,
    parts_of,
    rare_of,
    scale_of,
)

CELL_S: Final = 10
MINUTE_S: Final = 60
_MOST_KEPT: Final = 512
"""Settlements and rare counters of one GPU, on a full disk."""
_MAX_LEVEL: Final = 1e12
_CELL_NS: Final = CELL_S * NS_PER_S
_SCALES: Final = [scale_of(column) for column in range(len(COLUMNS))]


class LevelMeans:
    """Means of the levels since they were reset."""

    def __init__(self, start_s: int) -> None:
        self.start_s = start_s
        self._sums = [0.0] * len(LEVELS)
        self._counts = [0] * len(LEVELS)

    def add(self, levels: Sequence[float | None]) -> None:
        for number, level in enumerate(levels):
            if level is not None and 0 <= level <= _MAX_LEVEL:  # NaN is not
                self._sums[number] += level
                self._counts[number] += 1

    @property
    def values(self) -> list[int | None]:
        return [
            round(total / count) if count else None
            for total, count in zip(self._sums, self._counts, strict=True)
        ]


Amounts: TypeAlias = dict[int, int]
"""By column; those without growth are left out."""


@dataclass(slots=True)
class Growth:
    """What is not yet written of one GPU.

    Attributes:
        cells: By the start of a cell, in seconds since the epoch, and by column: by how much
            it grew.
        settled: Cause and milliseconds of pending time that was settled, in order.
        suspected_ms: How much of that is suspected.
        rare: By minute and number: by how much a rare counter grew.
        levels: Means of cells and of minutes, by their starts.
        longest_pause_ms: The longest pause so far, if one ended.
    """

    device: Device
    cells: dict[int, Amounts] = field(default_factory=dict)
    settled: list[tuple[int, int]] = field(default_factory=list)
    suspected_ms: int = 0
    rare: dict[tuple[int, int], int] = field(default_factory=dict)
    levels: tuple[dict[int, LevelMeans], dict[int, LevelMeans]] = field(
        default_factory=lambda: ({}, {})
    )
    longest_pause_ms: int = 0

    @property
    def is_empty(self) -> bool:
        return not (self.cells or self.settled or self.rare or self.levels[0])

    def keep_newest(self, most: int) -> None:
        """Drop all but the newest cells, and what is much as old."""
        for start_s in sorted(self.cells)[:-most]:
            del self.cells[start_s]
        for means in self.levels:
            for start_s in sorted(means)[:-most]:
                del means[start_s]
        for key in sorted(self.rare)[:-_MOST_KEPT]:
            del self.rare[key]
        if len(self.settled) > _MOST_KEPT:
            sums: Counter[int] = Counter()
            for column, amount_ms in self.settled:
                sums[column] += amount_ms
            self.settled = [*sums.items()]

    def add_before(self, earlier: Growth) -> None:
        """Put what could not be written before this."""
        for start_s, amounts in earlier.cells.items():
            _add(self.cells, start_s, amounts)
        self.settled[:0] = earlier.settled
        self.suspected_ms += earlier.suspected_ms
        for key, amount in earlier.rare.items():
            self.rare[key] = self.rare.get(key, 0) + amount
        for newer, older in zip(self.levels, earlier.levels, strict=True):
            for start_s, mean in older.items():
                newer.setdefault(start_s, mean)
        self.longest_pause_ms = max(self.longest_pause_ms, earlier.longest_pause_ms)


class GpuGrowth:
    """Follows one GPU from tick to tick."""

    def __init__(self) -> None:
        self._totals = GpuTotals()
        self._settled_ns = 0
        self._parts = parts_of(self._totals)
        self._counters = counters_of(self._totals)
        self._rare: dict[int, int] = {}
        self._rests = [0] * len(COLUMNS)
        self._rare_rests: dict[int, int] = {}
        self._settled_rests = [0] * len(COLUMNS)
        self._means = [LevelMeans(0), LevelMeans(0)]

    def may_precede(self, totals: GpuTotals) -> bool:
        """Whether these totals go on from the last ones; else they were begun again."""
        return totals.observed_ns >= self._totals.observed_ns

    def follow(self, state: MonitorState, gpu: GpuState, growth: Growth) -> None:
        """Add to ``growth`` what came since the tick before."""
        now_s = state.wall_time_s
        growth.device = gpu.device
        self._add_levels(now_s, gpu, growth)
        totals, before = gpu.totals, self._totals
        if totals is before:
            return
        self._totals = totals
        offset_ns = round(now_s * NS_PER_S) - state.taken_at_ns
        stretches = grown_stretches(gpu, before.observed_ns, before.busy_ns, state.period_ns)
        parts, counters = parts_of(totals), counters_of(totals)
        grown = [after - was for after, was in zip(parts, self._parts, strict=True)]
        self._add_parts(gpu, grown, [*_cells(stretches, offset_ns)], int(now_s), growth)
        newest_s = max(growth.cells, default=int(now_s) // CELL_S * CELL_S)
        if counters != self._counters:
            pairs = enumerate(zip(counters, self._counters, strict=True), FIRST_COUNTER)
            more = {column: after - was for column, (after, was) in pairs if after != was}
            self._add(growth, newest_s, more)
        self._parts, self._counters = parts, counters
        self._add_rare(totals, newest_s // MINUTE_S * MINUTE_S, growth)
        if totals.pauses.count != before.pauses.count:
            growth.longest_pause_ms = totals.pauses.longest_ns // NS_PER_MS

    # -- parts of the observed time --------------------------------------------

    def _add_parts(
        self,
        gpu: GpuState,
        grown: list[int],
        cells: list[tuple[int, int, int]],
        now_s: int,
        growth: Growth,
    ) -> None:
        """Divide what was counted between cells and earlier pending time."""
        pending_ns, settled_before_ns = self._parts[PENDING], self._settled_ns
        self._settled_ns = gpu.unsettled.settled_ns
        newly_settled_ns = min(self._settled_ns - settled_before_ns, pending_ns)
        released_ns = max(-grown[PENDING], newly_settled_ns, 0)
        grown[PENDING] += released_ns
        suspected_ns, grown[SUSPECTED] = grown[SUSPECTED], 0
        if released_ns:
            known = gpu.unsettled.of(settled_before_ns, pending_ns)
            for cause, amount_ns in [*known.items(), *((one, released_ns) for one in CAUSES)]:
                column = COLUMN_OF_CAUSE[cause]
                share_ns = min(amount_ns, grown[column], released_ns)
                if share_ns > 0:
                    grown[column] -= share_ns
                    released_ns -= share_ns
                    suspected_ns -= self._settle(column, share_ns, suspected_ns, growth)
        cells = cells or [(now_s // CELL_S * CELL_S, 0, 0)]
        for start_s, amounts in _divided(grown, cells):
            self._add(growth, start_s, amounts)
        if suspected_ns:
            self._add(growth, cells[-1][0], {SUSPECTED: suspected_ns})

    def _settle(self, column: int, share_ns: int, suspected_ns: int, growth: Growth) -> int:
        """Settle earlier pending time; return how much of ``suspected_ns`` it is."""
        amount_ms, self._settled_rests[column] = divmod(
            share_ns + self._settled_rests[column], NS_PER_MS
        )
        if amount_ms:
            if growth.settled and growth.settled[-1][0] == column:
                amount_ms += growth.settled.pop()[1]
            growth.settled.append((column, amount_ms))
        if column != UNKNOWN or suspected_ns <= 0:
            return 0
        taken_ns = min(suspected_ns, share_ns)
        taken_ms, self._settled_rests[SUSPECTED] = divmod(
            taken_ns + self._settled_rests[SUSPECTED], NS_PER_MS
        )
        growth.suspected_ms += taken_ms
        return taken_ns

    def _add(self, growth: Growth, start_s: int, amounts: Mapping[int, int]) -> None:
        """Add amounts to a cell, in the units of the columns."""
        scaled: Amounts = {}
        rests = self._rests
        for column, amount in amounts.items():
            scaled[column], rests[column] = divmod(amount + rests[column], _SCALES[column])
        _add(growth.cells, start_s, scaled)

    # -- the rest --------------------------------------------------------------

    def _add_rare(self, totals: GpuTotals, minute_s: int, growth: Growth) -> None:
        rare = rare_of(totals)
        if rare == self._rare:
            return
        for number in rare.keys() | self._rare.keys():
            amount = rare.get(number, 0) - self._rare.get(number, 0)
            scale = 1 if number >= FIRST_RARE_COUNT else NS_PER_MS
            scaled, self._rare_rests[number] = divmod(
                amount + self._rare_rests.get(number, 0), scale
            )
            if scaled:
                key = minute_s, number
                growth.rare[key] = growth.rare.get(key, 0) + scaled
        self._rare = rare

    def _add_levels(self, now_s: float, gpu: GpuState, growth: Growth) -> None:
        levels = levels_of(gpu)
        if all(level is None for level in levels):
            return
        for place, length_s in enumerate((CELL_S, MINUTE_S)):
            start_s = int(now_s) // length_s * length_s
            if self._means[place].start_s != start_s:
                self._means[place] = LevelMeans(start_s)
            self._means[place].add(levels)
            growth.levels[place][start_s] = self._means[place]


def _add(cells: dict[int, Amounts], start_s: int, amounts: Mapping[int, int]) -> None:
    known = cells.setdefault(start_s, {})
    for column, amount in amounts.items():
        known[column] = known.get(column, 0) + amount


def _cells(stretches: Sequence[Stretch], offset_ns: int) -> Iterator[tuple[int, int, int]]:
    """Start in seconds, observed and busy nanoseconds of each cell that stretches lie in."""
    start_s, observed_ns, busy_ns = -1, 0, 0
    for stretch in stretches:
        from_ns, end_ns = stretch.start_ns + offset_ns, stretch.end_ns + offset_ns
        left_ns = stretch.busy_ns
        while from_ns < end_ns:
            until_ns = min(end_ns, (from_ns // _CELL_NS + 1) * _CELL_NS)
            part_ns = left_ns * (until_ns - from_ns) // (end_ns - from_ns)
            cell_s = from_ns // _CELL_NS * CELL_S
            if cell_s != start_s and observed_ns:
                yield start_s, observed_ns, busy_ns
                observed_ns = busy_ns = 0
            start_s = cell_s
            observed_ns, busy_ns = observed_ns + until_ns - from_ns, busy_ns + part_ns
            from_ns, left_ns = until_ns, left_ns - part_ns
    if observed_ns:
        yield start_s, observed_ns, busy_ns


def _divided(
    grown: Sequence[int], cells: Sequence[tuple[int, int, int]]
) -> Iterator[tuple[int, Amounts]]:
    """Divide what grew between cells: pending time is the newest, the rest is in proportion."""
    left_ns = {column: ns for column, ns in enumerate(grown) if ns}
    pending_ns = left_ns.pop(PENDING, 0)
    if len(cells) == 1:  # as in most ticks
        yield cells[0][0], {**left_ns, PENDING: pending_ns} if pending_ns else left_ns
        return
    rooms_ns = [max(0, observed_ns - busy_ns) for _, observed_ns, busy_ns in cells]
    pendings_ns = [0] * len(cells)
    for at in reversed(range(len(cells))):
        pendings_ns[at] = pending_ns if at == 0 else min(rooms_ns[at], pending_ns)
        rooms_ns[at] = max(0, rooms_ns[at] - pendings_ns[at])
        pending_ns -= pendings_ns[at]
    room_ns, whole_busy_ns = sum(rooms_ns), sum(busy_ns for _, _, busy_ns in cells)
    for at, (start_s, _, busy_ns) in enumerate(cells):
        amounts = {PENDING: pendings_ns[at]}
        for column, ns in left_ns.items():
            part_ns, of_ns = (busy_ns, whole_busy_ns) if column == BUSY else (rooms_ns[at], room_ns)
            is_last = at == len(cells) - 1
            amounts[column] = ns if is_last else ns * part_ns // of_ns if of_ns else 0
            left_ns[column] -= amounts[column]
        whole_busy_ns, room_ns = whole_busy_ns - busy_ns, room_ns - rooms_ns[at]
        yield start_s, amounts
