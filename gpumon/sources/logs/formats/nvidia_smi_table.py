"""The table that ``nvidia-smi`` prints for people, again and again, with or without a date.

Lines of the table that nvidia-smi prints for people, of any driver since 390.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import Enum
from itertools import chain, islice
from typing import Final, NamedTuple

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.log_sample import (
    LogFacts,
    LogFormat,
    LoggedGpu,
    LogOptions,
    LogSample,
    line_like,
)
from gpumon.sources.logs.log_text import numbered_lines
from gpumon.sources.logs.stamps.date_lines import PrintedDate, date_in, looks_like_date
from gpumon.sources.logs.stamps.log_clock import NO_CLOCK, RowClock
from gpumon.sources.logs.table.cells import MemoryCells, Refusal, SkippedLines, UtilizationCells
from gpumon.sources.logs.table.gpu_rows import GpuTable

_BUS_ID: Final = re.compile(r"\b[0-9A-F]{4,8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-9A-F]\b", re.I)
_INDEX_AND_NAME: Final = re.compile(r"(\d{1,4})\s+(\S.*\s)\S{2,4}", re.ASCII)
_ANSWER_AND_MODE: Final = re.compile(r"\s*(\S+)\s+\S.*", re.DOTALL)
_INSTANCE: Final = re.compile(r"\s*(\d{1,4})\s+\d{1,4}\s+\d{1,4}\s+(\d{1,4})\s*", re.ASCII)
_GPU_ROW_CELLS: Final = 5
_INSTANCE_ROW_CELLS: Final = 6
"""The frame stands at both ends of a row: a row that was cut has fewer."""


class Section(Enum):
    """The part of a table that a heading opens."""

    OUTSIDE = "outside"
    GPUS = "NVIDIA-SMI"
    INSTANCES = "MIG devices:"
    PROCESSES = "Processes:"


class NameRow(NamedTuple):
    """The first row of a GPU."""

    gpu_index: int
    name: str


class AnswerRow(NamedTuple):
    """The second row of a GPU.

    Attributes:
        utilization: As written, ``"29%"`` or ``"N/A"``.
        used_bytes: ``None``: no answer.
        total_bytes: Likewise.
    """

    utilization: str
    used_bytes: int | None
    total_bytes: int | None


class InstanceRow(NamedTuple):
    """The row of a MIG instance that has its memory.

    Attributes:
        gpu_index: Of the GPU it is a part of.
        mig_index: Of the instance on that GPU.
        used_bytes: ``None``: no answer.
        total_bytes: Likewise.
    """

    gpu_index: int
    mig_index: int
    used_bytes: int | None
    total_bytes: int | None


def section_opened_by(bare: str) -> Section | None:
    """The section a framed line opens; ``None`` where it is another line of the table."""
    title = bare[1:20].lstrip()
    for section in (Section.GPUS, Section.INSTANCES, Section.PROCESSES):
        if title.startswith(section.value):
            return section
    return None


def is_rule(bare: str) -> bool:
    """Whether a line of the frame has no text."""
    return bare.startswith("+") or bare[1:2] in ("-", "=")


def name_row(cells: Sequence[str]) -> NameRow | None:
    """Which GPU the next row speaks of."""
    if len(cells) != _GPU_ROW_CELLS or _BUS_ID.search(cells[2]) is None:
        return None
    found = _INDEX_AND_NAME.fullmatch(cells[1].strip())
    return NameRow(int(found[1]), found[2].rstrip()) if found else None


def answer_row(cells: Sequence[str], memory: MemoryCells) -> AnswerRow | None:
    """What a GPU answered."""
    if len(cells) != _GPU_ROW_CELLS or "/" not in cells[1]:
        return None
    found = _ANSWER_AND_MODE.fullmatch(cells[3])
    if found is None:
        return None
    used, _, total = cells[2].partition("/")
    return AnswerRow(found[1], memory.bytes_of(used), memory.bytes_of(total))


def says_mig_is_on(cells: Sequence[str]) -> bool:
    """Whether the third row of a GPU says that it is cut into MIG instances."""
    return len(cells) == _GPU_ROW_CELLS and cells[3].strip() == "Enabled" and not cells[1].strip()


def instance_row(cells: Sequence[str], memory: MemoryCells) -> InstanceRow | None:
    """The memory of a MIG instance; nvidia-smi's table has no utilisation of it."""
    if len(cells) != _INSTANCE_ROW_CELLS:
        return None
    found = _INSTANCE.fullmatch(cells[1])
    if found is None:
        return None
    used, _, total = cells[2].partition("/")
    return InstanceRow(int(found[1]), int(found[2]), memory.bytes_of(used), memory.bytes_of(total))


