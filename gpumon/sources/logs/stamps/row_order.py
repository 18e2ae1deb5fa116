"""The rows of a log in order of time, GPU by GPU, or a refusal where they have no order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby, islice, pairwise
from operator import gt, itemgetter
from statistics import median_low
from typing import Final

from gpumon.core.clock import NS_PER_S, seconds
from gpumon.core.wording import counted, plainly
from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.gpu_log import GpuLog
from gpumon.sources.logs.log_sample import BEST_QUERY, LogFacts, LogSample, RowColumns

WINDOW_ROWS: Final = 64
"""Rows of one GPU by which a row may come late and is still put back in its place."""
_BLOCK_ROWS: Final = 1_024
_CLOCK_TIMES: Final = 3
"""Different times that show what a clock counts: two may happen to be full minutes."""
_MAX_DISORDER: Final = 0.2
"""Share of the rows that may be dropped because other rows have their time, or a later one."""
_MIN_ROWS: Final = 10
"""With fewer rows, one late row would be a large share."""
_MIN_PERIOD_NS: Final = NS_PER_S // 50
"""Rows closer than this are no log: a driver averages over at least a sixth of a second."""
_RESOLUTIONS_NS: Final = (60 * NS_PER_S, NS_PER_S)
"""Resolutions of coarse clocks: spreadsheets store minutes, `date +%s` seconds."""
_MAX_ROWS_A_STAMP: Final = 1_000
"""With more rows at one time, the clock stands still."""
_CROWD: Final = 1.3
"""Mean rows a stamp from which on the clock is coarse; below, equal rows are copies."""
_stamp_of: Final = itemgetter(1)


class OrderedLog:
    """A reader whose rows rise in time, GPU by GPU, whatever their order in the file.

    A row that comes up to ``WINDOW_ROWS`` rows of its GPU late is put back, rows that share a
    second are spread over it, copies are dropped. Where the clock was set back, rows are dropped
    until it is later than before. Notes say what was done; dropped rows count as skipped.

    Args:
        notes: Come before all others.
    """

    def __init__(self, reader: GpuLog, *, name: str, notes: Sequence[str] = ()) -> None:
        self._reader = reader
        self._name = name
        self._notes = notes
        self._gpus: dict[int, _GpuOrder] = {}
        self._equal = _EqualStamps()
        self._row_count = 0

    def blocks(self) -> Iterator[list[RowColumns]]:
        """Yield the rows as columns, some hundred rows at a time.

        Raises:
            UnreadableLogError: As the reader; and where there is no row, the time stands still, or
                the rows are those of several logs.
        """
        rows = iter(self._reader.samples())
        wanted = _BLOCK_ROWS
        while block := list(islice(rows, wanted)):
            self._row_count += len(block)
            yield self._in_order(block, is_end=False)
            wanted = max(_BLOCK_ROWS, 2 * WINDOW_ROWS * len(self._gpus))
        if not self._gpus:
            notes = " ".join(self._reader.facts().notes)
            text = f"no line has both a GPU and a time. {notes}".rstrip()
            raise UnreadableLogError(f"{self._name}: {text}")
        yield self._in_order((), is_end=True)
        self._refuse_standing_time()
        self._refuse_disorder()

    def facts(self) -> LogFacts:
        """The reader's facts, with what was done to its rows."""
        facts = self._reader.facts()
        dropped, notes = _order_notes(self._gpus.values(), self._equal)
        return replace(
            facts,
            skipped_lines=facts.skipped_lines + dropped,
            notes=(*self._notes, *facts.notes, *notes),
        )

    def _in_order(self, block: Sequence[LogSample], *, is_end: bool) -> list[RowColumns]:
        rows_of: dict[int, list[LogSample]] = {gpu: [] for gpu in self._gpus}
        for row in block:
            rows_of.setdefault(row[0], []).append(row)
        ready: list[RowColumns] = []
        for position, rows in rows_of.items():
            gpu = self._gpus.setdefault(position, _GpuOrder())
            in_order = gpu.ingest(rows, self._equal, is_end=is_end)
            if in_order:
                _, *columns = zip(*in_order, strict=True)
                ready.append(RowColumns(position, *columns))
        return ready

    def _refuse_disorder(self) -> None:
        """Refuse rows whose times are not those of one log.

        Where the columns were guessed by their shape, the times must confirm the guess: few rows of
        a GPU have the same one.
        """
        rows, equal = self._row_count, self._equal
        if rows < _MIN_ROWS:
            return
        back = sum(gpu.dropped for gpu in self._gpus.values())
        if back > _MAX_DISORDER * rows:
            raise UnreadableLogError(
                f"{self._name}: the time runs back: {back:,} of {rows:,} rows are earlier than "
                "rows above them; sort the rows by time, the oldest first, or analyze each part by "
                "itself, cut where the clock was set back, as when summer time ends"
            )
        if not self._reader.facts().is_guessed:
            return
        is_crowd = equal.spread > _MAX_DISORDER * rows and equal.period_ns < _MIN_PERIOD_NS
        if is_crowd or back + equal.contradictions > _MAX_DISORDER * (rows - equal.copies):
            count = equal.spread if is_crowd else back + equal.contradictions
            raise UnreadableLogError(
                f"{self._name}: no header, and {count:,} of {rows:,} rows have a time that other "
                "rows have: these are several logs, or it is no log of a GPU; give each log by "
                "itself, or choose the column with --column utilization.gpu=N"
            )

    def _refuse_standing_time(self) -> None:
        rows = self._row_count
        if rows > 2 * len(self._gpus) and not any(gpu.has_moved for gpu in self._gpus.values()):
            raise UnreadableLogError(
                f"{self._name}: time stands still: all {rows:,} rows have the same time; log the "
                f"time of each row, as {BEST_QUERY} does, or no time, and use --period"
            )


