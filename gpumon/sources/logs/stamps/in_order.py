"""The rows of any log with stamps that rise: put back in order, told apart, on one clock.

Rows that are not those of one log in the order of time: what no clock does.

What was done to the rows of a log so that they rise, in sentences.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from operator import itemgetter, le, lt
from typing import Final

from gpumon.core.clock import NS_PER_S, seconds
from gpumon.core.wording import plainly
from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.log_sample import LogFacts, LogReader, LogSample
from gpumon.sources.logs.stamps.clock_unfolding import HOUR_NS, WINDOW_ROWS, Turn
from gpumon.sources.logs.stamps.gpu_order import GpuOrder
from gpumon.sources.logs.stamps.shared_stamps import SharedStamps

_MOST_SHARE: Final = 0.2
"""Share of the rows that may be out of order: a column has its shape in the others, too."""
_MOST_SET_BACK: Final = 0.5
"""Share of the rows that may be of time which a clock tells again, set back more than once."""
_FEWEST_ROWS: Final = 10
"""Of fewer rows nothing is said: one late row would be a share of them."""
_QUICKEST_NS: Final = NS_PER_S // 50
"""Nobody logs a GPU more often: its driver looks back over a sixth of a second at least."""
_WAY_OUT: Final = (
    "give each log by itself, or say which column is meant: --column utilization.gpu=N"
)


def refuse_disorder(
    tracks: Collection[GpuOrder], shared: SharedStamps, rows: int, *, name: str, is_guessed: bool
) -> None:
    """Refuse a log whose stamps are not those of one log.

    Where a header or the user says what the columns are, time that is told again counts once.
    Where they were guessed by their shape, the stamps have to bear the guess out: those of one log
    rise, but for a clock that is set, and few rows of a GPU have the same one.

    Args:
        tracks: The GPUs of the log, which is over.
        shared: What was done with rows of the same stamp.
        rows: How many there were.
        name: What to call the log in sentences.
        is_guessed: Whether the columns were guessed.

    Raises:
        UnreadableLogError: They are not.
    """
    if rows < _FEWEST_ROWS:
        return
    turned_back = sum(track.unfolding.turned_back for track in tracks)
    if turned_back > _MOST_SHARE * rows:
        raise UnreadableLogError(
            f"{name}: the rows run back in time {turned_back:,} times in {rows:,} rows: sort them "
            "by their time, the oldest first"
        )
    again = sum(track.unfolding.walked_again for track in tracks)
    if again > _MOST_SET_BACK * rows:
        raise UnreadableLogError(
            f"{name}: the time runs back {turned_back:,} times, and {again:,} of {rows:,} rows are "
            "of a time that other rows had told of: these are several logs; give each by itself"
        )
    if not is_guessed:
        return
    again += sum(track.unfolding.told_twice for track in tracks) + shared.contradictions
    if again > _MOST_SHARE * (rows - shared.copies):
        raise UnreadableLogError(
            f"{name}: no header, and {again:,} of {rows:,} rows are of a time that other rows had "
            f"told of: these are several logs, or it is no log of a GPU; {_WAY_OUT}"
        )
    if shared.spread > _MOST_SHARE * rows and shared.period_ns < _QUICKEST_NS:
        raise UnreadableLogError(
            f"{name}: no header, and {shared.spread:,} of {rows:,} rows share their time with "
            f"more than {NS_PER_S // _QUICKEST_NS} others a second: these are several logs, or it "
            f"is no log of a GPU; {_WAY_OUT}"
        )


_TURNED: Final = {
    Turn.SUMMER_BEGAN: "The clock was put forward by {span} (summer time) and the rows kept their "
    "pace: no time is missing there.",
    Turn.SUMMER_ENDED: "The clock was put back by {span} (summer time) and the rows kept their "
    "pace: read on as if it had not been.",
    Turn.SET_BACK: "The clock was set back by {span}: read on as if it had not been.",
    Turn.EARLIER_PART: "The log goes back by {span}, to a time before its first row: read on as if "
    "that had come next.",
}


def order_notes(tracks: Collection[GpuOrder], shared: SharedStamps) -> tuple[int, tuple[str, ...]]:
    """How many rows were dropped, and the sentences about them and about the clock."""
    turns: dict[tuple[Turn, str], int] = {}
    for track in tracks:
        for (turn, span_ns), count in track.unfolding.turns.items():
            key = turn, _span(span_ns)
            turns[key] = max(turns.get(key, 0), count)
    notes = [
        _TURNED[turn].format(span=span) + (f" ({count} times)" if count > 1 else "")
        for (turn, span), count in turns.items()
    ]
    late = sum(track.unfolding.late for track in tracks)
    too_late = sum(track.too_late for track in tracks)
    if late > too_late:
        notes.append(f"Put {_rows(late - too_late)} that came late back in order.")
    if shared.spread:
        notes.append(
            f"{_rows(shared.spread)} share their time with others, which the log writes too "
            f"coarsely: spread evenly, one every {plainly(seconds(shared.period_ns))} s."
        )
    told_twice = sum(track.unfolding.told_twice for track in tracks)
    strays = sum(track.unfolding.strays for track in tracks)
    dropped = (
        (shared.copies, "there twice"),
        (shared.contradictions, "of a moment that another row has"),
        (shared.standing, "while the clock stood still"),
        (too_late, f"that came more than {WINDOW_ROWS} rows late"),
        (strays, "whose time is far from those of the rows around"),
        (told_twice, "of a time that the log had told of before: it counts once"),
    )
    notes += [f"Dropped {_rows(count)} {why}." for count, why in dropped if count]
    return sum(count for count, _ in dropped), tuple(notes)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"


def _span(span_ns: int) -> str:
    """A length of time in its largest whole unit.

    >>> _span(3_600_000_000_000), _span(1_800_000_000_000), _span(2_500_000_000)
    ('1 h', '30 min', '2.5 s')
    """
    span_s = seconds(span_ns)
    if span_s >= 3600 and span_s % 3600 == 0:
        return f"{span_s / 3600:g} h"
    if span_s >= 60 and span_s % 60 == 0:
        return f"{span_s / 60:g} min"
    return f"{span_s:,.4g} s" if span_s < 10_000 else f"{span_s:,.0f} s"


_BLOCK_ROWS: Final = 1_024
_MANY_TURNS: Final = 256
"""A clock that ran back more often costs much to follow: it is refused before the log's end."""
_NOTED_ROWS: Final = 16
"""Rows of a GPU from which the rhythm before a turn of the clock is known."""
_gpu_of: Final = itemgetter(0)
_stamp_of: Final = itemgetter(1)
_gpu_and_stamp_of: Final = itemgetter(0, 1)


