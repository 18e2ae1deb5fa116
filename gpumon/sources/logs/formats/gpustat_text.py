"""What ``gpustat -i`` prints for people: a head with the moment, and a line for each GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from gpumon.sources.logs.gpu_log import GpuLog, Rows
from gpumon.sources.logs.log_sample import LoggedGpu, LogOptions, line_like
from gpumon.sources.logs.log_text import numbered_lines, without_colours
from gpumon.sources.logs.stamps.date_lines import find_ctime
from gpumon.sources.logs.stamps.log_clock import LOCAL_CLOCK, NO_CLOCK
from gpumon.sources.logs.stamps.stamp_parsers import DateStamps
from gpumon.sources.logs.table.cell_values import bytes_in
from gpumon.sources.logs.table.gpu_table import MAX_GPUS
from gpumon.sources.logs.table.skipped_lines import Refusal

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


class GpustatTextLog(GpuLog):
    """The lines for people, with or without colours and head.

    A host that is named but once is a head that was damaged: the lines under it wait for another.
    """

    title = "gpustat's lines"
    mark = line_like(r"^(?:\x1b\[[0-9;]*m)*\[\d{1,4}\](?:\x1b\[[0-9;]*m)* [^|]*\|.*(?:°|'|º)C")

    def __init__(self, lines: Iterator[str], *, name: str, options: LogOptions) -> None:
        super().__init__(lines, name=name, options=options)
        self._iso = DateStamps()
        self._host = ""
        self._sure_hosts: set[str] = set()
        self._waiting: dict[str, list[tuple[re.Match[str], int | None, int]]] = {}
        self._stamp_ns: int | None = None
        self._clock = LOCAL_CLOCK
        self._has_heads = False

    def _read(self) -> Rows:
        for number, raw in numbered_lines(self._lines):
            line = without_colours(raw)
            found = _GPU.match(line)
            if found is None:
                yield from self._other_line(line, number)
                continue
            if not self._has_heads:
                self._counts_rows, self._clock = True, NO_CLOCK
            if self._has_heads and self._host not in self._sure_hosts:
                self._wait(found, number)
            else:
                yield from self._row(found, self._stamp_ns, number)
        yield from self._named_once()

    def _other_line(self, line: str, number: int) -> Rows:
        head = _HEAD.match(line)
        if head is not None and not self._counts_rows:
            self._has_heads = True
            self._host = head["host"]
            if self._host in self._waiting:
                self._sure_hosts.add(self._host)
                for waiting in self._waiting.pop(self._host):
                    yield from self._row(*waiting)
            elif self._host not in self._sure_hosts and len(self._waiting) < _MOST_HOSTS:
                self._waiting[self._host] = []
            self._stamp_ns = self._moment(line)
        elif line.strip() and not _BELOW_GPU.match(line):
            self._skipped.add(Refusal.FOREIGN, number)

    def _wait(self, found: re.Match[str], number: int) -> None:
        waiting = self._waiting.get(self._host)
        if waiting is None or len(waiting) >= MAX_GPUS:
            self._skipped.add(Refusal.NOBODY, number)
        else:
            waiting.append((found, self._stamp_ns, number))

    def _named_once(self) -> Rows:
        """The lines that waited in vain; they count where the log has no others."""
        is_all = not self._has_told
        for host, waiting in self._waiting.items():
            for found, stamp_ns, number in waiting:
                if is_all:
                    self._host = host
                    yield from self._row(found, stamp_ns, number)
                else:
                    self._skipped.add(Refusal.NOBODY, number)

    def _moment(self, line: str) -> int | None:
        stamp_ns = find_ctime(line)
        if stamp_ns is None:
            iso = _ISO.search(line)
            stamp_ns = self._iso.parse(iso[0]) if iso else None
        return stamp_ns

    def _row(self, found: re.Match[str], stamp_ns: int | None, number: int) -> Rows:
        total = bytes_in(found["total"] or "")
        told = LoggedGpu(int(found["index"]), name=found["name"].rstrip(" "), memory_bytes=total)
        gpu = self._gpus.position((self._host, found["index"]), told)
        if gpu is None:
            self._skipped.add(Refusal.NOBODY, number)
            return
        if self._counts_rows:
            stamp_ns = self._row_clock.next_ns(gpu)
        elif stamp_ns is None:
            self._skipped.add(Refusal.STAMP, number)
            return
        percents = [cell for codec, cell in _PERCENTS.findall(found["state"]) if not codec]
        cell = percents[-1] if percents else ""
        ratio = self._cells.read(_UNKNOWN if cell.startswith("?") else cell)
        yield self._sample(gpu, stamp_ns, ratio, number, bytes_in(found["used"] or ""))


FORMAT: Final = GpustatTextLog
