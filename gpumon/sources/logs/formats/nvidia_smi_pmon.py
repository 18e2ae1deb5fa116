"""``nvidia-smi pmon``: a row for each process and tick; a GPU is as busy as its processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.log_sample import LogFacts, LogFormat, LoggedGpu, LogOptions, LogSample
from gpumon.sources.logs.log_text import numbered_lines
from gpumon.sources.logs.monitor_table import UNUSABLE, MonitorColumns, MonitorHeader, header_mark
from gpumon.sources.logs.table.cells import MemoryCells, Refusal, SkippedLines, UtilizationCells
from gpumon.sources.logs.table.gpu_rows import GpuTable

_MOST_SIGNS: Final = 4_096
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
        return bool(process != _NOBODY and self.processes.isdisjoint((process, _NOBODY)))


class NvidiaSmiPmonLog:
    """One log of ``nvidia-smi pmon``, in blanks or commas.

    A tick of a GPU is over when its stamp changes, another GPU's rows begin or
    a process comes up again. A row that cannot be used may have been of the
    tick before it or after it: neither's sum is known then.

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
        self._columns = MonitorColumns("pid", "sm", period_ns=options.period_ns)
        self._splits = -1
        self._tick: _Tick | None = None
        self._next_is_whole = True
        self._ever_answered: set[int] = set()
        self._usable_ticks = 0

    def samples(self) -> Iterator[LogSample]:
        """Every tick of every GPU, in file order.

        Raises:
            UnreadableLogError: No row with a utilisation, or a stream that breaks off.
        """
        return self._rows()

    def facts(self) -> LogFacts:
        """What is known so far; complete once ``samples`` is exhausted."""
        return self._columns.facts(self._table.gpus, self._skipped, _NOTE)

    def _rows(self) -> Iterator[LogSample]:
        number = 0
        for number, line in numbered_lines(self._lines):
            fits = len(line) < _MOST_SIGNS
            cells = line.split(self._columns.separator, self._splits) if fits else []
            if len(cells) != self._columns.width or "#" in cells[0]:
                self._odd_line(line, number)
                continue
            done = self._take(cells, number)
            if done is not None:
                yield done
        last = self._finish()
        if last is not None:
            yield last
        if not self._usable_ticks:
            reasons = " ".join(self._skipped.sentences())
            raise UnreadableLogError(
                f"{self._name}: no row with a utilisation in {number} lines; `nvidia-smi pmon` "
                f"tells it in the column sm, with -s u. {reasons}"
            )

    def _take(self, cells: Sequence[str], number: int) -> LogSample | None:
        """Add one row; the tick that is over by it, if one is."""
        gpu = self._position_of(cells[self._gpu_at].strip())
        if gpu is None:
            self._refuse(Refusal.NOBODY, number)
            return None
        stamp_ns = None
        if not self._counts_rows:
            stamp_ns = self._clock.stamp_ns(cells)
            if stamp_ns is None:
                self._refuse(Refusal.STAMP, number)
                return None
        process = cells[self._pid_at].strip()
        done = None
        tick = self._tick
        if tick is None or not tick.has_room_for(gpu, stamp_ns, process):
            done = self._finish()
            tick = self._tick = _Tick(gpu, stamp_ns, number, self._next_is_whole)
            self._next_is_whole = True
        if len(tick.processes) < _MOST_PROCESSES:
            tick.processes.add(process)
            self._add(tick, cells, number)
        else:
            self._refuse(Refusal.FOREIGN, number)
        return done

    def _add(self, tick: _Tick, cells: Sequence[str], number: int) -> None:
        ratio = self._cells.read(cells[self._sm_at])
        if not isinstance(ratio, Refusal):
            tick.busy_ratio = (tick.busy_ratio or 0.0) + ratio
        elif ratio is not Refusal.NO_ANSWER:
            self._skipped.add(ratio, number)
            tick.is_whole = False
        if self._fb_at is not None:
            used = self._memory.bytes_of(cells[self._fb_at])
            if used is not None:
                tick.memory_bytes = (tick.memory_bytes or 0) + used

    def _finish(self) -> LogSample | None:
        """The tick that is over, as a sample of its GPU."""
        tick, self._tick = self._tick, None
        if tick is None:
            return None
        stamp_ns = self._clock.next_ns(tick.gpu) if tick.stamp_ns is None else tick.stamp_ns
        if not tick.is_whole:
            return LogSample(tick.gpu, stamp_ns, None)
        ratio = tick.busy_ratio
        if ratio is not None:
            self._ever_answered.add(tick.gpu)
        elif _NOBODY in tick.processes or tick.gpu in self._ever_answered:
            ratio = 0.0  # a process that did nothing since the last tick has a dash, too
        else:
            self._skipped.add(Refusal.NO_ANSWER, tick.line_number)
            return LogSample(tick.gpu, stamp_ns, None, tick.memory_bytes)
        self._usable_ticks += 1
        return LogSample(tick.gpu, stamp_ns, min(ratio, 1.0), tick.memory_bytes)

    def _refuse(self, reason: Refusal, number: int) -> None:
        self._skipped.add(reason, number)
        self._next_is_whole = False
        if self._tick is not None:
            self._tick.is_whole = False

    def _odd_line(self, line: str, number: int) -> None:
        if len(line) >= _MOST_SIGNS:
            self._skipped.add(Refusal.TOO_LONG, number)
            return
        bare = line.strip()
        if bare.startswith("#"):
            self._take_header(line)
        elif self._columns.width == UNUSABLE:
            if bare:
                reason = self._columns.refusal if bare[0].isdigit() else Refusal.FOREIGN
                self._skipped.add(reason, number)
        elif bare[:1].isdigit():
            self._refuse(Refusal.WIDTH, number)
        elif bare:
            self._skipped.add(Refusal.FOREIGN, number)

    def _take_header(self, line: str) -> None:
        header = self._columns.take(line)
        if header is not None and self._columns.clock is not None:
            self._clock = self._columns.clock
            self._counts_rows = self._clock.counts_rows
            self._adopt(header)

    def _adopt(self, header: MonitorHeader) -> None:
        self._pid_at, self._sm_at = header.at("pid") or 0, header.at("sm") or 0
        # A command may have blanks and commas in it.
        self._splits = self._columns.width - 1 if header.names[-1] == "command" else -1
        self._gpu_at = header.at("gpu") or 0
        self._fb_at = header.at("fb")

    def _position_of(self, text: str) -> int | None:
        if not text.isdecimal() or len(text) > 4:
            return None
        return self._table.position(int(text), LoggedGpu(index=int(text)))


FORMAT: Final = LogFormat(
    title="nvidia-smi pmon", mark=header_mark(has_pid=True), reader=NvidiaSmiPmonLog
)
