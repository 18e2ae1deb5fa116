"""``nvidia-smi dmon``: a row for each GPU and tick, with any ``-s`` and any ``-o``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.log_sample import LogFacts, LogFormat, LoggedGpu, LogOptions, LogSample
from gpumon.sources.logs.log_text import numbered_lines
from gpumon.sources.logs.monitor_table import UNUSABLE, MonitorColumns, MonitorHeader, header_mark
from gpumon.sources.logs.table.cells import MemoryCells, Refusal, SkippedLines, UtilizationCells
from gpumon.sources.logs.table.gpu_rows import GpuTable

_MOST_SIGNS: Final = 4_096
"""More signs than a row of any ``-s`` has."""


class NvidiaSmiDmonLog:
    """One log of ``nvidia-smi dmon``, in blanks or commas.

    ``sm`` is NVML's utilisation of the GPU, ``fb`` its memory in use. A
    header may come at any time and move the columns.

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
        self._positions: dict[str, int] = {}
        self._instances: dict[int, int] = {}
        self._columns = MonitorColumns("sm", period_ns=options.period_ns)
        self._usable_rows = 0

    def samples(self) -> Iterator[LogSample]:
        """Every row with a GPU and a moment, in file order.

        Raises:
            UnreadableLogError: No row with a utilisation, or a stream that breaks off.
        """
        return self._rows()

    def facts(self) -> LogFacts:
        """What is known so far; complete once ``samples`` is exhausted."""
        return self._columns.facts(self._table.gpus, self._skipped)

    def _rows(self) -> Iterator[LogSample]:
        number = 0
        for number, line in numbered_lines(self._lines):
            cells = line.split(self._columns.separator) if len(line) < _MOST_SIGNS else []
            if len(cells) != self._columns.width or "#" in cells[0]:
                self._odd_line(line, number)
                continue
            sample = self._sample(cells, number)
            if sample is not None:
                yield sample
        if not self._usable_rows:
            reasons = " ".join(self._skipped.sentences())
            raise UnreadableLogError(
                f"{self._name}: no row with a utilisation in {number} lines; `nvidia-smi dmon` "
                f"tells it in the column sm, with -s u. {reasons}"
            )

    def _sample(self, cells: Sequence[str], number: int) -> LogSample | None:
        gpu = self._positions.get(cells[self._gpu_at]) if self._instance_at is None else None
        if gpu is None:
            gpu = self._position_of(cells)
            if gpu is None:
                self._skipped.add(Refusal.NOBODY, number)
                return None
        ratio = self._cells.read(cells[self._sm_at])
        stamp_ns = self._stamp_ns(cells, gpu)
        if isinstance(ratio, Refusal):
            self._skipped.add(ratio, number)
            return None if stamp_ns is None else LogSample(gpu, stamp_ns, None)
        if stamp_ns is None:
            self._skipped.add(Refusal.STAMP, number)
            return None
        self._usable_rows += 1
        used = None if self._fb_at is None else self._memory.bytes_of(cells[self._fb_at])
        return LogSample(gpu, stamp_ns, ratio, used)

    def _stamp_ns(self, cells: Sequence[str], gpu: int) -> int | None:
        return self._clock.next_ns(gpu) if self._counts_rows else self._clock.stamp_ns(cells)

    def _odd_line(self, line: str, number: int) -> None:
        if len(line) >= _MOST_SIGNS:
            self._skipped.add(Refusal.TOO_LONG, number)
            return
        bare = line.strip()
        if bare.startswith("#"):
            self._take_header(line)
        elif bare:
            is_row = bare[0].isdigit()
            wrong = self._columns.refusal if self._columns.width == UNUSABLE else Refusal.WIDTH
            self._skipped.add(wrong if is_row else Refusal.FOREIGN, number)

    def _take_header(self, line: str) -> None:
        header = self._columns.take(line)
        if header is not None and self._columns.clock is not None:
            self._clock = self._columns.clock
            self._counts_rows = self._clock.counts_rows
            self._adopt(header)

    def _adopt(self, header: MonitorHeader) -> None:
        self._gpu_at = header.at("gpu") or 0
        self._sm_at = header.at("sm") or 0
        self._fb_at = header.at("fb")
        self._instance_at = header.at("gi")
        self._compute_at = header.at("ci")

    def _position_of(self, cells: Sequence[str]) -> int | None:
        text = cells[self._gpu_at]
        bare = text.strip()
        if not bare.isdecimal() or len(bare) > 4:
            return None
        index = int(bare)
        instance = None if self._instance_at is None else cells[self._instance_at].strip()
        if instance is None or not instance.isdecimal():
            position = self._table.position(index, LoggedGpu(index=index))
            if position is not None and self._instance_at is None:
                self._positions[text] = position
            return position
        compute = "" if self._compute_at is None else cells[self._compute_at].strip()
        nth = self._instances.get(index, 0)
        known = len(self._table.gpus)
        position = self._table.position(
            (index, instance, compute), LoggedGpu(index=index, mig_index=nth)
        )
        if len(self._table.gpus) > known:
            self._instances[index] = nth + 1
        return position


FORMAT: Final = LogFormat(
    title="nvidia-smi dmon", mark=header_mark(has_pid=False), reader=NvidiaSmiDmonLog
)
