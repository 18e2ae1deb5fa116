"""gpustat: its JSON, and the lines that it prints for people."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from gpumon.sources.logs.gpu_log import GpuLog, Rows
from gpumon.sources.logs.json_documents import Document, JsonDocuments
from gpumon.sources.logs.log_sample import LoggedGpu, LogOptions, line_like
from gpumon.sources.logs.log_text import MAX_PIECE, without_colours
from gpumon.sources.logs.stamps.log_clock import LOCAL_CLOCK, NO_CLOCK
from gpumon.sources.logs.stamps.stamp_parsers import DateStamps, find_ctime
from gpumon.sources.logs.table.cell_values import (
    MIB,
    Refusal,
    bytes_in,
    bytes_of,
    ratio_in,
    ratio_of,
)
from gpumon.sources.logs.table.gpu_rows import MAX_GPUS


class GpustatJsonLog(GpuLog):
    """Readings of ``gpustat --json``: pretty-printed, or one a line."""

    title = "gpustat --json"
    mark = line_like(r'"query_time"\s*:')
    nothing = "no reading with a utilisation."

    def __init__(self, lines: Iterator[str], *, name: str, options: LogOptions) -> None:
        super().__init__(lines, name=name, options=options)
        self._dates = self._stamps = DateStamps()
        self._positions: dict[tuple[str, int | None], int] = {}

    def _read(self) -> Rows:
        documents = JsonDocuments(self._lines, name=self._name, skipped=self._skipped)
        count = 0
        for number, reading in documents:
            stamp_ns = self._dates.parse(str(reading.get("query_time")))
            if stamp_ns is None:
                self._skipped.add(Refusal.STAMP, number)
                continue
            gpus = reading.get("gpus")
            gpus = gpus if isinstance(gpus, list) else []
            count = len(gpus)
            for gpu in gpus:
                yield from self._of_gpu(gpu, stamp_ns, number, reading.get("hostname"))
        self._broken_off = documents.broken_off
        self._lost_rows += documents.left_out * count

    def _of_gpu(self, gpu: object, stamp_ns: int, number: int, host: object) -> Rows:
        if not isinstance(gpu, dict) or (position := self._position(gpu, host)) is None:
            self._skipped.add(Refusal.UNKNOWN_GPU, number)
            return
        ratio = ratio_of(gpu.get("utilization.gpu"), full=100.0)
        used_bytes = bytes_of(gpu.get("memory.used"), unit_bytes=MIB)
        yield self._sample(position, stamp_ns, ratio, number, used_bytes)

    def _position(self, gpu: Document, host: object) -> int | None:
        uuid, name, index = gpu.get("uuid"), gpu.get("name"), gpu.get("index")
        index = index if isinstance(index, int) and 0 <= index < MAX_GPUS else None
        if not isinstance(uuid, str) and index is None:
            return None
        # A UUID is unique; the same index may be on another host.
        key = (str(host), index)
        if not isinstance(uuid, str) and key in self._positions:
            return self._positions[key]
        position = self._gpus.position(
            uuid if isinstance(uuid, str) else key,
            LoggedGpu(
                index=index,
                uuid=uuid if isinstance(uuid, str) else None,
                name=name if isinstance(name, str) else None,
                memory_bytes=bytes_of(gpu.get("memory.total"), unit_bytes=MIB),
            ),
        )
        if position is not None and len(self._positions) < MAX_GPUS:
            self._positions[key] = position
        return position


_GPU: Final = re.compile(
    r"\[(?P<index>\d{1,4})\] (?P<name>[^|]*)\|(?P<state>[^|]*)"
    r"\|(?: *(?P<used>\d{1,9}|\?+) */ *(?P<total>\d{1,9}|\?+) MB)?",
    re.ASCII,
)
_PERCENTS: Final = re.compile(r"(?:([ED]:)\s*)?(\d{1,9}|\?) %", re.ASCII)
"""Percentages of the fan, the GPU, and, after a letter, its encoder and decoder."""
_ISO: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_HEAD: Final = re.compile(r"(?P<host>\S+)  +\S.*\d(?::|[时時시] ?)\d\d")
_BELOW_GPU: Final = re.compile(r"\s|[├└│|+]")
"""Start of the lines about processes, below the line of their GPU."""
_UNKNOWN: Final = "[N/A]"


class GpustatTextLog(GpuLog):
    """The lines of ``gpustat -i``, with or without colours and header."""

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
            iso = _ISO.search(line)
            self._stamp_ns = self._iso.parse(iso[0]) if iso else find_ctime(line)
        elif line.strip() and not _BELOW_GPU.match(line):
            self._foreign(line, number)

    def _row(self, found: re.Match[str], stamp_ns: int | None, number: int) -> Rows:
        total = bytes_in(found["total"] or "")
        gpu_of_line = LoggedGpu(
            int(found["index"]), name=found["name"].rstrip(" "), memory_bytes=total
        )
        gpu = self._gpus.position((self._host, found["index"]), gpu_of_line)
        if self._counts_rows and gpu is not None:
            stamp_ns = self._row_clock.next_ns(gpu)
        percents = [cell for codec, cell in _PERCENTS.findall(found["state"]) if not codec]
        cell = percents[-1] if percents else ""
        ratio = ratio_in(_UNKNOWN if cell.startswith("?") else cell)
        yield self._sample(gpu, stamp_ns, ratio, number, bytes_in(found["used"] or ""))
