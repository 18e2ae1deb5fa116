"""The rows of any log with stamps that rise, and what is said of it: notes, or a refusal."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice, repeat
from operator import itemgetter
from typing import Final

from gpumon.core.clock import NS_PER_S, seconds
from gpumon.core.wording import counted, plainly
from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.gpu_log import GpuLog
from gpumon.sources.logs.log_sample import BEST_QUERY, LogFacts, LogSample, RowColumns
from gpumon.sources.logs.stamps.equal_stamps import MOST_ROWS_A_STAMP, EqualStamps
from gpumon.sources.logs.stamps.forward_clock import WINDOW_ROWS, ForwardClock

_BLOCK_ROWS: Final = 1_024
_TELLING_MOMENTS: Final = 3
"""What a clock counts is told by so many: two may happen to be whole minutes."""
_MANY_TURNS: Final = 256
"""A clock that ran back more often costs much to follow: it is refused before the log's end."""
_MOST_SHARE: Final = 0.2
"""Share of the rows that may be out of order: a column has its shape in the others, too."""
_MOST_TOLD_AGAIN: Final = 0.5
"""Share of the rows that may be dropped because time has run back."""
_FEWEST_ROWS: Final = 10
"""Of fewer rows nothing is said: one late row would be a share of them."""
_QUICKEST_NS: Final = NS_PER_S // 50
"""Nobody logs a GPU more often: its driver looks back over a sixth of a second at least."""
_WAY_OUT: Final = (
    "give each log by itself, or say which column is meant: --column utilization.gpu=N"
)
_stamp_of: Final = itemgetter(1)


class LogInOrder:
    """A reader whose rows rise in time, GPU by GPU, whatever the file's do.

    Rows that come up to ``WINDOW_ROWS`` rows of their GPU late are put back,
    rows that share a second are spread over it, and copies are dropped. Where time runs back, as
    at the end of summer time, rows are dropped until it has come further than before. What was
    done is said in the notes, what was dropped is counted as skipped.

    Args:
        notes: What is to be said before all else.
    """

    def __init__(self, reader: GpuLog, *, name: str, notes: Sequence[str] = ()) -> None:
        self._reader = reader
        self._name = name
        self._notes = notes
        self._gpus: dict[int, _GpuOrder] = {}
        self._equal = EqualStamps()
        self._taken = 0

    def samples(self) -> Iterator[LogSample]:
        """As the reader's, with stamps that rise for every GPU.

        Raises:
            UnreadableLogError: As ``blocks``.
        """
        for block in self.blocks():
            samples = chain.from_iterable(
                zip(repeat(rows.gpu), *rows[1:], strict=False) for rows in block
            )
            yield from sorted(map(LogSample._make, samples), key=_stamp_of)

    def blocks(self) -> Iterator[list[RowColumns]]:
        """The same rows in fewer steps: what comes next of each GPU.

        Raises:
            UnreadableLogError: As the reader; where there is no row, where time stands still,
                and where the rows turn out to be those of no log or of several.
        """
        rows = iter(self._reader.samples())
        wanted = _BLOCK_ROWS
        while block := list(islice(rows, wanted)):
            self._taken += len(block)
            yield self._put_in_order(block, is_end=False)
            wanted = max(_BLOCK_ROWS, 2 * WINDOW_ROWS * len(self._gpus))
            if any(gpu.clock.turned_back > _MANY_TURNS for gpu in self._gpus.values()):
                self._refuse_disorder()
        if not self._gpus:
            notes = " ".join(self._reader.facts().notes)
            said = f"no line of it tells of a GPU at a moment. {notes}".rstrip()
            raise UnreadableLogError(f"{self._name}: {said}")
        yield self._put_in_order((), is_end=True)
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

    def _put_in_order(self, block: Sequence[LogSample], *, is_end: bool) -> list[RowColumns]:
        """Rows that no later one can precede; those that one can are held back."""
        for row in block:
            gpu = self._gpus.get(row[0])
            if gpu is None:
                gpu = self._gpus[row[0]] = _GpuOrder()
            gpu.undecided.append(row)
        ready: list[RowColumns] = []
        for position, gpu in self._gpus.items():
            rows = gpu.put_in_order(self._equal, is_end=is_end)
            if rows:
                _, *columns = zip(*rows, strict=True)
                ready.append(RowColumns(position, *columns))
        return ready

    def _refuse_disorder(self) -> None:
        """Refuse rows whose stamps are not those of one log.

        Where a header or the user says what the columns are, time that is told again counts once.
        Where they were guessed by their shape, the stamps have to bear the guess out: those of one
        log rise, but for a clock that is set, and few rows of a GPU have the same one.
        """
        rows, name, equal = self._taken, self._name, self._equal
        if rows < _FEWEST_ROWS:
            return
        clocks = [gpu.clock for gpu in self._gpus.values()]
        turned_back = sum(clock.turned_back for clock in clocks)
        if turned_back > _MOST_SHARE * rows:
            raise UnreadableLogError(
                f"{name}: the rows run back in time {turned_back:,} times in {rows:,} rows: sort "
                "them by their time, the oldest first"
            )
        again = sum(clock.told_again for clock in clocks)
        if again > _MOST_TOLD_AGAIN * rows:
            raise UnreadableLogError(
                f"{name}: the time runs back, and {again:,} of {rows:,} rows are of a time before: "
                "sort the rows by their time, the oldest first, or give each log by itself, cut "
                "where summer time ended or the clock was set"
            )
        if not self._reader.facts().is_guessed:
            return
        again += equal.contradictions
        is_crowd = equal.spread > _MOST_SHARE * rows and equal.period_ns < _QUICKEST_NS
        if is_crowd or again > _MOST_SHARE * (rows - equal.copies):
            count = equal.spread if is_crowd else again
            raise UnreadableLogError(
                f"{name}: no header, and {count:,} of {rows:,} rows are of a time that other rows "
                f"had told of: these are several logs, or it is no log of a GPU; {_WAY_OUT}"
            )

    def _refuse_standing_time(self) -> None:
        rows = self._taken
        if rows > 2 * len(self._gpus) and not any(gpu.moved for gpu in self._gpus.values()):
            raise UnreadableLogError(
                f"{self._name}: time stands still: all {rows:,} rows are of the same moment; log "
                f"the time of each row, as {BEST_QUERY} does, or none at all: then say --period"
            )


