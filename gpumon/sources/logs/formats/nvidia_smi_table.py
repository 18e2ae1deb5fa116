"""The table that ``nvidia-smi`` prints, of any driver since 390, with or without a date."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import Enum
from itertools import chain
from typing import Final

from gpumon.sources.logs.gpu_log import GpuLog, Rows
from gpumon.sources.logs.log_sample import LoggedGpu, LogOptions, LogSample, line_like
from gpumon.sources.logs.log_text import head_of
from gpumon.sources.logs.stamps.stamp_parsers import PrintedDate, date_in
from gpumon.sources.logs.table.cell_values import Refusal, bytes_in, ratio_in

_BUS_ID: Final = re.compile(r"\b[0-9A-F]{4,8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-9A-F]\b", re.I)
_INDEX_AND_NAME: Final = re.compile(r"(\d{1,4})\s+(\S.*\s)\S{2,4}", re.ASCII)
_ANSWER_AND_MODE: Final = re.compile(r"\s*(\S+)\s+\S.*", re.DOTALL)
_INSTANCE: Final = re.compile(r"\s*(\d{1,4})\s+\d{1,4}\s+\d{1,4}\s+(\d{1,4})\s*", re.ASCII)
_GPU_ROW_CELLS: Final = 5
_INSTANCE_ROW_CELLS: Final = 6
"""The frame is at both ends of a row: a truncated row has fewer."""
_MAX_LENGTH: Final = 1_024


class _Section(Enum):
    OUTSIDE = "outside"
    GPUS = "NVIDIA-SMI"
    INSTANCES = "MIG devices:"
    PROCESSES = "Processes:"


class NvidiaSmiTableLog(GpuLog):
    """A log of tables, each with all GPUs at one time.

    The nearest date above a table is its time. Processes are skipped; MIG instances have memory but
    no utilisation.
    """

    title = "nvidia-smi's table"
    mark = line_like(r"^\s*\|\s*NVIDIA-SMI\s+\d")
    nothing = "no table of nvidia-smi with a utilisation in {lines} lines."

    def __init__(self, lines: Iterator[str], *, name: str, options: LogOptions) -> None:
        super().__init__(lines, name=name, options=options)
        self._date: PrintedDate | None = None
        self._section = _Section.OUTSIDE
        self._table_ns: int | None = None
        self._waiting: LoggedGpu | None = None
        self._last_gpu: int | None = None

    def _notes(self) -> list[str]:
        notes = [note.replace("a row", "a table") for note in super()._notes()]
        return notes + self._gpus.partitioned_notes("nvidia-smi's table")

    def _read(self) -> Rows:
        head = head_of(self._lines)
        self._lines = chain(head, self._lines)
        date = _first_date(head)
        self._counts_rows = date is None
        if date is not None:
            self._clock = date.clock
        for number, line in self._numbered(_MAX_LENGTH):
            bare = line.strip()
            if bare.startswith("|") and bare[1:2] not in ("-", "="):
                yield self._framed(bare, number)
            elif bare and not bare.startswith(("+", "|")):
                self._outside(bare, number)

    def _framed(self, bare: str, number: int) -> LogSample | None:
        cells = bare.split("|")
        opened = _section_opened_by(bare)
        if opened is not None:
            self._enter(opened, number)
            if opened is _Section.GPUS:
                self._begin_table()
        elif self._section is _Section.GPUS:
            return self._gpu_line(cells, number)
        elif self._section is _Section.INSTANCES:
            return self._instance(cells)
        elif _name_row(cells) is not None:  # the first line of its table is missing
            self._skipped.add(Refusal.CUT_TABLE, number)
        return None

    def _gpu_line(self, cells: Sequence[str], number: int) -> LogSample | None:
        gpu, self._waiting = self._waiting, _name_row(cells)
        is_answer = gpu is not None and len(cells) == _GPU_ROW_CELLS and "/" in cells[1]
        found = _ANSWER_AND_MODE.fullmatch(cells[3]) if is_answer else None
        if gpu is not None and found is not None:
            used_bytes, total_bytes = _used_and_total(cells[2])
            logged = replace(gpu, memory_bytes=total_bytes)
            position = self._last_gpu = self._gpus.position((gpu.index, None), logged)
            ratio = ratio_in(found[1])
            line = "|".join(cells)
            return self._sample(position, self._table_ns, ratio, number, used_bytes, line)
        if gpu is not None or not (self._waiting or _is_mig_line(cells) or _is_heading(cells)):
            self._skipped.add(Refusal.CUT_TABLE, number)
        elif self._waiting is not None:
            self._last_gpu = None
        elif _is_mig_line(cells) and self._last_gpu is not None:
            self._gpus.mark_partitioned(self._last_gpu)
            self._has_answer = True
        return None

    def _instance(self, cells: Sequence[str]) -> LogSample | None:
        """Return a MIG instance; the table shows its memory but no utilisation."""
        found = _INSTANCE.fullmatch(cells[1]) if len(cells) == _INSTANCE_ROW_CELLS else None
        if found is None or self._table_ns is None:
            return None
        used_bytes, total_bytes = _used_and_total(cells[2])
        key = int(found[1]), int(found[2])
        logged = LoggedGpu(index=key[0], mig_index=key[1], memory_bytes=total_bytes)
        position = self._gpus.position(key, logged)
        return None if position is None else LogSample(position, self._table_ns, None, used_bytes)

    def _enter(self, section: _Section, number: int) -> None:
        if self._waiting is not None:
            self._skipped.add(Refusal.CUT_TABLE, number)
        self._section, self._waiting, self._last_gpu = section, None, None

    def _begin_table(self) -> None:
        date, self._date = self._date, None
        if self._counts_rows:
            self._table_ns = self._row_clock.next_ns(0)
        else:
            self._table_ns = None if date is None else date.stamp_ns

    def _outside(self, bare: str, number: int) -> None:
        date = date_in(bare)
        if date is not None:
            self._enter(_Section.OUTSIDE, number)
            self._date = date
        else:
            self._foreign(bare, number, None if self._date is None else self._date.stamp_ns)


def _first_date(head: Sequence[str]) -> PrintedDate | None:
    """Return the date of the first table with one."""
    date: PrintedDate | None = None
    for line in head:
        bare = line.strip()
        if bare.startswith("|"):
            if date is not None and _section_opened_by(bare) is _Section.GPUS:
                return date
        elif not bare.startswith("+"):
            date = date_in(bare) or date
    return None


def _section_opened_by(bare: str) -> _Section | None:
    """Return the section that a framed line opens; ``None``: it opens none."""
    title = bare[1:20].lstrip()
    opened = (_Section.GPUS, _Section.INSTANCES, _Section.PROCESSES)
    return next((section for section in opened if title.startswith(section.value)), None)


def _name_row(cells: Sequence[str]) -> LoggedGpu | None:
    bus = _BUS_ID.search(cells[2]) if len(cells) == _GPU_ROW_CELLS else None
    if bus is None:
        return None
    found = _INDEX_AND_NAME.fullmatch(cells[1].strip())
    return LoggedGpu(int(found[1]), name=found[2].rstrip(), bus_id=bus[0]) if found else None


def _used_and_total(cell: str) -> tuple[int | None, int | None]:
    used, _, total = cell.partition("/")
    return bytes_in(used), bytes_in(total)


def _is_mig_line(cells: Sequence[str]) -> bool:
    """Return whether the third row of a GPU says that it is MIG-partitioned."""
    return len(cells) == _GPU_ROW_CELLS and cells[3].strip() == "Enabled" and not cells[1].strip()


def _is_heading(cells: Sequence[str]) -> bool:
    """Return whether a framed line is a heading, or blank."""
    text = cells[1] if len(cells) > 1 else ""
    if len(cells) == _GPU_ROW_CELLS and not text.strip():
        return not cells[2].strip()
    return text.strip().startswith(("GPU  Name", "Fan  Temp"))
