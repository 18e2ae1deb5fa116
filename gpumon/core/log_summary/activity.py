"""Turns a log's samples of one GPU into changes of state: working, paused, out of use."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final

from gpumon.core.accounting.job_end import job_patience_ns
from gpumon.core.accounting.sample_columns import ACTIVE, Levels, SampleColumns
from gpumon.core.sample import BusySample
from gpumon.core.settings.detector import DetectorSettings

MAX_CHANGES: Final = 6_000_000
"""Most changes kept for all GPUs of a log, 8 bytes each."""
_STATE_BITS: Final = 2
_LATEST_NS: Final = 1 << (62 - _STATE_BITS)


class GpuActivity(IntEnum):
    """The state of one GPU at a time."""

    UNOBSERVED = 0
    """No sample covers this time."""
    OUT_OF_USE = 1
    """Idle, before the first active sample of a job or after the last."""
    PAUSED = 2
    """Idle, between two active samples of a job."""
    WORKING = 3
    """In an active sample. The idle part of a sample next to a pause belongs to the pause."""


class ChangeBudget:
    """The number of changes that the GPUs of a log may still keep in total."""

    def __init__(self, limit: int = MAX_CHANGES) -> None:
        self.remaining = limit

    @property
    def is_full(self) -> bool:
        """Whether the limit was exceeded: then no change is kept any more."""
        return self.remaining < 0


class StateChanges:
    """Follows the samples of one GPU, oldest first, and keeps where its state changed.

    A pause is known to be one only when the GPU works again; until then its changes may be
    corrected. As in the ledger, the idle part of the sample on either side of a pause belongs to
    the pause, because a burst rarely begins where a sample does. In-use time equals that of
    ``GpuLedger`` without a process list and with samples of equal length.

    Args:
        settings: When a sample is active, and when a job is over.
        budget: Shared by all GPUs of the log.
    """

    def __init__(self, settings: DetectorSettings, budget: ChangeBudget) -> None:
        self._settings, self._budget = settings, budget
        self._levels = Levels(settings)
        self._changes = array("q")
        self._is_active: bool | None = None
        self._until_ns = self._active_until_ns = self._spent_until_ns = -1
        self._ended_at_ns = -2
        self._pause_from = 0  # position of the first change since the last active sample
        self._last = BusySample(-1, -1, 0.0)

    def observe(self, samples: Sequence[BusySample]) -> None:
        """Add samples, oldest first; those that the ledger rejects are left out here, too."""
        self.observe_columns(SampleColumns.of(samples, self._levels, self._until_ns)[0])

    def observe_columns(self, columns: SampleColumns) -> None:
        """Add samples that come after those before."""
        for begin, end in columns.stretches:
            is_active = columns.levels[begin] & ACTIVE != 0
            if columns.starts_ns[begin] != self._until_ns or is_active is not self._is_active:
                self._turn(columns.sample(begin))
            self._is_active, self._until_ns = is_active, columns.ends_ns[end - 1]
            self._last = columns.sample(end - 1)

    def end_job(self) -> None:
        """The job is known to be over: what follows is no pause."""
        self._leave_job()
        self._active_until_ns = -1
        self._ended_at_ns = self._until_ns

    def finish(self) -> None:
        """The log has ended: what followed the last active sample was no pause."""
        if self._until_ns < 0:
            return
        self._leave_job()
        self._add(self._until_ns, GpuActivity.UNOBSERVED)
        self._is_active, self._until_ns = None, -1

    def __iter__(self) -> Iterator[tuple[int, GpuActivity]]:
        """Yield each change, oldest first: the time in nanoseconds, and the new state."""
        states = tuple(GpuActivity)
        for word in self._changes:
            yield word >> _STATE_BITS, states[word & 3]

    def _turn(self, sample: BusySample) -> None:
        """Begin another state, or the same state after unobserved time."""
        start_ns, end_ns, busy_ratio = sample
        is_active, is_next = busy_ratio > self._settings.active_above, start_ns == self._until_ns
        if self._is_active and self._until_ns != self._ended_at_ns:
            self._active_until_ns = self._until_ns
            self._pause_from = len(self._changes)
        if not is_next and self._until_ns >= 0:
            self._add(self._until_ns, GpuActivity.UNOBSERVED)
        if not is_active:
            at_ns = start_ns
            in_job = self._active_until_ns >= 0
            is_edge = in_job and is_next and self._is_active
            if is_edge and self._last.end_ns != self._spent_until_ns:
                at_ns -= self._last.idle_ns
            self._add(at_ns, GpuActivity.PAUSED if in_job else GpuActivity.OUT_OF_USE)
            return
        at_ns = start_ns
        patience_ns = job_patience_ns(end_ns - start_ns, self._settings)
        if self._active_until_ns >= 0 and start_ns - self._active_until_ns > patience_ns:
            self._leave_job()
        elif is_next and self._active_until_ns >= 0:
            at_ns += sample.idle_ns
            self._spent_until_ns = end_ns
        self._add(at_ns, GpuActivity.WORKING)

    def _leave_job(self) -> None:
        """Turn the pauses since the last active sample into time out of use."""
        if self._active_until_ns < 0 or self._is_active:
            return
        changes = self._changes
        for position in range(self._pause_from, len(changes)):
            at_ns, state = changes[position] >> _STATE_BITS, changes[position] & 3
            if state == GpuActivity.PAUSED:
                at_ns = max(at_ns, self._active_until_ns)
                changes[position] = at_ns << _STATE_BITS | GpuActivity.OUT_OF_USE

    def _add(self, at_ns: int, state: GpuActivity) -> None:
        budget = self._budget
        budget.remaining -= 1
        if budget.remaining < 0 or at_ns >= _LATEST_NS:
            budget.remaining = -1
            self._changes = array("q")
            self._pause_from = 0
            return
        self._changes.append(at_ns << _STATE_BITS | state)
