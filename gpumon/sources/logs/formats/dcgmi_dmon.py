"""``dcgmi dmon``: a row for each GPU and MIG instance, of whatever fields ``-e`` named."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

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
from gpumon.sources.logs.stamps.log_clock import NO_CLOCK, RowClock
from gpumon.sources.logs.table.cells import MemoryCells, Refusal, SkippedLines, UtilizationCells
from gpumon.sources.logs.table.gpu_rows import GpuTable

_UNUSABLE: Final = -1
_MOST_SIGNS: Final = 8_192
_HEADER: Final = re.compile(r"\s*#\s*Entity\s+(\S.*)", re.DOTALL)
_IDS: Final = re.compile(r"(?:#\s*)?id", re.I)
_NUMBER: Final = re.compile(r"\d{1,5}", re.ASCII)
_GPU: Final = "GPU"
_INSTANCE: Final = "GPU-I"
_PASSED_OVER: Final = frozenset(["GPU-CI", "Switch", "Link", "CPU", "CPU-Core", "Core", "Global"])
"""Entities that are no GPU and no instance: a compute instance is a part of one."""
_BUSY_FIELDS: Final = {"GPUTL": True, "GRACT": False, "SMACT": False}
"""Fields that tell how busy, the best first, and whether each is in percent."""
_MEANING: Final = {
    "GPUTL": "GPUTL (203), the driver's utilisation",
    "GRACT": "GRACT (1001), the share of time with any work in the GPU's engines",
    "SMACT": "SMACT (1002), the mean over the multiprocessors: lower than a utilisation would be",
}


class DcgmiDmonLog:
    """One log of ``dcgmi dmon``. It has no stamps, whatever ``-d`` was.

    Args:
        lines: The log's text.
        name: What to call it in sentences.
        options: What the user said about it.
    """

    def __init__(self, lines: Iterator[str], *, name: str, options: LogOptions) -> None:
        self._lines = lines
        self._name = name
        self._skipped = SkippedLines()
        self._clock = RowClock(options.period_ns)
        self._memory = MemoryCells()
        self._readers = {
            field: UtilizationCells(is_percent=percent) for field, percent in _BUSY_FIELDS.items()
        }
        self._table = GpuTable()
        self._positions: dict[tuple[str, str], int] = {}
        self._width = _UNUSABLE
        self._unusable = Refusal.UNHEADED
        self._busy_at: tuple[tuple[str, int], ...] = ()
        self._used_at: int | None = None
        self._fields_taken: dict[str, None] = {}
        self._usable_rows = 0

    def samples(self) -> Iterator[LogSample]:
        """Every row of a GPU or a MIG instance, in file order.

        Raises:
            UnreadableLogError: No row with a utilisation, or a stream that breaks off.
        """
        number = 0
        for number, line in numbered_lines(self._lines):
            cells = _cells_of(line) if len(line) < _MOST_SIGNS else []
            if len(cells) != self._width or cells[0][0] == "#":
                self._odd_line(line, cells, number)
                continue
            sample = self._sample(cells, number)
            if sample is not None:
                yield sample
        if not self._usable_rows:
            reasons = " ".join(self._skipped.sentences())
            raise UnreadableLogError(
                f"{self._name}: no row with a utilisation in {number} lines; `dcgmi dmon -e "
                f"203,252` tells it, and the memory in use. {reasons}"
            )

    def facts(self) -> LogFacts:
        """What is known so far; complete once ``samples`` is exhausted."""
        taken = "; where that has no answer ".join(_MEANING[field] for field in self._fields_taken)
        return LogFacts(
            clock=NO_CLOCK,
            gpus=tuple(self._table.gpus),
            skipped_lines=self._skipped.count,
            period_ns=self._clock.period_ns,
            notes=(
                *((f"Busy is {taken}.",) if taken else ()),
                self._clock.note,
                *self._skipped.sentences(),
            ),
        )

    def _sample(self, cells: Sequence[str], number: int) -> LogSample | None:
        kind, entity = cells[0], cells[1]
        gpu = self._positions.get((kind, entity))
        if gpu is None:
            gpu = self._position_of(kind, entity)
            if gpu is None:
                if kind not in _PASSED_OVER:
                    self._skipped.add(Refusal.NOBODY, number)
                return None
        ratio = self._ratio(cells)
        stamp_ns = self._clock.next_ns(gpu)
        if isinstance(ratio, Refusal):
            self._skipped.add(ratio, number)
            return LogSample(gpu, stamp_ns, None)
        self._usable_rows += 1
        used = None if self._used_at is None else self._memory.bytes_of(cells[self._used_at])
        return LogSample(gpu, stamp_ns, ratio, used)

    def _ratio(self, cells: Sequence[str]) -> float | Refusal:
        """The best field that has an answer."""
        said: float | Refusal = Refusal.NO_ANSWER
        for field, position in self._busy_at:
            said = self._readers[field].read(cells[position])
            if said is not Refusal.NO_ANSWER:
                if field not in self._fields_taken:
                    self._fields_taken[field] = None
                break
        return said

    def _odd_line(self, line: str, cells: Sequence[str], number: int) -> None:
        if len(line) >= _MOST_SIGNS:
            self._skipped.add(Refusal.TOO_LONG, number)
        elif line.lstrip().startswith("#"):
            self._take_header(line, number)
        elif cells and _IDS.fullmatch(line.strip()) is None:
            is_row = len(cells) > 1 and _NUMBER.fullmatch(cells[1]) is not None
            wrong = self._unusable if self._width == _UNUSABLE else Refusal.WIDTH
            self._skipped.add(wrong if is_row else Refusal.FOREIGN, number)

    def _take_header(self, line: str, number: int) -> None:
        found = _HEADER.fullmatch(line)
        if found is None:
            if _IDS.fullmatch(line.strip()) is None:
                self._width, self._unusable = _UNUSABLE, Refusal.UNHEADED
                self._skipped.add(Refusal.FOREIGN, number)
            return
        # An entity is two words in a row, "GPU 0", and one in the header.
        names = ["", "", *found[1].upper().split()]
        self._busy_at = tuple(
            (field, names.index(field)) for field in _BUSY_FIELDS if field in names
        )
        self._used_at = names.index("FBUSD") if "FBUSD" in names else None
        self._width = len(names) if self._busy_at else _UNUSABLE
        self._unusable = Refusal.HEADER

    def _position_of(self, kind: str, entity: str) -> int | None:
        if _NUMBER.fullmatch(entity) is None or kind not in (_GPU, _INSTANCE):
            return None
        told = LoggedGpu(index=int(entity)) if kind == _GPU else self._instance(int(entity))
        position = self._table.position((kind, int(entity)), told)
        if position is not None:
            self._positions[kind, entity] = position
        return position

    def _instance(self, number: int) -> LoggedGpu:
        """A MIG instance, whose GPU dcgmi does not name: it is known where there is but one."""
        gpus = [at for at, gpu in enumerate(self._table.gpus) if gpu.mig_index is None]
        if len(gpus) != 1:
            return LoggedGpu(name=f"{_INSTANCE} {number}")
        whole = self._table.gpus[gpus[0]]
        self._table.gpus[gpus[0]] = replace(whole, mig_enabled=True)
        return LoggedGpu(index=whole.index, mig_index=number)


def _cells_of(line: str) -> list[str]:
    """The words of a line, where an answer is one word.

    >>> _cells_of("GPU 0  Not Supported  12.5")
    ['GPU', '0', 'N/A', '12.5']
    """
    return (line.replace("Not Supported", "N/A") if " Not S" in line else line).split()


FORMAT: Final = LogFormat(
    title="dcgmi dmon", mark=line_like(r"^\s*#\s*Entity\s+[A-Z]"), reader=DcgmiDmonLog
)
