"""What ``gpustat -i`` prints for people: a head with the moment, and a line for each GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
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
from gpumon.sources.logs.stamps.date_lines import find_ctime
from gpumon.sources.logs.stamps.log_clock import LOCAL_CLOCK, NO_CLOCK, RowClock
from gpumon.sources.logs.stamps.stamp_parsers import DateStamps
from gpumon.sources.logs.table.cells import Refusal, SkippedLines, UtilizationCells
from gpumon.sources.logs.table.gpu_rows import MAX_GPUS, GpuTable

_MIB: Final = 1 << 20
_COLOUR: Final = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\([A-Z0-9])|\r")
_GPU: Final = re.compile(
    r"\[(?P<index>\d{1,4})\] (?P<name>[^|]*)\|(?P<state>[^|]*)"
    r"\|(?: *(?P<used>\d{1,9}|\?+) */ *(?P<total>\d{1,9}|\?+) MB)?",
    re.ASCII,
)
_PERCENTS: Final = re.compile(r"(?:([ED]:)\s*)?(\d{1,9}|\?) %", re.ASCII)
"""Of the fan, if it is shown, of the GPU, and marked by a letter of its encoder and decoder."""
_ISO: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_HEAD: Final = re.compile(r"(?P<host>\S+)  +\S.*\d:\d\d")
_BELOW_GPU: Final = re.compile(r"\s|[├└│|+]")
"""How lines about processes begin, under the line of their GPU."""
_UNKNOWN: Final = "[N/A]"
_MOST_HOSTS: Final = 64


class _Hosts:
    """Whose heads can be believed: a host that is named but once is a head that was damaged.

    Attributes:
        waiting: Lines of GPUs under the only head so far of a host, with their moment and number.
    """

    def __init__(self) -> None:
        self.waiting: dict[str, list[tuple[re.Match[str], int | None, int]]] = {}
        self._sure: set[str] = set()

    def is_sure(self, host: str) -> bool:
        """Whether the host was named twice."""
        return host in self._sure

    def name(self, host: str) -> list[tuple[re.Match[str], int | None, int]]:
        """Take note of a head; the lines that waited for it, if it is the host's second."""
        if host in self._sure:
            return []
        if host in self.waiting:
            self._sure.add(host)
            return self.waiting.pop(host)
        if len(self.waiting) < _MOST_HOSTS:
            self.waiting[host] = []
        return []


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
        self._hosts = _Hosts()
        self._stamp_ns: int | None = None
        self._has_heads: bool | None = None
        self._told = False

    def samples(self) -> Iterator[LogSample]:
        """A sample of each line of a GPU.

        Raises:
            UnreadableLogError: No line says how busy a GPU was.
        """
        for number, raw in numbered_lines(self._lines):
            line = _COLOUR.sub("", raw) if "\x1b" in raw or "\r" in raw else raw
            found = _GPU.match(line)
            if found is None:
                yield from self._other_line(line, number)
                continue
            if self._has_heads is None:
                self._has_heads = False
            if self._has_heads and not self._hosts.is_sure(self._host):
                self._wait(found, number)
            else:
                yield from self._sample(found, self._stamp_ns, number)
        yield from self._named_once()
        if not self._told:
            reasons = " ".join(self._skipped.sentences())
            raise UnreadableLogError(f"{self._name}: no line with a utilisation. {reasons}")

    def facts(self) -> LogFacts:
        """What is known so far; complete once ``samples`` is exhausted."""
        counted = self._has_heads is False
        return LogFacts(
            clock=NO_CLOCK if counted else LOCAL_CLOCK,
            gpus=tuple(self._table.gpus),
            skipped_lines=self._skipped.count,
            period_ns=self._row_clock.period_ns if counted else None,
            notes=(*((self._row_clock.note,) if counted else ()), *self._skipped.sentences()),
        )

    def _other_line(self, line: str, number: int) -> Iterator[LogSample]:
        head = _HEAD.match(line)
        if head is not None and self._has_heads is not False:
            self._has_heads = True
            self._host = head["host"]
            for waiting in self._hosts.name(self._host):
                yield from self._sample(*waiting)
            self._stamp_ns = self._moment(line)
        elif line.strip() and not _BELOW_GPU.match(line):
            self._skipped.add(Refusal.FOREIGN, number)

    def _wait(self, found: re.Match[str], number: int) -> None:
        waiting = self._hosts.waiting.get(self._host)
        if waiting is None or len(waiting) >= MAX_GPUS:
            self._skipped.add(Refusal.NOBODY, number)
        else:
            waiting.append((found, self._stamp_ns, number))

    def _named_once(self) -> Iterator[LogSample]:
        """The lines that waited in vain; they count where the log has no others."""
        is_all = not self._told
        for host, waiting in self._hosts.waiting.items():
            for found, stamp_ns, number in waiting:
                if is_all:
                    self._host = host
                    yield from self._sample(found, stamp_ns, number)
                else:
                    self._skipped.add(Refusal.NOBODY, number)

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
                name=found["name"].rstrip(" "),
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
