"""The columns of a scrolling table of nvidia-smi, whose header may come again and move them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.sources.logs.log_sample import LogFacts, LoggedGpu
from gpumon.sources.logs.monitor_table import (
    MonitorClock,
    MonitorHeader,
    header_of,
    was_to_be_header,
)
from gpumon.sources.logs.stamps import NO_CLOCK
from gpumon.sources.logs.utilization_cells import Refusal, SkippedLines

UNUSABLE: Final = -1
"""The width of a table that cannot be read: no row has as many cells."""


class MonitorColumns:
    """Follows the headers of one log.

    Args:
        needed: Columns without which a table is of no use.
        period_ns: Time between two rows, as the user said; ``None``: a second.

    Attributes:
        width: Cells of a row; ``UNUSABLE``: none can be read now.
        separator: What stands between them; ``None``: blanks.
        refusal: Why rows cannot be read.
        clock: What their stamps mean; ``None`` before the first header.
    """

    def __init__(self, *needed: str, period_ns: int | None) -> None:
        self._needed = needed
        self._period_ns = period_ns
        self.width = UNUSABLE
        self.separator: str | None = None
        self.refusal = Refusal.UNHEADED
        self.clock: MonitorClock | None = None

    def take(self, line: str) -> MonitorHeader | None:
        """Take note of a comment; the header it is, if rows can be read by it."""
        header = header_of(line)
        if header is None:
            if was_to_be_header(line):
                self._cannot_be_read(Refusal.UNHEADED)
            return None
        self.separator = header.separator
        if any(header.at(name) is None for name in self._needed):
            self._cannot_be_read(Refusal.HEADER)
            return None
        if self.clock is None:
            self.clock = MonitorClock(header, self._period_ns)
        elif not self.clock.relayout(header):
            self._cannot_be_read(Refusal.CLOCK)
            return None
        self.width = len(header.names)
        return header

    def facts(self, gpus: Sequence[LoggedGpu], skipped: SkippedLines, *notes: str) -> LogFacts:
        """What is known so far.

        Args:
            gpus: Those that were told apart.
            skipped: The lines that could not be used.
            notes: What is to be said before all else.
        """
        clock = self.clock
        return LogFacts(
            clock=clock.clock if clock else NO_CLOCK,
            gpus=tuple(gpus),
            skipped_lines=skipped.count,
            period_ns=clock.period_ns if clock else None,
            notes=(*notes, *(clock.notes if clock else ()), *skipped.sentences()),
        )

    def _cannot_be_read(self, refusal: Refusal) -> None:
        self.width, self.refusal = UNUSABLE, refusal
