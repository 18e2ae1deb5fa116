"""``dcgmi dmon``: a row for each GPU and MIG instance, of whatever fields ``-e`` named."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.sources.logs.gpu_log import GpuLog, Rows
from gpumon.sources.logs.log_sample import LoggedGpu, LogOptions, line_like
from gpumon.sources.logs.table.cell_values import UtilizationCells, bytes_in
from gpumon.sources.logs.table.skipped_lines import Refusal

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


class DcgmiDmonLog(GpuLog):
    """One log of ``dcgmi dmon``. It has no stamps, whatever ``-d`` was."""

    title = "dcgmi dmon"
    mark = line_like(r"^\s*#\s*Entity\s+[A-Z]")
    nothing = (
        "no row with a utilisation in {lines} lines; `dcgmi dmon -e 203,252` tells it, and the "
        "memory in use."
    )

    def __init__(self, lines: Iterator[str], *, name: str, options: LogOptions) -> None:
        super().__init__(lines, name=name, options=options)
        self._readers = {
            field: UtilizationCells(is_percent=percent) for field, percent in _BUSY_FIELDS.items()
        }
        self._counts_rows = True
        self._width, self._unusable = _UNUSABLE, Refusal.UNHEADED
        self._busy_at: tuple[tuple[str, int], ...] = ()
        self._used_at: int | None = None
        self._fields_taken: dict[str, None] = {}

    def _read(self) -> Rows:
        for number, line in self._numbered(_MOST_SIGNS):
            cells = _cells_of(line)
            if len(cells) == self._width and cells[0][0] != "#":
                yield from self._row(cells, number)
            else:
                self._odd_line(line, cells, number)

    def _notes(self) -> list[str]:
        taken = "; where that has no answer ".join(_MEANING[field] for field in self._fields_taken)
        return [*([f"Busy is {taken}."] if taken else ()), *super()._notes()]

    def _row(self, cells: Sequence[str], number: int) -> Rows:
        kind, entity = cells[0], cells[1]
        gpu = self._position_of(kind, entity)
        if gpu is None:
            if kind not in _PASSED_OVER:
                self._skipped.add(Refusal.NOBODY, number)
            return
        used = None if self._used_at is None else bytes_in(cells[self._used_at])
        stamp_ns = self._row_clock.next_ns(gpu)
        yield self._sample(gpu, stamp_ns, self._ratio(cells), number, used)

    def _ratio(self, cells: Sequence[str]) -> float | Refusal:
        """The best field that has an answer."""
        said: float | Refusal = Refusal.NO_ANSWER
        for field, position in self._busy_at:
            said = self._readers[field].read(cells[position])
            if said is not Refusal.NO_ANSWER:
                self._fields_taken[field] = None
                break
        return said

    def _odd_line(self, line: str, cells: Sequence[str], number: int) -> None:
        if line.lstrip().startswith("#"):
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
        key = kind, int(entity)
        position = self._gpus.known(key)
        if position is not None:
            return position
        told = LoggedGpu(index=int(entity)) if kind == _GPU else self._instance(int(entity))
        return self._gpus.position(key, told)

    def _instance(self, number: int) -> LoggedGpu:
        """A MIG instance, whose GPU dcgmi does not name: it is known where there is but one."""
        gpus = [at for at, gpu in enumerate(self._gpus.gpus) if gpu.mig_index is None]
        if len(gpus) != 1:
            return LoggedGpu(name=f"{_INSTANCE} {number}")
        return LoggedGpu(index=self._gpus.mark_cut(gpus[0]).index, mig_index=number)


def _cells_of(line: str) -> list[str]:
    """The words of a line, where an answer is one word.

    >>> _cells_of("GPU 0  Not Supported  12.5")
    ['GPU', '0', 'N/A', '12.5']
    """
    return (line.replace("Not Supported", "N/A") if " Not S" in line else line).split()


FORMAT: Final = DcgmiDmonLog