class LogInOrder:
    """A reader whose rows rise in time, GPU by GPU, whatever the file's do.

    Rows that come up to ``WINDOW_ROWS`` rows of their GPU late are put back,
    rows that share a second are spread over it, copies are dropped, and
    where the log's clock was put back or forward it is read on. What was
    done is said in the notes, what was dropped is counted as skipped.

    Args:
        reader: The log as its format gives it.
        name: What to call it in sentences.
    """

    def __init__(self, reader: LogReader, *, name: str) -> None:
        self._reader = reader
        self._name = name
        self._tracks: dict[int, GpuOrder] = {}
        self._held: list[LogSample] = []
        self._checked = 0  # of the held rows, those that need nothing
        self._has_summer_time = False
        self._shared = SharedStamps()
        self._taken = 0

    def samples(self) -> Iterator[LogSample]:
        """As the reader's, with stamps that rise for every GPU.

        Raises:
            UnreadableLogError: As the reader; where there is no row, and where time stands still.
        """
        rows = iter(self._reader.samples())
        wanted = _BLOCK_ROWS
        while block := list(islice(rows, wanted)):
            if not self._tracks:
                clock = self._reader.facts().clock
                self._has_summer_time = clock.is_wall and clock.utc_offset_s is None
            self._held += block
            self._taken += len(block)
            self._meet_gpus(block)
            window_rows = WINDOW_ROWS * len(self._tracks)
            wanted = max(_BLOCK_ROWS, 2 * window_rows)
            yield from self._ready(window_rows)
            if any(track.unfolding.turned_back > _MANY_TURNS for track in self._tracks.values()):
                self.refuse_disorder()
        if not self._tracks:
            raise self._rowless()
        yield from self._ready(0)
        self._refuse_standing_time()

    def facts(self) -> LogFacts:
        """The reader's facts, with what was done to its rows."""
        facts = self._reader.facts()
        dropped, notes = order_notes(self._tracks.values(), self._shared)
        return replace(
            facts,
            skipped_lines=facts.skipped_lines + dropped,
            notes=(*facts.notes, *notes),
        )

    def refuse_disorder(self) -> None:
        """Refuse rows that are not those of one log. To be asked once ``samples`` is exhausted.

        Raises:
            UnreadableLogError: They are not; says why.
        """
        refuse_disorder(
            self._tracks.values(),
            self._shared,
            self._taken,
            name=self._name,
            is_guessed=self._reader.facts().is_guessed,
        )

    def _meet_gpus(self, rows: Sequence[LogSample]) -> None:
        for gpu in set(map(_gpu_of, rows)) - self._tracks.keys():
            self._tracks[gpu] = GpuOrder(has_summer_time=self._has_summer_time)

    def _ready(self, window_rows: int) -> list[LogSample]:
        """Rows that no later one can precede; those that one can are held back.

        Args:
            window_rows: How many of the last rows that are; 0 at the end.
        """
        tracks = self._tracks.values()
        if all(track.is_plain for track in tracks):
            rows = sorted((row for track in tracks for row in track.pending), key=_stamp_of)
            rows += self._held
            if self._needs_nothing(rows[self._first_unchecked(rows) :]):
                ready = rows[: len(rows) - window_rows] if window_rows < len(rows) else []
                self._held = rows[len(ready) :]
                self._checked = len(self._held)
                self._note_plain(ready)
                return ready
        self._checked = 0
        return self._put_in_order(is_end=not window_rows)

    def _first_unchecked(self, rows: Sequence[LogSample]) -> int:
        """Where to look from: at the last row that was looked at, and those of its moment."""
        at = self._checked
        while at and rows[at - 1].stamp_ns == rows[self._checked - 1].stamp_ns:
            at -= 1
        return at

    def _needs_nothing(self, rows: Sequence[LogSample]) -> bool:
        """Whether rows can be handed on as they are: the usual case, seen at one glance."""
        if not rows:
            return True
        stamps_ns = list(map(_stamp_of, rows))
        if not all(map(lt, stamps_ns, islice(stamps_ns, 1, None))):
            # Rows of several GPUs may have the same stamp, and share none with their own.
            if len(self._tracks) == 1 or not all(map(le, stamps_ns, islice(stamps_ns, 1, None))):
                return False
            if len(set(map(_gpu_and_stamp_of, rows))) != len(rows):
                return False
        first_ns = stamps_ns[0]
        if any(track.until_ns is not None and track.until_ns >= first_ns
               for track in self._tracks.values()):  # fmt: skip
            return False
        return not self._has_summer_time or not _skips_half_an_hour(stamps_ns)

    def _note_plain(self, rows: Sequence[LogSample]) -> None:
        tracks = self._tracks
        is_first = any(track.until_ns is None for track in tracks.values())
        gpus = set(map(_gpu_of, rows))
        newest = rows if is_first else rows[-_NOTED_ROWS * len(tracks) :]
        of_gpu: dict[int, list[int]] = {}
        for gpu, stamp_ns, _, _ in newest:
            of_gpu.setdefault(gpu, []).append(stamp_ns)
        seldom = gpus - of_gpu.keys()
        for gpu, stamp_ns, _, _ in rows if seldom else ():
            if gpu in seldom:
                of_gpu.setdefault(gpu, []).append(stamp_ns)
        for gpu, track in tracks.items():
            track.pending.clear()
            if gpu in of_gpu:
                track.note_plain(of_gpu[gpu])

    def _put_in_order(self, *, is_end: bool) -> list[LogSample]:
        of_gpu: dict[int, list[LogSample]] = {}
        for row in self._held:
            of_gpu.setdefault(row.gpu, []).append(row)
        ready: list[LogSample] = []
        self._held = []
        for gpu, track in self._tracks.items():
            rows = of_gpu.get(gpu, [])
            undecided = 0 if is_end else min(WINDOW_ROWS, len(rows))
            ready += track.put_in_order(rows, undecided, self._shared)
            self._held += rows[len(rows) - undecided :]
        ready.sort(key=_stamp_of)
        return ready

    def _rowless(self) -> UnreadableLogError:
        said = " ".join(("no line of it tells of a GPU at a moment.", *self._reader.facts().notes))
        return UnreadableLogError(f"{self._name}: {said}")

    def _refuse_standing_time(self) -> None:
        rows = sum(track.rows for track in self._tracks.values())
        stands = all(not track.moved for track in self._tracks.values())
        if stands and rows > 2 * len(self._tracks):
            raise UnreadableLogError(
                f"{self._name}: time stands still: all {rows:,} rows are of the same moment; log "
                "the time of each row, as `nvidia-smi --query-gpu=timestamp,index,utilization.gpu "
                "--format=csv -l 1` does, or none at all: then say --period"
            )


def _skips_half_an_hour(stamps_ns: Sequence[int]) -> bool:
    """Whether sorted stamps leave out half an hour that begins as an hour does."""
    hour_ns = (stamps_ns[0] // HOUR_NS + 1) * HOUR_NS
    while hour_ns <= stamps_ns[-1]:
        at = bisect_left(stamps_ns, hour_ns)
        if stamps_ns[at] - stamps_ns[at - 1] >= HOUR_NS // 2:
            return True
        hour_ns = (stamps_ns[at] // HOUR_NS + 1) * HOUR_NS
    return False
