"""``nvidia-smi -q`` in a loop, complete or with ``-d UTILIZATION``: a page for each reading."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from gpumon.sources.logs.gpu_log import GpuLog, Rows
from gpumon.sources.logs.log_sample import LoggedGpu, LogOptions, line_like
from gpumon.sources.logs.stamps.log_clock import NO_CLOCK
from gpumon.sources.logs.stamps.stamp_parsers import date_in
from gpumon.sources.logs.table.cell_values import Refusal, bytes_in, ratio_in

_MAX_LENGTH: Final = 1_024
_GPU: Final = re.compile(r"(\s*)GPU ([0-9A-F]{4,8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-9A-F])\s*", re.I)
_TITLE: Final = "NVSMI LOG"
_STAMP: Final = "Timestamp"
_TOP_LINE: Final = re.compile(r"=|[A-Z][A-Za-z ]{2,40} : ")
"""Other lines without indentation."""
_UTILIZATION: Final = ("utilization", "gpu")
_USED: Final = ("fb memory usage", "used")
_TOTAL: Final = ("fb memory usage", "total")
_MIG_MODE: Final = ("mig mode", "current")
_NAME: Final = ("", "product name")
_UUID: Final = ("", "gpu uuid")
_WANTED: Final = frozenset([_UTILIZATION, _USED, _TOTAL, _MIG_MODE, _NAME, _UUID])
_KEYS: Final = frozenset(key for _, key in _WANTED)


@dataclass(slots=True)
class _Page:
    """One GPU at one time.

    Attributes:
        indent: Blanks before the heading.
        values: Values by section and key, in lower case.
    """

    bus_id: str
    indent: int
    line_number: int
    values: dict[tuple[str, str], str] = field(default_factory=dict)


class NvidiaSmiQueryLog(GpuLog):
    """One log of ``nvidia-smi -q`` in a loop."""

    title = "nvidia-smi -q"
    mark = line_like(rf"^=+{_TITLE}=+")
    nothing = (
        "no GPU with a utilisation in {lines} lines; `nvidia-smi -q -d UTILIZATION,MEMORY` "
        "prints it."
    )

    def __init__(self, lines: Iterator[str], *, name: str, options: LogOptions) -> None:
        super().__init__(lines, name=name, options=options)
        self._stamp_ns: int | None = None
        self._page: _Page | None = None
        self._section = ""

    def _read(self) -> Rows:
        for number, line in self._numbered(_MAX_LENGTH):
            key, colon, value = line.partition(" : ")
            if colon and self._page is not None and key.strip() != _STAMP:
                self._note(self._page, key, value.strip())
            else:
                yield from self._heading(line, key, value, number)
        yield from self._finish()

    def _notes(self) -> list[str]:
        return self._gpus.partitioned_notes("nvidia-smi -q")

    def _note(self, page: _Page, key: str, value: str) -> None:
        name = key.strip().lower()
        if name not in _KEYS:
            return
        depth = len(key) - len(key.lstrip()) - page.indent
        path = ("" if depth == 4 else self._section, name)
        if path in _WANTED and depth <= 8:  # deeper keys belong to parts of the GPU
            page.values.setdefault(path, value)

    def _heading(self, line: str, key: str, value: str, number: int) -> Rows:
        """Read a line that opens something; yield the page that it ends."""
        bare = line.strip()
        if key.strip() == _STAMP:
            yield from self._finish()
            self._read_stamp(value, number)
        elif _TITLE in bare:
            yield from self._finish()
            self._stamp_ns = None
        elif found := _GPU.fullmatch(line):
            yield from self._finish()
            self._page = _Page(found[2].upper(), len(found[1]), number)
            self._section = ""
        elif bare and line[0] not in " \t" and not _TOP_LINE.match(bare):
            self._foreign(bare, number, self._stamp_ns)
        elif self._page is not None and bare:
            depth = len(line) - len(line.lstrip()) - self._page.indent
            if depth <= 4:
                self._section = bare.lower()

    def _read_stamp(self, value: str, number: int) -> None:
        printed = date_in(value)
        if printed is None:
            self._skipped.add(Refusal.STAMP, number)
            self._stamp_ns = None
            return
        self._stamp_ns = printed.stamp_ns
        if self._clock is NO_CLOCK:
            self._clock = printed.clock

    def _finish(self) -> Rows:
        page, self._page = self._page, None
        if page is None:
            return
        answer = page.values.get(_UTILIZATION)
        if answer is None:
            self._skipped.add(Refusal.CUT_TABLE, page.line_number)
            return
        ratio = ratio_in(answer)
        used = self._bytes_of(page, _USED)
        yield self._sample(self._position_of(page), self._stamp_ns, ratio, page.line_number, used)

    def _position_of(self, page: _Page) -> int | None:
        gpu = LoggedGpu(
            uuid=page.values.get(_UUID),
            name=page.values.get(_NAME),
            memory_bytes=self._bytes_of(page, _TOTAL),
        )
        position = self._gpus.position(page.bus_id, gpu)
        if position is not None and page.values.get(_MIG_MODE) == "Enabled":
            self._gpus.mark_partitioned(position)
            self._has_answer = True
        return position

    def _bytes_of(self, page: _Page, key: tuple[str, str]) -> int | None:
        text = page.values.get(key, "")
        return bytes_in(text) if text.endswith("MiB") else None
