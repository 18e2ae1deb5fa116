"""``nvidia-smi pmon``: a row for each process and tick; a GPU is as busy as its processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from gpumon.sources.logs.formats.nvidia_smi_dmon import ScrollingTable, TableHeader, header_mark
from gpumon.sources.logs.gpu_log import Rows
from gpumon.sources.logs.log_sample import LoggedGpu, LogOptions, LogSample
from gpumon.sources.logs.table.cell_values import bytes_in
from gpumon.sources.logs.table.skipped_lines import Refusal

_MOST_PROCESSES: Final = 16_384
"""Processes of one GPU at one moment: more are no such table, and would take all memory."""
_NOBODY: Final = "-"
_NOTE: Final = (
    "pmon tells of processes: a GPU's utilisation is the sum over its processes, at most 100 %, "
    "and 0 where it has none."
)


@dataclass(slots=True)
class _Tick:
    """What the processes of one GPU said at one moment.

    Attributes:
        gpu: Position of the GPU.
        stamp_ns: ``None`` where the rows have no stamp.
        line_number: Of its first row.
        processes: Whose rows were taken; ``"-"``: the GPU has none.
        busy_ratio: Their sum; ``None``: none of them answered.
        memory_bytes: Likewise.
        is_whole: Whether all its rows can be used; else the sum is not known.
    """

    gpu: int
    stamp_ns: int | None
    line_number: int
    is_whole: bool
    processes: set[str] = field(default_factory=set)
    busy_ratio: float | None = None
    memory_bytes: int | None = None

    def has_room_for(self, gpu: int, stamp_ns: int | None, process: str) -> bool:
        """Whether a row belongs here: no process comes twice, and none beside "no process"."""
        if gpu != self.gpu or stamp_ns != self.stamp_ns:
            return False
        return process != _NOBODY and self.processes.isdisjoint((process, _NOBODY))


class NvidiaSmiPmonLog(ScrollingTable):
    """One log of ``nvidia-smi pmon``, in blanks or commas.

    A tick of a GPU is over when its stamp changes, another GPU's rows begin or
    a process comes up again. A row that cannot be used may have been of the
    tick before it or after it: neither's sum is known then.
    """

    title = "nvidia-smi pmon"
    mark = header_mark(has_pid=True)
    needed = ("pid", "sm")

    def __init__(self, lines: Iterator[str], *, name: str, options: LogOptions) -> None:
        super().__init__(lines, name=name, options=options)
        self._tick: _Tick | None = None
        self._next_is_whole = True
        self._ever_answered: set[int] = set()

    def _read(self) -> Rows:
        yield from super()._read()
        yield from self._finish()

    def _notes(self) -> list[str]:
        return [_NOTE, *super()._notes()]

    def _row(self, cells: Sequence[str], number: int) -> Rows:
        """Add one row; the tick that is over by it, if one is."""
        index = self._gpu_number(cells[self._gpu_at])
        gpu = None if index is None else self._gpus.position(index, LoggedGpu(index=index))
        if gpu is None:
            self._refuse(Refusal.NOBODY, number)
            return
        stamp_ns = None if self._counts_rows else self._stamp_ns(cells)
        if stamp_ns is None and not self._counts_rows:
            self._refuse(Refusal.STAMP, number)
            return
        process = cells[self._pid_at].strip()
        tick = self._tick
        if tick is None or not tick.has_room_for(gpu, stamp_ns, process):
            yield from self._finish()
            tick = self._tick = _Tick(gpu, stamp_ns, number, self._next_is_whole)
            self._next_is_whole = True
        if len(tick.processes) < _MOST_PROCESSES:
            tick.processes.add(process)
            self._add(tick, cells, number)
        else:
            self._refuse(Refusal.FOREIGN, number)

    def _add(self, tick: _Tick, cells: Sequence[str], number: int) -> None:
        ratio = self._cells.read(cells[self._sm_at])
        if not isinstance(ratio, Refusal):
            tick.busy_ratio = (tick.busy_ratio or 0.0) + ratio
        elif ratio is not Refusal.NO_ANSWER:
            self._skipped.add(ratio, number)
            tick.is_whole = False
        if self._fb_at is not None:
            used = bytes_in(cells[self._fb_at])
            if used is not None:
                tick.memory_bytes = (tick.memory_bytes or 0) + used

    def _finish(self) -> Rows:
        tick, self._tick = self._tick, None
        if tick is None:
            return
        stamp_ns = self._row_clock.next_ns(tick.gpu) if tick.stamp_ns is None else tick.stamp_ns
        if not tick.is_whole:
            yield LogSample(tick.gpu, stamp_ns, None)
            return
        ratio: float | Refusal = Refusal.NO_ANSWER
        if tick.busy_ratio is not None:
            self._ever_answered.add(tick.gpu)
            ratio = min(tick.busy_ratio, 1.0)
        elif _NOBODY in tick.processes or tick.gpu in self._ever_answered:
            ratio = 0.0  # a process that did nothing since the last tick has a dash, too
        yield self._sample(tick.gpu, stamp_ns, ratio, tick.line_number, tick.memory_bytes)

    def _refuse(self, reason: Refusal, number: int) -> None:
        super()._refuse(reason, number)
        self._next_is_whole = False
        if self._tick is not None:
            self._tick.is_whole = False

    def _adopt(self, header: TableHeader) -> None:
        self._pid_at = header.at("pid") or 0
        # A command may have blanks and commas in it.
        self._most_splits = len(header.names) - 1 if header.names[-1] == "command" else -1


FORMAT: Final = NvidiaSmiPmonLog