class _GpuOrder:
    """Sorts one GPU's rows, and holds the newest ``WINDOW_ROWS`` back.

    Attributes:
        late: Rows that came after a later one and were put back.
        dropped: Rows that came too late for that, or after the clock was set back.
        has_moved: Whether two rows have different times.
    """

    def __init__(self) -> None:
        self.late = self.dropped = 0
        self.has_moved = False
        self._pending: list[LogSample] = []  # sorted
        self._newest_ns = self._floor_ns = -1
        self._until_ns: int | None = None  # of the rows that were returned, once they rise
        self._written_until_ns = -1  # the same, in the stamps of the file

    def ingest(
        self, rows: Sequence[LogSample], equal: _EqualStamps, *, is_end: bool
    ) -> list[LogSample]:
        """Add the next rows of the file; return those, in order, that no later row precedes."""
        self._place(rows)
        ready_count = self._count_ready(0 if is_end else WINDOW_ROWS)
        if not is_end and self._has_yet_to_show_its_clock(ready_count):
            ready_count = 0
        ready, self._pending = self._pending[:ready_count], self._pending[ready_count:]
        until_ns = self._until_ns
        if ready and until_ns is not None and ready[0].stamp_ns <= until_ns:
            in_time = [row for row in ready if row.stamp_ns > until_ns]
            equal_count = sum(row.stamp_ns == self._written_until_ns for row in ready)
            equal.contradictions += equal_count
            self.dropped += len(ready) - len(in_time) - equal_count
            ready = in_time
        if ready:
            ready_until_ns = ready[-1].stamp_ns
            ready = equal.made_to_rise(ready)
            self._written_until_ns = ready_until_ns
            self._until_ns = ready[-1].stamp_ns
        return ready

    def _place(self, rows: Sequence[LogSample]) -> None:
        if not rows:
            return
        stamps_ns = list(map(_stamp_of, rows))
        self.has_moved = self.has_moved or any(at_ns != stamps_ns[0] for at_ns in stamps_ns)
        if stamps_ns[0] >= self._newest_ns and all(a <= b for a, b in pairwise(stamps_ns)):
            self._pending += rows
            self._newest_ns = stamps_ns[-1]
        else:
            for at in range(0, len(rows), WINDOW_ROWS):
                self._place_late(rows[at : at + WINDOW_ROWS])
        if len(self._pending) > WINDOW_ROWS:
            self._floor_ns = self._pending[-WINDOW_ROWS - 1].stamp_ns

    def _place_late(self, rows: Sequence[LogSample]) -> None:
        """Put rows that are not in order in their place, but for those that come too late."""
        first_ns = max(self._floor_ns, self._written_until_ns + 1)
        in_time = [row for row in rows if row.stamp_ns >= first_ns]
        self.dropped += len(rows) - len(in_time)
        if not in_time:
            return
        stamps_ns = list(map(_stamp_of, in_time))
        newest_ns = list(accumulate((self._newest_ns, *stamps_ns), max))
        self.late += sum(map(gt, newest_ns, stamps_ns))
        self._newest_ns = newest_ns[-1]
        self._pending = sorted((*self._pending, *in_time), key=_stamp_of)
        if len(self._pending) > WINDOW_ROWS:
            self._floor_ns = self._pending[-WINDOW_ROWS - 1].stamp_ns

    def _has_yet_to_show_its_clock(self, ready_count: int) -> bool:
        """Return whether the first rows have too few times, and not too many wait for more."""
        if self._until_ns is not None or len(self._pending) > _CLOCK_TIMES * _MAX_ROWS_A_STAMP:
            return False
        return len({row.stamp_ns for row in self._pending[:ready_count]}) < _CLOCK_TIMES

    def _count_ready(self, held_back: int) -> int:
        """Return how many pending rows are ready; rows with equal times stay together."""
        pending = self._pending
        count = max(0, len(pending) - held_back)
        while 0 < count < len(pending) and pending[count][1] == pending[count - 1][1]:
            count -= 1
        if not count and len(pending) > _MAX_ROWS_A_STAMP + WINDOW_ROWS:
            return len(pending)  # the clock stands still: waiting for it would take all memory
        return count


