"""What the readers of all formats do alike: number lines, count what is skipped, tell of GPUs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from typing import ClassVar

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.log_sample import LogFacts, LogOptions, LogSample, Mark
from gpumon.sources.logs.log_text import numbered_lines
from gpumon.sources.logs.stamps.log_clock import NO_CLOCK, LogClock, RowClock
from gpumon.sources.logs.table.cell_values import UtilizationCells
from gpumon.sources.logs.table.gpu_table import GpuTable
from gpumon.sources.logs.table.guessed_unit import GuessedUnit
from gpumon.sources.logs.table.headings import Column
from gpumon.sources.logs.table.skipped_lines import Refusal, SkippedLines

Rows = Iterator[LogSample | None]


class GpuLog(ABC):
    """One log in one format, read once from front to end; its rows are what a format gives.

    Args:
        lines: Every line of the log, those included by which it is known.

    Attributes:
        title: What to call the format in sentences.
        mark: By which it is known, whatever the file is called.
        settable: The columns that a user may name by ``LogOptions.columns``.
        is_last_resort: Tried only where no other format knows the log.
        nothing: What to say of a log in which no GPU answers; ``{lines}`` stands for their number,
            ``{title}`` for the title.
    """

    title: ClassVar[str]
    mark: ClassVar[Mark]
    settable: ClassVar[Collection[Column]] = ()
    is_last_resort: ClassVar[bool] = False
    nothing: ClassVar[str] = "no line with a utilisation."

    def __init__(self, lines: Iterator[str], *, name: str, options: LogOptions) -> None:
        self._lines = lines
        self._name = name
        self._options = options
        self._skipped = SkippedLines()
        self._cells = UtilizationCells(is_percent=True)
        self._gpus = GpuTable()
        self._unit: GuessedUnit | None = None  # to be settled at the end
        self._row_clock = RowClock(options.period_ns)
        self._number = 0
        self._clock: LogClock = NO_CLOCK
        self._counts_rows = False  # nothing but the number of a row tells its moment
        self._has_told = False
        self._broken_off: str | None = None
        self._is_guessed = False

    def samples(self) -> Iterator[LogSample]:
        """Every row that belongs to a GPU and a moment, in file order.

        Raises:
            UnreadableLogError: No row tells how busy a GPU was, or it cannot be told which of its
                columns does; a stream that breaks off.
            UsageError: ``--column`` names a column that is not there.
        """
        yield from filter(None, self._read())
        if self._unit is not None:
            self._unit.settle()
        if not self._has_told:
            raise UnreadableLogError(f"{self._name}: {self._nothing()}")

    def facts(self) -> LogFacts:
        """What is known so far; complete once ``samples`` is exhausted."""
        return LogFacts(
            clock=self._clock,
            gpus=self._gpus.told_apart,
            skipped_lines=self._skipped.count,
            period_ns=self._row_clock.period_ns if self._counts_rows else None,
            notes=(*self._notes(), *self._skipped.sentences()),
            broken_off=self._broken_off,
            is_guessed=self._is_guessed,
        )

    @abstractmethod
    def _read(self) -> Rows:
        """The samples of the log, in file order; ``None``: a row that is none."""

    def _notes(self) -> list[str]:
        """What was assumed or guessed."""
        return [self._row_clock.note] if self._counts_rows else []

    def _nothing(self) -> str:
        """Why there is nothing to analyse."""
        reasons = " ".join(self._skipped.sentences())
        return f"{self.nothing.format(lines=self._number, title=self.title)} {reasons}"

    def _numbered(self, longest: int) -> Iterator[tuple[int, str]]:
        """Each line with its number, without those too long to be a part of such a log."""
        for number, line in numbered_lines(self._lines):
            self._number = number
            if len(line) >= longest:
                self._skipped.add(Refusal.TOO_LONG, number)
            else:
                yield number, line

    def _sample(
        self,
        gpu: int | None,
        stamp_ns: int | None,
        ratio: float | Refusal,
        number: int,
        used_bytes: int | None = None,
    ) -> LogSample | None:
        """A row as a sample; ``None``: of no GPU, or of no moment. The line counts once."""
        if isinstance(ratio, Refusal):
            self._skipped.add(ratio, number)
        elif gpu is None:
            self._skipped.add(Refusal.NOBODY, number)
        elif stamp_ns is None:
            self._skipped.add(Refusal.STAMP, number)
        if gpu is None or stamp_ns is None:
            return None
        if isinstance(ratio, Refusal):
            return LogSample(gpu, stamp_ns, None, used_bytes)
        self._has_told = True
        return LogSample(gpu, stamp_ns, ratio, used_bytes)
