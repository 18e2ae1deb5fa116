"""Whether a run may speak of a GPU: what it says of itself, held against the driver's list.

Anybody may write into a ring that he trains on GPU 0. So a claim is decided once the GPU works
during the run, by a list of its processes that was read after that: the run's own must be there,
or another one of its user's (a child that trains, a server that works for it). Until then
nothing that the run says is settled.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from gpumon.core.ring_events import RingReading
from gpumon.core.sample import BusySample, GpuSample, ProcessSample


class Claim(Enum):
    """What has become of the claim of one run to one GPU; before that it is open."""

    UNOPPOSED = "unopposed"
    """There is no list, or one that cannot tell: it stands until a list speaks against it."""
    SEEN = "seen"
    """A list named the run's process or its user: it stands for the life of the run."""
    REFUSED = "refused"
    """A list named only others: it stands from the list on that names its user, if one does."""


class ProcessList(NamedTuple):
    """The processes of one GPU, as they were read last.

    Attributes:
        processes: ``None``: there is no list.
        read_at_ns: CLOCK_MONOTONIC.
        is_known_to_tell: Whether a list of this machine ever named anybody: then an empty one
            may be one.
    """

    processes: tuple[ProcessSample, ...] | None
    read_at_ns: int
    is_known_to_tell: bool = False

    def names(self, reading: RingReading) -> bool:
        """Whether it has the run's process, or one of the same user."""
        return any(
            process.uid == reading.owner_uid or is_process_of(reading, process)
            for process in self.processes or ()
        )

    def decide(
        self, reading: RingReading, at_work: BusySample, later: Iterable[BusySample], above: float
    ) -> Claim | None:
        """Decide the claim of a run during which the GPU worked; ``None``: it is still open.

        Who is unknown contradicts nobody, and an empty list is none while the GPU works: a
        container hides processes. Where lists do name processes, an empty one can also mean that
        somebody else's work has just ended: then what comes next tells.

        Args:
            reading: The run's ring.
            at_work: A sample of its time in which the GPU worked.
            later: Those after it, oldest first.
            above: What is busier is at work.
        """
        if self.processes is None:
            return Claim.UNOPPOSED
        if self.read_at_ns < at_work.end_ns:
            return None
        if self.names(reading):
            return Claim.SEEN
        if self.processes:
            is_known = all(process.uid is not None for process in self.processes)
            return Claim.REFUSED if is_known else Claim.UNOPPOSED
        has_left = reading.ended_ns is not None and reading.ended_ns <= self.read_at_ns
        if has_left or not self.is_known_to_tell:
            return Claim.UNOPPOSED
        after = self.first_after(later)
        return Claim.UNOPPOSED if after is not None and after.busy_ratio > above else None

    def first_after(self, samples: Iterable[BusySample]) -> BusySample | None:
        """The first of them that began after the list was read."""
        return next((one for one in samples if one.start_ns >= self.read_at_ns), None)


def list_of(sample: GpuSample, heard_at_ns: int, *, is_known_to_tell: bool) -> ProcessList:
    """The list in what a GPU said.

    Args:
        sample: What it said last.
        heard_at_ns: When.
        is_known_to_tell: As in ``ProcessList``.
    """
    read_at_ns = heard_at_ns if sample.processes_at_ns is None else sample.processes_at_ns
    return ProcessList(sample.processes, read_at_ns, is_known_to_tell)


def is_process_of(reading: RingReading, process: ProcessSample) -> bool:
    """Whether that is the run's own process.

    The kernel tells the pid of who holds a ring's lock. Of a ring that nobody holds anybody
    may have written it, so there the user must be the same, where he is known.
    """
    if process.pid != reading.host_pid:
        return False
    return reading.alive or process.uid is None or process.uid == reading.owner_uid
