"""The rows of any log with stamps that rise: put back in order, told apart, on one clock."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from operator import itemgetter, le, lt
from typing import Final

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.clock_unfolding import HOUR_NS, WINDOW_ROWS
from gpumon.sources.logs.disorder import refuse_disorder
from gpumon.sources.logs.gpu_order import GpuOrder
from gpumon.sources.logs.log_sample import LogFacts, LogReader, LogSample
from gpumon.sources.logs.order_notes import order_notes
from gpumon.sources.logs.shared_stamps import SharedStamps

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