class _GpuOrder:
    """Puts one GPU's rows in order, a window of them held back.

    Attributes:
        undecided: Rows as written, of which the last show whether the clock turned before them.
        too_late: Rows that belong before ones that were handed on, dropped.
        moved: Whether two of them had different stamps.
    """

    def __init__(self) -> None:
        self.clock = ForwardClock()
        self.undecided: list[LogSample] = []
        self.too_late = 0
        self.moved = False
        self._pending: list[LogSample] = []  # on the forward clock; a late row may yet precede them
        self._until_ns: int | None = None
        self._moment_ns: int | None = None  # of the last row that was handed on, as written
        self._first_ns: int | None = None

    def put_in_order(self, equal: EqualStamps, *, is_end: bool) -> list[LogSample]:
        """Rows in order that no later one can precede."""
        self._place(0 if is_end else WINDOW_ROWS)
        cut = self._cut(0 if is_end else WINDOW_ROWS)
        if not is_end and self._has_yet_to_tell_its_clock(cut):
            cut = 0
        ready, self._pending = self._pending[:cut], self._pending[cut:]
        if ready and self._until_ns is not None and ready[0].stamp_ns <= self._until_ns:
            in_time = [row for row in ready if row.stamp_ns > self._until_ns]
            self.too_late += len(ready) - len(in_time)
            ready = in_time
        if ready:
            before_ns, self._moment_ns = self._moment_ns, ready[-1].stamp_ns
            ready = equal.made_to_rise(ready, before_ns)
            self._until_ns = ready[-1].stamp_ns
        return ready

    def _place(self, window_rows: int) -> None:
        """Put the rows that are decided on, all but the last, on the forward clock."""
        rows = self.undecided
        count = max(0, len(rows) - window_rows)
        stamps_ns = list(map(_stamp_of, rows))
        if count and self._first_ns is None:
            self._first_ns = stamps_ns[0]
        self.moved = self.moved or any(at_ns != self._first_ns for at_ns in stamps_ns[:count])
        self._pending += [
            row if stamp_ns == row[1] else row._replace(stamp_ns=stamp_ns)
            for stamp_ns, row in zip(self.clock.read_on(stamps_ns, count), rows, strict=False)
            if stamp_ns is not None
        ]
        self._pending.sort(key=_stamp_of)
        del rows[:count]

    def _has_yet_to_tell_its_clock(self, cut: int) -> bool:
        """Whether the first rows are of too few moments; more are not waited for without end."""
        if self._until_ns is not None or len(self._pending) > _TELLING_MOMENTS * MOST_ROWS_A_STAMP:
            return False
        return len({row.stamp_ns for row in self._pending[:cut]}) < _TELLING_MOMENTS

    def _cut(self, window_rows: int) -> int:
        """How many pending rows are ready: never some of a stamp and not all."""
        pending = self._pending
        cut = max(0, len(pending) - window_rows)
        while 0 < cut < len(pending) and pending[cut][1] == pending[cut - 1][1]:
            cut -= 1
        if not cut and len(pending) > MOST_ROWS_A_STAMP + WINDOW_ROWS:
            return len(pending)  # the clock stands still: waiting for it would take all memory
        return cut


def _order_notes(gpus: Collection[_GpuOrder], equal: EqualStamps) -> tuple[int, tuple[str, ...]]:
    """How many rows were dropped, and the sentences about them and about the clock."""
    notes: list[str] = []
    late = sum(gpu.clock.late for gpu in gpus)
    too_late = sum(gpu.too_late for gpu in gpus)
    if late > too_late:
        notes.append(f"Put {counted(late - too_late, 'row', 'rows')} that came late back in order.")
    if equal.spread:
        notes.append(
            f"{counted(equal.spread, 'row', 'rows')} share their time with others, which the log "
            f"writes too coarsely: spread evenly, one every {plainly(seconds(equal.period_ns))} s."
        )
    told_again = sum(gpu.clock.told_again for gpu in gpus)
    strays = sum(gpu.clock.strays for gpu in gpus)
    dropped = (
        (equal.copies, "there twice"),
        (equal.contradictions, "of a moment that another row has"),
        (equal.standing, "while the clock stood still"),
        (too_late, f"that came more than {WINDOW_ROWS} rows late"),
        (strays, "whose time is far from those of the rows around"),
        (
            told_again,
            "where the time runs back (as summer time ends or a clock is set), until it had come "
            "further than before",
        ),
    )
    notes += [f"Dropped {counted(count, 'row', 'rows')} {why}." for count, why in dropped if count]
    return sum(count for count, _ in dropped), tuple(notes)
