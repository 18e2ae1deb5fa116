"""The scrolling tables of ``nvidia-smi dmon`` and ``pmon``: their headers and their clock.

The columns of a scrolling table of nvidia-smi, whose header may come again and move them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.sources.logs.log_sample import LogFacts, LoggedGpu
from gpumon.sources.logs.stamps.log_clock import NO_CLOCK, LogClock, RowClock
from gpumon.sources.logs.table.cells import Refusal, SkippedLines

_DATE: Final = re.compile(r"(\d{4})([-/]?)(\d\d)\2(\d\d)", re.ASCII)
_TIME: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d):([0-5]\d|60)", re.ASCII)
_GAP: Final = r"(?:\s*,\s*|\s+)"
_MOMENT: Final = rf"\s*\d{{8}}{_GAP}\d\d:\d\d:\d\d{_GAP}"
_DEVICE_ROW: Final = re.compile(rf"{_MOMENT}\d{{1,3}}(?:{_GAP}(?:\d+|-))+\s*$", re.ASCII)
_PROCESS_ROW: Final = re.compile(
    rf"(?:{_MOMENT}|\s*)\d{{1,3}}{_GAP}\d+{_GAP}[CGM](?:\+[CGM])*{_GAP}(?:\d|-)", re.ASCII
)
_DAY_ZERO: Final = date(1970, 1, 1).toordinal()
_DAY_NS: Final = 86_400 * NS_PER_S
_COLUMNS: Final = frozenset(
    """pwr gtemp mtemp sm mem enc dec jpg ofa mclk pclk pviol tviol fb bar1 ccpm sbecc dbecc pci
    rxpci txpci gi ci pid type command""".split()  # noqa: SIM905  (names side by side)
)
"""Names that no unit has: a line of the header with one of them was meant to name columns."""


@dataclass(frozen=True, slots=True)
class MonitorHeader:
    """The line that names the columns.

    Attributes:
        names: In lower case, in the order of the cells of a row.
        separator: What stands between two cells; ``None``: blanks.
    """

    names: tuple[str, ...]
    separator: str | None

    def at(self, name: str) -> int | None:
        """Position of a column, from 0; ``None`` where there is none of that name."""
        return self.names.index(name) if name in self.names else None


def header_of(line: str) -> MonitorHeader | None:
    """The columns a line announces; ``None`` where it is units, or no header.

    >>> header_of("#Time        gpu    sm").names
    ('time', 'gpu', 'sm')
    >>> header_of("#HH:MM:SS    Idx     %") is None
    True
    """
    text = line.strip()
    if not text.startswith("#"):
        return None
    separator = "," if "," in text else None
    names = tuple(name.strip().lower() for name in text[1:].split(separator))
    return MonitorHeader(names, separator) if "gpu" in names else None


def was_to_be_header(line: str) -> bool:
    """Whether a line of comment names columns, although ``header_of`` cannot read it."""
    return not _COLUMNS.isdisjoint(re.split(r"[\s,#]+", line.lower()))


def header_mark(*, has_pid: bool) -> Callable[[Sequence[str]], int | None]:
    """A mark: the first header among a log's lines, of processes or of whole GPUs.

    Where there is none, the first row that no other tool writes: without a header nobody knows
    what its columns are, and a log of such rows is to be refused, not guessed at.
    """
    like_a_row = _PROCESS_ROW if has_pid else _DEVICE_ROW

    def mark(head: Sequence[str]) -> int | None:
        for number, line in enumerate(head, start=1):
            header = header_of(line)
            if header is None or _COLUMNS.isdisjoint(header.names):
                continue
            return number if ("pid" in header.names) == has_pid else None
        rows = (number for number, line in enumerate(head, start=1) if like_a_row.match(line))
        return next(rows, None)

    return mark


class MonitorClock:
    """Stamps of rows with a date and a time, only a time of day, or neither.

    Args:
        header: The first header; later ones have to tell the time in the same way.
        period_ns: Time between two rows, as the user said.
    """

    def __init__(self, header: MonitorHeader, period_ns: int | None) -> None:
        self._kind = _kind_of(header)
        self._row_clock = RowClock(period_ns)
        self._days_ns: dict[str, int] = {}
        self._seconds_ns: dict[str, int] = {}
        self._day_ns = 0
        self._last_ns = 0
        self.relayout(header)

    def relayout(self, header: MonitorHeader) -> bool:
        """Take the columns of a new header; whether it tells the time as the first did."""
        if _kind_of(header) != self._kind:
            return False
        self._date_at, self._time_at = header.at("date") or 0, header.at("time") or 0
        return True

    @property
    def counts_rows(self) -> bool:
        """Whether rows have no stamp but their number."""
        return not self._kind[1]

    def stamp_ns(self, cells: Sequence[str]) -> int | None:
        """When a row was written; ``None``: it cannot be told."""
        has_date, _ = self._kind
        time = cells[self._time_at]
        after_midnight_ns = self._seconds_ns.get(time)
        if after_midnight_ns is None:
            after_midnight_ns = self._read_time(time)
            if after_midnight_ns is None:
                return None
        if not has_date:
            return self._rolled_over(after_midnight_ns)
        day = cells[self._date_at]
        day_ns = self._days_ns.get(day)
        if day_ns is None:
            day_ns = self._read_day(day)
        return None if day_ns is None else day_ns + after_midnight_ns

    def next_ns(self, gpu: int) -> int:
        """Stamp of the next row of a GPU, where rows have none."""
        return self._row_clock.next_ns(gpu)

    @property
    def clock(self) -> LogClock:
        return LogClock(is_wall=True) if all(self._kind) else NO_CLOCK

    @property
    def period_ns(self) -> int | None:
        """Time between two rows, where their stamps do not tell it."""
        return self._row_clock.period_ns if self.counts_rows else None

    @property
    def notes(self) -> tuple[str, ...]:
        """What the report has to say of it."""
        has_date, has_time = self._kind
        if not has_time:
            return (self._row_clock.note,)
        if not has_date:
            return ("The log has times of day and no date: when it began is not known.",)
        return ()

    def _rolled_over(self, after_midnight_ns: int) -> int:
        if after_midnight_ns < self._last_ns - _DAY_NS // 2:
            self._day_ns += _DAY_NS
        self._last_ns = after_midnight_ns
        return self._day_ns + after_midnight_ns

    def _read_time(self, text: str) -> int | None:
        found = _TIME.fullmatch(text.strip())
        if found is None:
            return None
        hour, minute, second = map(int, found.groups())
        # No more than the seconds of a day are ever kept.
        self._seconds_ns[text] = ns = ((hour * 60 + minute) * 60 + second) * NS_PER_S
        return ns

    def _read_day(self, text: str) -> int | None:
        found = _DATE.fullmatch(text.strip())
        if found is None:
            return None
        try:
            days = date(int(found[1]), int(found[3]), int(found[4])).toordinal() - _DAY_ZERO
        except ValueError:
            return None
        if len(self._days_ns) > 4_096:
            self._days_ns.clear()
        self._days_ns[text] = ns = days * _DAY_NS
        return ns


def _kind_of(header: MonitorHeader) -> tuple[bool, bool]:
    """Whether rows have a date, and whether they have a time."""
    return header.at("date") is not None, header.at("time") is not None


UNUSABLE: Final = -1
"""The width of a table that cannot be read: no row has as many cells."""


class MonitorColumns:
    """Follows the headers of one log.

    Args:
        needed: Columns without which a table is of no use.
        period_ns: Time between two rows, as the user said; ``None``: a second.

    Attributes:
        width: Cells of a row; ``UNUSABLE``: none can be read now.
        separator: What stands between them; ``None``: blanks.
        refusal: Why rows cannot be read.
        clock: What their stamps mean; ``None`` before the first header.
    """

    def __init__(self, *needed: str, period_ns: int | None) -> None:
        self._needed = needed
        self._period_ns = period_ns
        self.width = UNUSABLE
        self.separator: str | None = None
        self.refusal = Refusal.UNHEADED
        self.clock: MonitorClock | None = None

    def take(self, line: str) -> MonitorHeader | None:
        """Take note of a comment; the header it is, if rows can be read by it."""
        header = header_of(line)
        if header is None:
            if was_to_be_header(line):
                self._cannot_be_read(Refusal.UNHEADED)
            return None
        self.separator = header.separator
        if any(header.at(name) is None for name in self._needed):
            self._cannot_be_read(Refusal.HEADER)
            return None
        if self.clock is None:
            self.clock = MonitorClock(header, self._period_ns)
        elif not self.clock.relayout(header):
            self._cannot_be_read(Refusal.CLOCK)
            return None
        self.width = len(header.names)
        return header

    def facts(self, gpus: Sequence[LoggedGpu], skipped: SkippedLines, *notes: str) -> LogFacts:
        """What is known so far.

        Args:
            gpus: Those that were told apart.
            skipped: The lines that could not be used.
            notes: What is to be said before all else.
        """
        clock = self.clock
        return LogFacts(
            clock=clock.clock if clock else NO_CLOCK,
            gpus=tuple(gpus),
            skipped_lines=skipped.count,
            period_ns=clock.period_ns if clock else None,
            notes=(*notes, *(clock.notes if clock else ()), *skipped.sentences()),
        )

    def _cannot_be_read(self, refusal: Refusal) -> None:
        self.width, self.refusal = UNUSABLE, refusal
