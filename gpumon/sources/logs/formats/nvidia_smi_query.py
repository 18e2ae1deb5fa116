"""``nvidia-smi -q``, whole or with ``-d UTILIZATION``, again and again: a page for each moment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
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
from gpumon.sources.logs.stamps.date_lines import date_in
from gpumon.sources.logs.stamps.log_clock import NO_CLOCK, LogClock
from gpumon.sources.logs.table.cells import MemoryCells, Refusal, SkippedLines, UtilizationCells
from gpumon.sources.logs.table.gpu_rows import GpuTable

_MOST_SIGNS: Final = 1_024
_GPU: Final = re.compile(r"(\s*)GPU ([0-9A-F]{4,8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-9A-F])\s*", re.I)
_TITLE: Final = "NVSMI LOG"
_STAMP: Final = "Timestamp"
_TOP_LINE: Final = re.compile(r"=|[A-Z][A-Za-z ]{2,40} : ")
"""What a page has at the beginning of a line, besides GPUs."""
_UTILIZATION: Final = ("utilization", "gpu")
_USED: Final = ("fb memory usage", "used")
_TOTAL: Final = ("fb memory usage", "total")
_MIG_MODE: Final = ("mig mode", "current")
_NAME: Final = ("", "product name")
_UUID: Final = ("", "gpu uuid")
_WANTED: Final = frozenset([_UTILIZATION, _USED, _TOTAL, _MIG_MODE, _NAME, _UUID])
_LAST_WORDS: Final = frozenset(key for _, key in _WANTED)


@dataclass(slots=True)
class _Page:
    """What is said of one GPU at one moment.

    Attributes:
        bus_id: What its page is headed with.
        indent: Blanks before that heading.
        line_number: Of the heading.
        values: Section and key, in lower case, to what is said, as written.
        answered_at: Line of the utilisation; 0: there is none so far.
    """

    bus_id: str
    indent: int
    line_number: int
    values: dict[tuple[str, str], str] = field(default_factory=dict)
    answered_at: int = 0


class NvidiaSmiQueryLog:
    """One log of ``nvidia-smi -q`` in a loop.

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
        self._clock: LogClock = NO_CLOCK
        self._stamp_ns: int | None = None
        self._page: _Page | None = None
        self._section = ""
        self._cut_gpus: set[int] = set()
        self._usable_pages = 0

    def samples(self) -> Iterator[LogSample]:
        """Every GPU of every moment, in file order.

        Raises:
            UnreadableLogError: No page with a utilisation, or a stream that breaks off.
        """
        number = 0
        for number, line in numbered_lines(self._lines):
            if len(line) >= _MOST_SIGNS:
                self._skipped.add(Refusal.TOO_LONG, number)
                continue
            key, colon, value = line.partition(" : ")
            if colon and self._page is not None and key.strip() != _STAMP:
                self._note(self._page, key, value.strip(), number)
                continue
            done = self._heading(line, key, value, number)
            if done is not None:
                yield done
        last = self._finish()
        if last is not None:
            yield last
        if not self._usable_pages and not self._cut_gpus:
            reasons = " ".join(self._skipped.sentences())
            raise UnreadableLogError(
                f"{self._name}: no GPU with a utilisation in {number} lines; `nvidia-smi -q -d "
                f"UTILIZATION,MEMORY` tells it. {reasons}"
            )

    def facts(self) -> LogFacts:
        """What is known so far; complete once ``samples`` is exhausted."""
        notes = []
        if self._cut_gpus:
            positions = ", ".join(map(str, sorted(self._cut_gpus)))
            notes.append(
                f"GPU {positions} is cut into MIG instances, whose utilisation nvidia-smi -q does "
                "not tell: they are not observed."
            )
        return LogFacts(
            clock=self._clock,
            gpus=tuple(self._table.gpus),
            skipped_lines=self._skipped.count,
            period_ns=None,
            notes=(*notes, *self._skipped.sentences()),
        )

    def _note(self, page: _Page, key: str, value: str, number: int) -> None:
        """Keep a value of a GPU's page that tells something of it."""
        name = key.strip().lower()
        if name not in _LAST_WORDS:
            return
        depth = len(key) - len(key.lstrip()) - page.indent
        told = ("" if depth == 4 else self._section, name)
        if told not in _WANTED or depth > 8:  # deeper ones are of parts of the GPU
            return
        if told == _UTILIZATION:
            if page.answered_at:  # another GPU's, whose heading cannot be read
                self._skipped.add(Refusal.NOBODY, number)
                return
            page.answered_at = number
        page.values.setdefault(told, value)

    def _heading(self, line: str, key: str, value: str, number: int) -> LogSample | None:
        """Take a line that opens something; the page that is over by it, if one is."""
        bare = line.strip()
        if key.strip() == _STAMP:
            done = self._finish()
            self._take_stamp(value, number)
            return done
        if _TITLE in bare:
            done, self._stamp_ns = self._finish(), None
            return done
        if found := _GPU.fullmatch(line):
            done = self._finish()
            self._page = _Page(found[2].upper(), len(found[1]), number)
            self._section = ""
            return done
        if bare and line[0] not in " \t" and not _TOP_LINE.match(bare):
            self._skipped.add(Refusal.FOREIGN, number)
        elif self._page is not None and bare:
            depth = len(line) - len(line.lstrip()) - self._page.indent
            if depth <= 4:
                self._section = bare.lower()
        return None

    def _take_stamp(self, value: str, number: int) -> None:
        told = date_in(value)
        if told is None:
            self._skipped.add(Refusal.STAMP, number)
            self._stamp_ns = None
            return
        self._stamp_ns = told.stamp_ns
        if self._clock is NO_CLOCK:
            self._clock = told.clock

    def _finish(self) -> LogSample | None:
        """The page that is over, as a sample of its GPU."""
        page, self._page = self._page, None
        if page is None:
            return None
        answer = page.values.get(_UTILIZATION)
        if answer is None:
            self._skipped.add(Refusal.CUT_TABLE, page.line_number)
            return None
        ratio = self._cells.read(answer)
        position = self._position_of(page)
        if isinstance(ratio, Refusal):
            self._skipped.add(ratio, page.answered_at)
        elif position is None:
            self._skipped.add(Refusal.NOBODY, page.line_number)
        elif self._stamp_ns is None:
            self._skipped.add(Refusal.STAMP, page.line_number)
        if position is None or self._stamp_ns is None:
            return None
        used = self._bytes_of(page, _USED)
        if isinstance(ratio, Refusal):
            return LogSample(position, self._stamp_ns, None, used)
        self._usable_pages += 1
        return LogSample(position, self._stamp_ns, ratio, used)

    def _position_of(self, page: _Page) -> int | None:
        is_cut = page.values.get(_MIG_MODE) == "Enabled"
        told = LoggedGpu(
            uuid=page.values.get(_UUID),
            name=page.values.get(_NAME),
            memory_bytes=self._bytes_of(page, _TOTAL),
            mig_enabled=is_cut,
        )
        position = self._table.position(page.bus_id, told)
        if is_cut and position is not None:
            self._cut_gpus.add(position)
        return position

    def _bytes_of(self, page: _Page, told: tuple[str, str]) -> int | None:
        text = page.values.get(told, "")
        return self._memory.bytes_of(text) if text.endswith("MiB") else None


FORMAT: Final = LogFormat(
    title="nvidia-smi -q", mark=line_like(rf"^=+{_TITLE}=+"), reader=NvidiaSmiQueryLog
)
