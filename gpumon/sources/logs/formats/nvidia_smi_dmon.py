"""``nvidia-smi dmon``: a row for each GPU and tick, with any ``-s`` and any ``-o``.

Its table scrolls, and its header may come again and move. So does that of ``pmon``.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from gpumon.sources.logs.gpu_log import GpuLog, Rows
from gpumon.sources.logs.log_sample import LoggedGpu, LogOptions, Mark
from gpumon.sources.logs.stamps.log_clock import LOCAL_CLOCK, NO_CLOCK
from gpumon.sources.logs.stamps.stamp_parsers import ClockStamps, DateStamps
from gpumon.sources.logs.table.cell_values import bytes_in
from gpumon.sources.logs.table.skipped_lines import Refusal

_DATE: Final = re.compile(r"(\d{4})([-/]?)(\d\d)\2(\d\d)", re.ASCII)
_TIME: Final = re.compile(r"[0-2]\d:[0-5]\d:[0-6]\d", re.ASCII)
_GAP: Final = r"(?:\s*,\s*|\s+)"
_MOMENT: Final = rf"\s*\d{{8}}{_GAP}\d\d:\d\d:\d\d{_GAP}"
_DEVICE_ROW: Final = re.compile(rf"{_MOMENT}\d{{1,3}}(?:{_GAP}(?:\d+|-))+\s*$", re.ASCII)
_PROCESS_ROW: Final = re.compile(
    rf"(?:{_MOMENT}|\s*)\d{{1,3}}{_GAP}\d+{_GAP}[CGM](?:\+[CGM])*{_GAP}(?:\d|-)", re.ASCII
)
_COLUMNS: Final = frozenset(
    """pwr gtemp mtemp sm mem enc dec jpg ofa mclk pclk pviol tviol fb bar1 ccpm sbecc dbecc pci
    rxpci txpci gi ci pid type command""".split()  # noqa: SIM905  (names side by side)
)
"""Names that no unit has: a line of the header with one of them was meant to name columns."""
_MOST_SIGNS: Final = 4_096
"""More signs than a row of any ``-s`` has."""
_UNUSABLE: Final = -1
"""The width of a table that cannot be read: no row has as many cells."""


@dataclass(frozen=True, slots=True)
class TableHeader:
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


def header_of(line: str) -> TableHeader | None:
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
    return TableHeader(names, separator) if "gpu" in names else None


def header_mark(*, has_pid: bool) -> Mark:
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


class ScrollingTable(GpuLog):
    """A log whose rows are read by the header above them.

    Attributes:
        needed: Columns without which a table is of no use.
    """

    needed: ClassVar[tuple[str, ...]]
    nothing = (
        "no row with a utilisation in {lines} lines; `{title}` tells it in the column sm, with "
        "-s u."
    )

    def __init__(self, lines: Iterator[str], *, name: str, options: LogOptions) -> None:
        super().__init__(lines, name=name, options=options)
        self._width, self._refusal = _UNUSABLE, Refusal.UNHEADED
        self._separator: str | None = None
        self._most_splits = -1
        self._told_time: tuple[bool, bool] | None = None  # whether rows have a date, and a time
        self._dates, self._times = DateStamps(), ClockStamps(is_elapsed=False, may_be_late=False)

    def _read(self) -> Rows:
        for number, line in self._numbered(_MOST_SIGNS):
            cells = line.split(self._separator, self._most_splits)
            if len(cells) == self._width and "#" not in cells[0]:
                yield from self._row(cells, number)
            else:
                self._odd_line(line.strip(), number)

    @abstractmethod
    def _row(self, cells: Sequence[str], number: int) -> Rows:
        """The samples that are known once a row is."""

    @abstractmethod
    def _adopt(self, header: TableHeader) -> None:
        """Take note of where the columns are now that are read by one of the formats alone."""

    def _refuse(self, reason: Refusal, number: int) -> None:
        self._skipped.add(reason, number)

    def _gpu_number(self, cell: str) -> int | None:
        bare = cell.strip()
        return int(bare) if bare.isdecimal() and len(bare) <= 4 else None

    def _stamp_ns(self, cells: Sequence[str]) -> int | None:
        """When a row was written, where rows tell it; ``None``: that cannot be read."""
        time = cells[self._time_at].strip()
        if _TIME.fullmatch(time) is None:
            return None
        if self._clock is NO_CLOCK:
            return self._times.parse(time)
        day = _DATE.fullmatch(cells[self._date_at].strip())
        return None if day is None else self._dates.parse(f"{day[1]}-{day[3]}-{day[4]} {time}")

    def _notes(self) -> list[str]:
        has_no_date = self._told_time == (False, True)
        return [f"{self._times.note}"] if has_no_date else super()._notes()

    def _odd_line(self, bare: str, number: int) -> None:
        if bare.startswith("#"):
            self._take_header(bare)
        elif bare and not bare[0].isdigit():
            self._skipped.add(Refusal.FOREIGN, number)
        elif bare and self._width == _UNUSABLE:
            self._skipped.add(self._refusal, number)
        elif bare:
            self._refuse(Refusal.WIDTH, number)

    def _take_header(self, bare: str) -> None:
        header = header_of(bare)
        if header is None:
            if not _COLUMNS.isdisjoint(re.split(r"[\s,#]+", bare.lower())):  # it was to be one
                self._width, self._refusal = _UNUSABLE, Refusal.UNHEADED
            return
        self._separator = header.separator
        told_time = header.at("date") is not None, header.at("time") is not None
        if any(header.at(name) is None for name in self.needed):
            self._width, self._refusal = _UNUSABLE, Refusal.HEADER
        elif self._told_time not in (None, told_time):
            self._width, self._refusal = _UNUSABLE, Refusal.CLOCK
        else:
            self._told_time = told_time
            self._counts_rows = not told_time[1]
            self._clock = LOCAL_CLOCK if all(told_time) else NO_CLOCK
            self._date_at, self._time_at = header.at("date") or 0, header.at("time") or 0
            self._gpu_at, self._sm_at = header.at("gpu") or 0, header.at("sm") or 0
            self._fb_at = header.at("fb")
            self._width = len(header.names)
            self._adopt(header)


class NvidiaSmiDmonLog(ScrollingTable):
    """One log of ``nvidia-smi dmon``, in blanks or commas.

    ``sm`` is NVML's utilisation of the GPU, ``fb`` its memory in use.
    """

    title = "nvidia-smi dmon"
    mark = header_mark(has_pid=False)
    needed = ("sm",)

    def _adopt(self, header: TableHeader) -> None:
        self._instance_at, self._compute_at = header.at("gi"), header.at("ci")

    def _row(self, cells: Sequence[str], number: int) -> Rows:
        gpu = self._position_of(cells)
        if gpu is None:
            self._refuse(Refusal.NOBODY, number)
            return
        ratio = self._cells.read(cells[self._sm_at])
        stamp_ns = self._row_clock.next_ns(gpu) if self._counts_rows else self._stamp_ns(cells)
        used = None if self._fb_at is None else bytes_in(cells[self._fb_at])
        yield self._sample(gpu, stamp_ns, ratio, number, used)

    def _position_of(self, cells: Sequence[str]) -> int | None:
        index = self._gpu_number(cells[self._gpu_at])
        if index is None:
            return None
        instance = "-" if self._instance_at is None else cells[self._instance_at].strip()
        if not instance.isdecimal():
            return self._gpus.position(index, LoggedGpu(index=index))
        compute = "" if self._compute_at is None else cells[self._compute_at].strip()
        nth = sum(one.index == index and one.mig_index is not None for one in self._gpus.gpus)
        key = index, instance, compute
        return self._gpus.position(key, LoggedGpu(index=index, mig_index=nth))


FORMAT: Final = NvidiaSmiDmonLog
