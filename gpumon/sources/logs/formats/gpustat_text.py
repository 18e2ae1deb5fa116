"""What ``gpustat -i`` prints for people: a head with the moment, and a line for each GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.ctime_stamps import CLOCK, find_ctime
from gpumon.sources.logs.gpu_table import GpuTable
from gpumon.sources.logs.log_format import LogFormat, line_like
from gpumon.sources.logs.log_sample import LogFacts, LoggedGpu, LogOptions, LogSample
from gpumon.sources.logs.row_clock import RowClock
from gpumon.sources.logs.stamps import NO_CLOCK, DateStamps
from gpumon.sources.logs.utilization_cells import Refusal, SkippedLines, UtilizationCells

_MIB: Final = 1 << 20
_COLOUR: Final = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\([A-Z0-9])|\r")
_GPU: Final = re.compile(
    r"\[(?P<index>\d{1,4})\] (?P<name>[^|]*?) *\| *(?P<state>[^|]*)"
    r"\|(?: *(?P<used>\d{1,9}|\?+) */ *(?P<total>\d{1,9}|\?+) MB)?",
    re.ASCII,
)
_PERCENTS: Final = re.compile(r"([ED]:)?\s*(\d{1,9}|\?+) %", re.ASCII)
"""Of the fan, if it is shown, of the GPU, and marked by a letter of its encoder and decoder."""
_ISO: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_HEAD: Final = re.compile(r"(?P<host>\S+)  +\S.*\d:\d\d")
_UNKNOWN: Final = "[N/A]"


class GpustatTextLog:
    """The lines for people, with or without colours and head.

    Args:
        lines: The log's text.
        name: What to call it in sentences.
        options: ``period_ns`` where the log has no heads.
    """

    def __init__(self, lines: Iterator[str], *, name: str, options: LogOptions) -> None:
        self._lines = lines
        self._name = name
        self._skipped = SkippedLines()
        self._table = GpuTable()
        self._known: dict[tuple[str, str], int] = {}
        self._cells = UtilizationCells(is_percent=True)
        self._row_clock = RowClock(options.period_ns)
        self._iso = DateStamps()
        self._host = ""
        self._has_heads: bool | None = None
        self._told = False

    def samples(self) -> Iterator[LogSample]:
        """A sample of each line of a GPU.

        Raises:
            UnreadableLogError: No line says how busy a GPU was.
        """
        stamp_ns: int | None = None
        for number, raw in enumerate(self._lines, start=1):
            line = _COLOUR.sub("", raw) if "\x1b" in raw or "\r" in raw else raw
            found = _GPU.match(line)
            if found is not None:
                if self._has_heads is None:
                    self._has_heads = False
                yield from self._sample(found, stamp_ns, number)
                continue
            head = _HEAD.match(line)
            if head is not None and self._has_heads is not False:
                self._has_heads = True
                self._host = head["host"]
                stamp_ns = self._moment(line)
        if not self._told:
            reasons = " ".join(self._skipped.sentences())
            raise UnreadableLogError(f"{self._name}: no line with a utilisation. {reasons}")

    def facts(self) -> LogFacts:
        """What is known so far; complete once ``samples`` is exhausted."""
        counted = self._has_heads is False
        return LogFacts(
            clock=NO_CLOCK if counted else CLOCK,
            gpus=tuple(self._table.gpus),
            skipped_lines=self._skipped.count,
            period_ns=self._row_clock.period_ns if counted else None,
            notes=(*((self._row_clock.note,) if counted else ()), *self._skipped.sentences()),
        )

    def _moment(self, line: str) -> int | None:
        stamp_ns = find_ctime(line)
        if stamp_ns is None:
            iso = _ISO.search(line)
            stamp_ns = self._iso.parse(iso[0]) if iso else None
        return stamp_ns

    def _sample(
        self, found: re.Match[str], stamp_ns: int | None, number: int
    ) -> Iterator[LogSample]:
        gpu = self._known.get((self._host, found["index"]))
        if gpu is None:
            gpu = self._new_gpu(found)
        if gpu is None:
            self._skipped.add(Refusal.NOBODY, number)
            return
        if self._has_heads:
            if stamp_ns is None:
                self._skipped.add(Refusal.STAMP, number)
                return
        else:
            stamp_ns = self._row_clock.next_ns(gpu)
        percents = [cell for codec, cell in _PERCENTS.findall(found["state"]) if not codec]
        cell = percents[-1] if percents else ""
        ratio = self._cells.read(_UNKNOWN if cell.startswith("?") else cell)
        if isinstance(ratio, Refusal):
            self._skipped.add(ratio, number)
            yield LogSample(gpu, stamp_ns, None)
            return
        self._told = True
        used = found["used"]
        yield LogSample(gpu, stamp_ns, ratio, int(used) * _MIB if used and used.isdigit() else None)

    def _new_gpu(self, found: re.Match[str]) -> int | None:
        key, total = (self._host, found["index"]), found["total"]
        gpu = self._table.position(
            key,
            LoggedGpu(
                index=int(found["index"]),
                name=found["name"],
                memory_bytes=int(total) * _MIB if total and total.isdigit() else None,
            ),
        )
        if gpu is not None:
            self._known[key] = gpu
        return gpu


FORMAT: Final = LogFormat(
    title="gpustat's lines",
    mark=line_like(r"^(?:\x1b\[[0-9;]*m)*\[\d{1,4}\](?:\x1b\[[0-9;]*m)* [^|]*\|.*(?:°|'|º)C"),
    reader=GpustatTextLog,
)
