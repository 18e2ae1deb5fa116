"""What ``gpustat -i`` prints for people: a head with the moment, and a line for each GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from gpumon.sources.logs.gpu_log import GpuLog, Rows
from gpumon.sources.logs.log_sample import LoggedGpu, LogOptions, line_like
from gpumon.sources.logs.log_text import MAX_PIECE, without_colours
from gpumon.sources.logs.stamps.date_lines import find_ctime
from gpumon.sources.logs.stamps.log_clock import LOCAL_CLOCK, NO_CLOCK
from gpumon.sources.logs.stamps.stamp_parsers import DateStamps
from gpumon.sources.logs.table.cell_values import bytes_in

_GPU: Final = re.compile(
    r"\[(?P<index>\d{1,4})\] (?P<name>[^|]*)\|(?P<state>[^|]*)"
    r"\|(?: *(?P<used>\d{1,9}|\?+) */ *(?P<total>\d{1,9}|\?+) MB)?",
    re.ASCII,
)
_PERCENTS: Final = re.compile(r"(?:([ED]:)\s*)?(\d{1,9}|\?) %", re.ASCII)
"""Of the fan, if it is shown, of the GPU, and marked by a letter of its encoder and decoder."""
_ISO: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_HEAD: Final = re.compile(r"(?P<host>\S+)  +\S.*\d(?::|[时時시] ?)\d\d")
_BELOW_GPU: Final = re.compile(r"\s|[├└│|+]")
"""How lines about processes begin, under the line of their GPU."""
_UNKNOWN: Final = "[N/A]"


class GpustatTextLog(GpuLog):
    """The lines for people, with or without colours and head."""

    title = "gpustat's lines"
    mark = line_like(r"^(?:\x1b\[[0-9;]*m)*\[\d{1,4}\](?:\x1b\[[0-9;]*m)* [^|]*\|.*(?:°|'|º)C")

    def __init__(self, lines: Iterator[str], *, name: str, options: LogOptions) -> None:
        super().__init__(lines, name=name, options=options)
        self._iso = DateStamps()
        self._host = ""
        self._stamp_ns: int | None = None
        self._clock = LOCAL_CLOCK
        self._has_heads = False

    def _read(self) -> Rows:
        for number, raw in self._numbered(MAX_PIECE):
            line = without_colours(raw)
            found = _GPU.match(line)
            if found is None:
                self._other_line(line, number)
                continue
            if not self._has_heads:
                self._counts_rows, self._clock = True, NO_CLOCK
            yield from self._row(found, self._stamp_ns, number)

    def _other_line(self, line: str, number: int) -> None:
        head = _HEAD.match(line)
        if head is not None and not self._counts_rows:
            self._has_heads = True
            self._host = head["host"]
            self._stamp_ns = self._moment(line)
        elif line.strip() and not _BELOW_GPU.match(line):
            self._foreign(line, number)

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
        if self._counts_rows and gpu is not None:
            stamp_ns = self._row_clock.next_ns(gpu)
        percents = [cell for codec, cell in _PERCENTS.findall(found["state"]) if not codec]
        cell = percents[-1] if percents else ""
        ratio = self._cells.read(_UNKNOWN if cell.startswith("?") else cell)
        yield self._sample(gpu, stamp_ns, ratio, number, bytes_in(found["used"] or ""))


FORMAT: Final = GpustatTextLog
