"""Time in which a GPU held memory and nothing ran: another job could have had it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpumon.core.accounting.job_end import job_patience_ns
from gpumon.core.accounting.sample_columns import ACTIVE, Levels, SampleColumns
from gpumon.core.sample import BusySample
from gpumon.core.settings.detector import DetectorSettings


class HeldMemory(NamedTuple):
    """Memory that one GPU held while nothing ran.

    Attributes:
        idle_ns: Total time of these stretches.
        peak_bytes: The most memory in use in any of them; 0 without one.
    """

    idle_ns: int = 0
    longest_ns: int = 0
    peak_bytes: int = 0


class HeldMemoryTracker:
    """Follows the samples of one GPU, oldest first, with the memory in use.

    A stretch counts if it is long enough to end a job; a shorter one may be a pause. A sample
    without memory ends a stretch, and so does a gap in which a job may have come and gone. Gaps
    never count.
    """

    def __init__(self, settings: DetectorSettings) -> None:
        self._settings = settings
        self._levels = Levels(settings)
        self._idle_ns = self._longest_ns = self._peak_bytes = 0
        # Of the open stretch; there is none while its peak is 0.
        self._end_ns = -1
        self._sample_ns = self._length_ns = self._peak = 0

    def observe(self, samples: Sequence[BusySample], used_bytes: Sequence[int | None]) -> None:
        """Add disjoint samples, oldest first, and the memory in use at the end of each."""
        self.observe_columns(SampleColumns.of(samples, self._levels, -1)[0], used_bytes)

    def observe_columns(self, columns: SampleColumns, used_bytes: Sequence[int | None]) -> None:
        """Add samples as columns; otherwise like ``observe``."""
        held_from = self._settings.log.held_from_bytes
        bridged_ns = self._settings.idle_job_ends_after_ns
        for begin, end in columns.stretches:
            if columns.levels[begin] & ACTIVE:
                if self._peak:
                    self._close()
                continue
            for at in range(begin, end):
                used = used_bytes[at]
                if used is None or used < held_from:
                    if self._peak:
                        self._close()
                    continue
                start_ns, end_ns = columns.starts_ns[at], columns.ends_ns[at]
                if start_ns - self._end_ns > bridged_ns:
                    self._close()
                self._end_ns, self._sample_ns = end_ns, end_ns - start_ns
                self._length_ns += end_ns - start_ns
                if used > self._peak:
                    self._peak = used

    def finish(self) -> HeldMemory:
        """Return what was held up to the end of the log."""
        self._close()
        return HeldMemory(self._idle_ns, self._longest_ns, self._peak_bytes)

    def _close(self) -> None:
        """End the stretch; it counts if it is longer than a pause of a job can be."""
        length_ns = self._length_ns
        if length_ns >= job_patience_ns(self._sample_ns, self._settings):
            self._idle_ns += length_ns
            self._longest_ns = max(self._longest_ns, length_ns)
            self._peak_bytes = max(self._peak_bytes, self._peak)
        self._peak = self._length_ns = 0
