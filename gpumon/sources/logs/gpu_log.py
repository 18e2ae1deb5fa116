"""What the readers of all formats have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from typing import ClassVar

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.driver_errors import CELL_CODES, ERROR_MARKS, DriverErrors, ErrorLine
from gpumon.sources.logs.log_sample import WITH_MIG, LogFacts, LogOptions, LogSample, Mark
from gpumon.sources.logs.stamps.log_clock import NO_CLOCK, LogClock, RowClock
from gpumon.sources.logs.stamps.stamp_parsers import StampParser
from gpumon.sources.logs.table.cell_values import GuessedUnit, Refusal, SkippedLines
from gpumon.sources.logs.table.column_names import Column
from gpumon.sources.logs.table.gpu_rows import GpuTable

Rows = Iterator[LogSample | None]


class GpuLog(ABC):
    """One log in one format, read once from start to end.

    Args:
        lines: Every line of the log, including those that identify the format.

    Attributes:
        title: Name of the format in messages.
        mark: Identifies the format.
        settable: Columns that a user may name by ``LogOptions.columns``.
        yields_to_csv: Whether a user who names the utilisation has it read as any CSV.
        nothing: Message if no GPU has a utilisation, with ``{lines}`` and ``{title}``.
    """

    title: ClassVar[str]
    mark: ClassVar[Mark]
    settable: ClassVar[Collection[Column]] = ()
    yields_to_csv: ClassVar[bool] = False
    nothing: ClassVar[str] = "no line with a utilisation."

    def __init__(self, lines: Iterator[str], *, name: str, options: LogOptions) -> None:
        self._lines = lines
        self._name = name
        self._options = options
        self._skipped = SkippedLines()
        self._gpus = GpuTable()
        self._unit: GuessedUnit | None = None  # checked at the end
        self._row_clock = RowClock(options.period_ns)
        self._number = 0
        self._clock: LogClock = NO_CLOCK
        self._stamps: StampParser | None = None
        self._counts_rows = False  # rows have no time but their number
        self._has_answer = False
        self._broken_off: str | None = None
        self._is_guessed = False
        self._errors = DriverErrors()
        self._lost_rows = 0
        self._bare_times: str | None = None
        self._last_ns: int | None = None  # of the last row with a utilisation

    def begin_below(self, errors: DriverErrors, lines: int) -> None:
        """Continue after ``lines`` lines with these errors."""
        self._errors, self._number = errors, lines

    def samples(self) -> Iterator[LogSample]:
        """Yield every row of a known GPU and time, in file order.

        Raises:
            UnreadableLogError: No row has a utilisation, or none that can be identified; a stream
                that breaks off.
            UsageError: ``--column`` names a column that does not exist.
        """
        yield from filter(None, self._read())
        if self._unit is not None:
            self._unit.settle()
        if not self._has_answer and self._errors:
            raise UnreadableLogError(f"{self._name}: {self._errors.sentence()}")
        if not self._has_answer:
            raise UnreadableLogError(f"{self._name}: {self._nothing()}")

    def facts(self) -> LogFacts:
        """Return what is known so far; complete once ``samples`` is exhausted."""
        return LogFacts(
            clock=self._clock if self._stamps is None else self._stamps.clock,
            gpus=self._gpus.labelled_gpus,
            skipped_lines=self._skipped.count,
            period_ns=self._row_clock.period_ns if self._counts_rows else None,
            notes=(*self._notes(), *self._gpus.owner_notes(), *self._skipped.sentences()),
            broken_off=self._broken_off,
            is_guessed=self._is_guessed,
            errors=self._errors.all(),
            partly=self._errors.partly,
            lost_rows=self._lost_rows,
            bare_times=self._bare_times,
        )

    @abstractmethod
    def _read(self) -> Rows:
        """Yield the samples in file order; ``None`` for a row that is not one."""

    def _notes(self) -> list[str]:
        """Return notes on what was assumed."""
        return [self._row_clock.note] if self._counts_rows else []

    def _nothing(self) -> str:
        """Return why there is nothing to analyse."""
        reasons = " ".join(self._skipped.sentences())
        if self._skipped.has(Refusal.NO_ANSWER):
            reasons = f"{reasons} {WITH_MIG}"
        return f"{self.nothing.format(lines=self._number, title=self.title)} {reasons}"

    def _numbered(self, longest: int) -> Iterator[tuple[int, str]]:
        """Yield each line with its number, except lines that are too long for such a log."""
        is_within = False
        for piece in self._lines:
            self._number += not is_within
            if not is_within and len(piece) < longest:
                yield self._number, piece
            elif not is_within:
                self._skipped.add(Refusal.TOO_LONG, self._number)
            is_within = not piece.endswith("\n")

    def _foreign(self, line: str, number: int, stamp_ns: int | None = None) -> None:
        """Count a line that is not part of such a log, and read driver errors from it."""
        is_error = self._errors.read_line(line, ErrorLine(number, stamp_ns, self._last_ns))
        self._skipped.add(Refusal.DRIVER if is_error else Refusal.FOREIGN, number)

    def _lose_row(self, reason: Refusal, number: int, gpus: int = 1) -> None:
        """Count a row of ``gpus`` GPUs whose GPU or time is unknown."""
        self._skipped.add(reason, number)
        self._lost_rows += gpus

    def _sample(
        self,
        gpu: int | None,
        stamp_ns: int | None,
        ratio: float | Refusal,
        number: int,
        used_bytes: int | None = None,
        line: str = "",
    ) -> LogSample | None:
        """Return a row as a sample; ``None``: no known GPU or time. Counts a bad line once."""
        if isinstance(ratio, Refusal):
            self._skipped.add(ratio, number)
        elif gpu is None:
            self._skipped.add(Refusal.UNKNOWN_GPU, number)
        elif stamp_ns is None:
            self._skipped.add(Refusal.STAMP, number)
        if isinstance(ratio, Refusal) and ratio in CELL_CODES:
            self._errors.add_cell(ratio, gpu, number, stamp_ns)
        if gpu is None or stamp_ns is None:
            self._lost_rows += 1
            return None
        if isinstance(ratio, Refusal):
            return LogSample(gpu, stamp_ns, None, used_bytes)
        self._has_answer, self._last_ns = True, stamp_ns
        if self._errors:
            self._errors.read_again(gpu, stamp_ns)
        if any(mark in line for mark in ERROR_MARKS):
            self._errors.partly.setdefault(gpu, (number, stamp_ns))
        return LogSample(gpu, stamp_ns, ratio, used_bytes)