def _order_notes(gpus: Collection[_GpuOrder], equal: _EqualStamps) -> tuple[int, tuple[str, ...]]:
    """Return how many rows were dropped, and the notes on order and clock."""
    notes: list[str] = []
    late = sum(gpu.late for gpu in gpus)
    if late:
        notes.append(f"Put {counted(late, 'row', 'rows')} that came late back in order.")
    if equal.spread:
        notes.append(
            f"{counted(equal.spread, 'row', 'rows')} share their time with others, because the "
            "clock of the log is coarse: spread evenly, one every "
            f"{plainly(seconds(equal.period_ns))} s."
        )
    dropped = (
        (equal.contradictions, "with a time that another row has"),
        (
            sum(gpu.dropped for gpu in gpus),
            f"that came more than {WINDOW_ROWS} rows late, as where summer time ends or a clock is "
            "set back",
        ),
    )
    if equal.copies:
        notes.append(f"Dropped {counted(equal.copies, 'duplicate row', 'duplicate rows')}.")
    notes += [f"Dropped {counted(count, 'row', 'rows')} {why}." for count, why in dropped if count]
    return equal.copies + sum(count for count, _ in dropped), tuple(notes)


@dataclass(slots=True)
class _EqualStamps:
    """Handles rows of a log that share a stamp, and counts them.

    Attributes:
        copies: Dropped because the same row was there.
        contradictions: Dropped because another row has that time.
        spread: Given times of their own.
    """

    copies: int = 0
    contradictions: int = 0
    spread: int = 0
    _spread_rows: Counter[int] = field(default_factory=Counter)
    _seen_resolution_ns: int = NS_PER_S
    _seen_rows: int | None = None

    @property
    def period_ns(self) -> int:
        """Most frequent time between two rows that were spread; 0 without any."""
        return max(self._spread_rows, key=self._spread_rows.__getitem__, default=0)

    def made_to_rise(self, rows: Sequence[LogSample]) -> list[LogSample]:
        """Return the rows of one GPU, given by stamp with all of each stamp, with stamps that rise.

        Of a coarse clock, the rows of a stamp are spread over the time until the next one.
        """
        if len(set(map(_stamp_of, rows))) == len(rows):
            return list(rows)
        runs = [list(run) for _, run in groupby(rows, key=_stamp_of)]
        resolution_ns = self._resolution_ns([run[0].stamp_ns for run in runs])
        counts = [len(run) for run in runs if len(run) <= _MAX_ROWS_A_STAMP]
        is_crowd = sum(counts) >= _CROWD * max(1, len(counts))
        usual = self._usual_rows(counts) if is_crowd and resolution_ns else None
        return [row for run in runs for row in self._apart(run, resolution_ns, usual)]

    def _resolution_ns(self, stamps_ns: Sequence[int]) -> int:
        """Return what the clock counts; 0 if it is fine enough.

        Two stamps may happen to be full minutes: then the previous resolution counts.
        """
        found_ns = next(
            (unit_ns for unit_ns in _RESOLUTIONS_NS if not any(at % unit_ns for at in stamps_ns)), 0
        )
        if len(stamps_ns) <= 2:
            return min(found_ns, self._seen_resolution_ns)
        self._seen_resolution_ns = found_ns
        return found_ns

    def _usual_rows(self, counts: Sequence[int]) -> int:
        """Return rows a stamp, without the first and last stamp, which may lack some."""
        if len(counts) <= 2:
            return self._seen_rows or median_low(counts)
        self._seen_rows = median_low(counts[1:-1])
        return self._seen_rows

    def _apart(
        self, run: list[LogSample], resolution_ns: int, usual: int | None
    ) -> list[LogSample]:
        """Return the rows of one stamp with stamps of their own; drop what cannot have one.

        ``usual``: rows a stamp, of a coarse clock; ``None``: equal rows are copies.
        """
        is_standing = len(run) > _MAX_ROWS_A_STAMP
        if not (is_standing or usual):
            different = list(dict.fromkeys(run))
            self.copies += len(run) - len(different)
            run = different
        if is_standing or not resolution_ns:
            self.contradictions += len(run) - 1
            return run[:1]
        step_ns = resolution_ns // max(len(run), usual or 0)
        if len(run) > 1:
            self.spread += len(run)
            self._spread_rows[step_ns] += len(run)
        return [row._replace(stamp_ns=row.stamp_ns + step_ns * at) for at, row in enumerate(run)]
