"""When one GPU began to work, to pause and to be out of use: a log's samples in few words."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final

from gpumon.core.accounting.job_end import job_patience_ns
from gpumon.core.accounting.sample_runs import ACTIVE, Levels, SampleColumns
from gpumon.core.sample import BusySample
from gpumon.core.settings.detector import DetectorSettings

MOST_CHANGES: Final = 6_000_000
"""Changes kept of all GPUs of a log: 8 bytes each, and no log of as many rows needs more."""
_STATE_BITS: Final = 2
_LATEST_NS: Final = 1 << (62 - _STATE_BITS)


class GpuActivity(IntEnum):
    """What one GPU does at a moment."""

    UNOBSERVED = 0
    """Nobody knows."""
    OUT_OF_USE = 1
    """Idle, before the first active sample of a job or after the last."""
    PAUSED = 2
    """Idle, between two active samples of a job."""
    WORKING = 3
    """In an active sample, without the idle part of one that begins or ends a pause."""


class ChangeRoom:
    """How many changes the GPUs of a log may still keep together."""

    def __init__(self, limit: int = MOST_CHANGES) -> None:
        self.left = limit

    @property
    def is_full(self) -> bool:
        """Whether there were more: then none is kept any longer."""
        return self.left < 0


class StateChanges:
    """Follows the samples of one GPU, oldest first, and keeps where its state changed.

    Whether a pause was one is known only when the GPU works again, so what was
    kept of it is corrected then. A burst rarely begins where a sample does: as
    for the ledger's pauses, the idle part of the sample on either side belongs
    to the pause. In-use time is that of ``GpuLedger`` where no process list
    says more, and samples are equally long.

    Args:
        settings: Says what is active, and when a job is over.
        room: Shared by all GPUs of the log.
    """

    def __init__(self, settings: DetectorSettings, room: ChangeRoom) -> None:
        self._settings, self._room = settings, room
        self._levels = Levels(settings)
        self._changes = array("q")
        self._is_active: bool | None = None
        self._until_ns = self._active_until_ns = self._spent_until_ns = -1
        self._ended_at_ns = -2
        self._pause_from = 0  # position of the first change since the last active sample
        self._last = BusySample(-1, -1, 0.0)

    def observe(self, samples: Sequence[BusySample]) -> None:
        """Take more samples, oldest first; what the ledger refuses is left out here, too."""
        self.observe_columns(SampleColumns.of(samples, self._levels, self._until_ns)[0])

    def observe_columns(self, columns: SampleColumns) -> None:
        """Take more samples, which come after those before."""
        for begin, end in columns.runs:
            is_active = columns.levels[begin] & ACTIVE != 0
            if columns.starts_ns[begin] != self._until_ns or is_active is not self._is_active:
                self._turn(columns.sample(begin))
            self._is_active, self._until_ns = is_active, columns.ends_ns[end - 1]
            self._last = columns.sample(end - 1)

    def end_job(self) -> None:
        """The job is over, as something else than its samples tells: what follows is no pause."""
        self._leave_job()
        self._active_until_ns = -1
        self._ended_at_ns = self._until_ns

    def finish(self) -> None:
        """The log is over: what followed the last active sample was no pause."""
        if self._until_ns < 0:
            return
        self._leave_job()
        self._add(self._until_ns, GpuActivity.UNOBSERVED)
        self._is_active, self._until_ns = None, -1

    def __iter__(self) -> Iterator[tuple[int, GpuActivity]]:
        """Each change, oldest first: when, in nanoseconds, and to which state."""
        states = tuple(GpuActivity)
        for word in self._changes:
            yield word >> _STATE_BITS, states[word & 3]

    def _turn(self, sample: BusySample) -> None:
        """Another state begins with this sample, or time without any lies before it."""
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
                at_ns -= _idle_ns(self._last)
            self._add(at_ns, GpuActivity.PAUSED if in_job else GpuActivity.OUT_OF_USE)
            return
        at_ns = start_ns
        patience_ns = job_patience_ns(end_ns - start_ns, self._settings)
        if self._active_until_ns >= 0 and start_ns - self._active_until_ns > patience_ns:
            self._leave_job()
        elif is_next and self._active_until_ns >= 0:
            at_ns += _idle_ns(sample)
            self._spent_until_ns = end_ns
        self._add(at_ns, GpuActivity.WORKING)

    def _leave_job(self) -> None:
        """What was kept since the last active sample was out of use, and no pause."""
        if self._active_until_ns < 0 or self._is_active:
            return
        changes = self._changes
        for position in range(self._pause_from, len(changes)):
            at_ns, state = changes[position] >> _STATE_BITS, changes[position] & 3
            if state == GpuActivity.PAUSED:
                at_ns = max(at_ns, self._active_until_ns)
                changes[position] = at_ns << _STATE_BITS | GpuActivity.OUT_OF_USE

    def _add(self, at_ns: int, state: GpuActivity) -> None:
        room = self._room
        room.left -= 1
        if room.left < 0 or at_ns >= _LATEST_NS:
            room.left = -1
            self._changes = array("q")
            self._pause_from = 0
            return
        self._changes.append(at_ns << _STATE_BITS | state)


def _idle_ns(sample: BusySample) -> int:
    start_ns, end_ns, busy_ratio = sample
    length_ns = end_ns - start_ns
    return length_ns - round(length_ns * busy_ratio)