def is_heading(cells: Sequence[str]) -> bool:
    """Whether a framed line of the GPUs' section only names what is below it, or says nothing."""
    text = cells[1] if len(cells) > 1 else ""
    if len(cells) == _GPU_ROW_CELLS and not text.strip():
        return not cells[2].strip()
    return text.strip().startswith(("GPU  Name", "Fan  Temp"))


_HEAD_LINES: Final = 512
"""Lines among which a table with a date above it is looked for."""
_MOST_SIGNS: Final = 1_024


class NvidiaSmiTableLog:
    """One log of tables, each of them one moment of all GPUs.

    The date that stands nearest above a table is the table's. Processes are
    passed over; MIG instances have memory and no utilisation.

    Args:
        lines: The log's text.
        name: What to call it in sentences.
        options: What the user said about it.
    """

    def __init__(self, lines: Iterator[str], *, name: str, options: LogOptions) -> None:
        self._lines = lines
        self._name = name
        self._skipped = SkippedLines()
        self._cells = UtilizationCells(is_percent=True)
        self._memory = MemoryCells()
        self._table = GpuTable()
        self._tables = RowClock(options.period_ns)
        self._dating: PrintedDate | None = None
        self._date: PrintedDate | None = None
        self._section = Section.OUTSIDE
        self._table_ns: int | None = None
        self._bare_title_at = 0
        self._waiting: NameRow | None = None
        self._last_gpu: int | None = None
        self._cut_gpus: set[int] = set()
        self._usable_rows = 0

    def samples(self) -> Iterator[LogSample]:
        """Every GPU and MIG instance of every table, in file order.

        Raises:
            UnreadableLogError: No table with a utilisation, or a stream that breaks off.
        """
        return self._rows()

    def facts(self) -> LogFacts:
        """What is known so far; complete once ``samples`` is exhausted."""
        dating = self._dating
        notes = [] if dating else [self._tables.note.replace("a row", "a table")]
        if self._cut_gpus:
            indexes = ", ".join(map(str, sorted(self._cut_gpus)))
            notes.append(
                f"GPU {indexes} is cut into MIG instances, whose utilisation nvidia-smi's table "
                "does not tell: they are not observed."
            )
        return LogFacts(
            clock=dating.clock if dating else NO_CLOCK,
            gpus=tuple(self._table.gpus),
            skipped_lines=self._skipped.count,
            period_ns=None if dating else self._tables.period_ns,
            notes=(*notes, *self._skipped.sentences()),
        )

    def _rows(self) -> Iterator[LogSample]:
        head = list(islice(self._lines, _HEAD_LINES))
        self._dating = _dating_of(head)
        number = 0
        for number, line in numbered_lines(chain(head, self._lines)):
            bare = line.strip() if len(line) < _MOST_SIGNS else None
            if bare is None:
                self._skipped.add(Refusal.TOO_LONG, number)
            elif bare.startswith("|") and not is_rule(bare):
                sample = self._framed(bare, number)
                if sample is not None:
                    yield sample
            elif bare.startswith(("+", "|")):
                self._drop_waiting(number)
            elif bare:
                self._outside(bare, number)
        self._end_table(number)
        if not self._usable_rows and not self._cut_gpus:
            reasons = " ".join(self._skipped.sentences())
            raise UnreadableLogError(
                f"{self._name}: no table of nvidia-smi with a utilisation in {number} lines. "
                f"{reasons}"
            )

    def _framed(self, bare: str, number: int) -> LogSample | None:
        opened = section_opened_by(bare)
        if opened is Section.GPUS:
            self._begin_table(number)
        elif opened is not None:
            self._drop_waiting(number)
            if self._section is not Section.OUTSIDE:
                self._section = opened
        elif self._section is Section.GPUS:
            return self._gpu_line(bare.split("|"), number)
        elif self._section is Section.INSTANCES:
            return self._instance(bare.split("|"))
        elif name_row(bare.split("|")) is not None:  # its table's first line is not there
            self._section = Section.OUTSIDE
            self._skipped.add(Refusal.CUT_TABLE, number)
        return None

    def _gpu_line(self, cells: Sequence[str], number: int) -> LogSample | None:
        if self._waiting is not None:
            answer = answer_row(cells, self._memory)
            if answer is None:
                self._drop_waiting(number)
                return None
            gpu, self._waiting = self._waiting, None
            return self._sample(gpu, answer, number)
        self._waiting = name_row(cells)
        if self._waiting is not None:
            self._bare_title_at, self._last_gpu = 0, None
        elif says_mig_is_on(cells):
            self._mark_cut()
        elif not is_heading(cells):
            self._skipped.add(Refusal.CUT_TABLE, number)
        return None

    def _sample(self, gpu: NameRow, answer: AnswerRow, number: int) -> LogSample | None:
        told = LoggedGpu(index=gpu.gpu_index, name=gpu.name, memory_bytes=answer.total_bytes)
        position = self._last_gpu = self._table.position((gpu.gpu_index, None), told)
        ratio = self._cells.read(answer.utilization)
        if isinstance(ratio, Refusal):
            self._skipped.add(ratio, number)
        elif position is None:
            self._skipped.add(Refusal.NOBODY, number)
        elif self._table_ns is None:
            self._skipped.add(Refusal.STAMP, number)
        if position is None or self._table_ns is None:
            return None
        if isinstance(ratio, Refusal):
            return LogSample(position, self._table_ns, None, answer.used_bytes)
        self._usable_rows += 1
        return LogSample(position, self._table_ns, ratio, answer.used_bytes)

    def _mark_cut(self) -> None:
        if self._last_gpu is not None:
            gpu = self._table.gpus[self._last_gpu]
            self._table.gpus[self._last_gpu] = replace(gpu, mig_enabled=True)
            self._cut_gpus.add(gpu.index or 0)

    def _instance(self, cells: Sequence[str]) -> LogSample | None:
        row = instance_row(cells, self._memory)
        if row is None or self._table_ns is None:
            return None
        told = LoggedGpu(index=row.gpu_index, mig_index=row.mig_index, memory_bytes=row.total_bytes)
        position = self._table.position((row.gpu_index, row.mig_index), told)
        if position is None:
            return None
        return LogSample(position, self._table_ns, None, row.used_bytes)

    def _begin_table(self, number: int) -> None:
        was_bare = self._bare_title_at
        is_doubled = bool(was_bare) and was_bare == number - 1
        self._end_table(number)
        self._section = Section.GPUS
        self._bare_title_at = number
        self._last_gpu = None
        if self._dating is None:
            if not was_bare or self._table_ns is None:
                self._table_ns = self._tables.next_ns(0)
            return
        if is_doubled and self._date is None:
            return  # the same line again: it is the same table, of the same moment
        told, self._date = self._date, None
        fits = told is not None and told.form == self._dating.form
        self._table_ns = told.stamp_ns if told is not None and fits else None

    def _end_table(self, number: int) -> None:
        self._drop_waiting(number)
        if self._bare_title_at:  # no GPU came after it
            self._skipped.add(Refusal.CUT_TABLE, self._bare_title_at)
            self._bare_title_at = 0
        self._section = Section.OUTSIDE

    def _drop_waiting(self, number: int) -> None:
        if self._waiting is not None:
            self._waiting = None
            self._skipped.add(Refusal.CUT_TABLE, number)

    def _outside(self, bare: str, number: int) -> None:
        told = date_in(bare)
        if told is not None:
            self._end_table(number)
            self._date = told
        else:
            self._skipped.add(Refusal.STAMP if looks_like_date(bare) else Refusal.FOREIGN, number)


def _dating_of(head: Sequence[str]) -> PrintedDate | None:
    """The date of the first table that has one: the others are written alike."""
    told: PrintedDate | None = None
    for line in head:
        bare = line.strip()
        if bare.startswith("|"):
            if told is not None and section_opened_by(bare) is Section.GPUS:
                return told
        elif not bare.startswith("+"):
            told = date_in(bare) or told
    return None


FORMAT: Final = LogFormat(
    title="nvidia-smi's table",
    mark=line_like(r"^\s*\|\s*NVIDIA-SMI\s+\d"),
    reader=NvidiaSmiTableLog,
)
