"""``dcgmi dmon``: a row for each GPU and MIG instance, of whatever fields ``-e`` named."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.sources.logs.driver_words import CELL_CODES
from gpumon.sources.logs.formats.nvidia_smi_dmon import ScrollingTable, TableHeader
from gpumon.sources.logs.gpu_log import Rows
from gpumon.sources.logs.log_sample import LoggedGpu, LogOptions, line_like
from gpumon.sources.logs.table.cell_values import UtilizationCells, bytes_in
from gpumon.sources.logs.table.skipped_lines import Refusal

_HEADER: Final = re.compile(r"#\s*Entity\s")
_ENTITY: Final = re.compile(r"^([A-Z][A-Za-z-]{1,15}) {1,9}(\d{1,5})(?=\s)", re.ASCII)
_INSTANCE: Final = "GPU-I"
_PASSED_OVER: Final = frozenset(["GPU-CI", "Switch", "Link", "CPU", "CPU-Core", "Core", "Global"])
"""Entities that are no GPU and no instance: a compute instance is a part of one."""
_MEANING: Final = {
    "gputl": "GPUTL (203), the driver's utilisation",
    "gract": "GRACT (1001), the share of time in which any engine of the GPU had work",
    "smact": "SMACT (1002), the mean over the multiprocessors: lower than a utilisation would be",
}
"""Fields that tell how busy, the best first."""


class DcgmiDmonLog(ScrollingTable):
    """One log of ``dcgmi dmon``. It has no stamps, whatever ``-d`` was."""

    title = "dcgmi dmon"
    mark = line_like(r"^\s*#\s*Entity\s+[A-Z]")
    busy = tuple(_MEANING)
    nothing = (
        "no row with a utilisation in {lines} lines; `dcgmi dmon -e 203,252` tells it, and the "
        "memory in use."
    )

    def __init__(self, lines: Iterator[str], *, name: str, options: LogOptions) -> None:
        super().__init__(lines, name=name, options=options)
        self._readers = {field: UtilizationCells(is_percent=field == "gputl") for field in _MEANING}
        self._counts_rows = True
        self._fields_taken: dict[str, None] = {}

    def _numbered(self, longest: int) -> Iterator[tuple[int, str]]:
        for number, line in super()._numbered(longest):
            yield number, _as_dmon(line)

    def _notes(self) -> list[str]:
        taken = "; where that has no answer ".join(_MEANING[field] for field in self._fields_taken)
        return [*([f"Busy is {taken}."] if taken else ()), *super()._notes()]

    def _adopt(self, header: TableHeader) -> None:
        self._entity_at = header.at("entity") or 0

    def _row(self, cells: Sequence[str], number: int) -> Rows:
        kind, entity = cells[self._entity_at], self._gpu_number(cells[self._gpu_at])
        gpu = None if entity is None else self._position_of(kind, entity)
        if gpu is None:
            if kind not in _PASSED_OVER:
                self._skipped.add(Refusal.NOBODY, number)
            return
        used = None if self._fb_at is None else bytes_in(cells[self._fb_at])
        stamp_ns = self._row_clock.next_ns(gpu)
        yield self._sample(gpu, stamp_ns, self._ratio(cells), number, used)

    def _ratio(self, cells: Sequence[str]) -> float | Refusal:
        """The best field that has an answer."""
        said: float | Refusal = Refusal.NO_ANSWER
        for field, position in self._busy_at.items():
            said = self._readers[field].read(cells[position])
            if said is not Refusal.NO_ANSWER and said not in CELL_CODES:
                self._fields_taken[field] = None
                break
        return said

    def _position_of(self, kind: str, entity: int) -> int | None:
        if kind not in ("GPU", _INSTANCE):
            return None
        position = self._gpus.known((kind, entity))
        if position is not None:
            return position
        told = LoggedGpu(index=entity) if kind == "GPU" else self._instance(entity)
        return self._gpus.position((kind, entity), told)

    def _instance(self, number: int) -> LoggedGpu:
        """A MIG instance, whose GPU dcgmi does not name: it is known where there is but one."""
        gpus = [at for at, gpu in enumerate(self._gpus.gpus) if gpu.mig_index is None]
        if len(gpus) != 1:
            return LoggedGpu(name=f"{_INSTANCE} {number}")
        return LoggedGpu(index=self._gpus.mark_cut(gpus[0]).index, mig_index=number)


def _as_dmon(line: str) -> str:
    """A line as nvidia-smi dmon would write it.

    >>> _as_dmon("#Entity  GPUTL  FBUSD"), _as_dmon("   GPU 0  Not Supported  12.5"), _as_dmon("ID")
    ('# gpu entity GPUTL  fb', '0 GPU  N/A  12.5', '#')
    """
    bare = line.strip().replace("Not Supported", "N/A")
    if bare.lower().removeprefix("#").strip() == "id":
        return "#"
    if found := _HEADER.match(bare):
        return f"# gpu entity {bare[found.end() :].strip().replace('FBUSD', 'fb')}"
    return _ENTITY.sub(r"\2 \1", bare, count=1)


FORMAT: Final = DcgmiDmonLog
