"""Whether a run may speak of a GPU: what it says of itself, held against the driver's list.

Anybody may write into a ring that he trains on GPU 0. So a claim is decided once the GPU works
during the run, by a list of its processes that was read after that: the run's own must be there,
or another one of its user's (a child that trains, a server that works for it). Until then
nothing that the run says is settled: the GPU's samples are held until it is known whose work
they are of.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.ring_format.events import RingReading
from gpumon.core.sample import BusySample, ProcessSample


class Claim(Enum):
    """What has become of the claim of one run to one GPU; before that it is open."""

    UNOPPOSED = "unopposed"
    """There is no list, or one that cannot tell: it stands until a list speaks against it."""
    SEEN = "seen"
    """A list named the run's process or its user: it stands for the life of the run."""
    REFUSED = "refused"
    """A list named only others, or processes whose user is hidden: until one names its user."""


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

        Who is unknown contradicts nobody, unless ``/proc`` hides who it is: then only a run whose
        own process is listed is believed. An empty list is none while the GPU works: a container
        hides processes. Where lists do name processes, an empty one can also mean that
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
            are_owners_known = all(one.uid is not None or one.is_hidden for one in self.processes)
            return Claim.REFUSED if are_owners_known else Claim.UNOPPOSED
        has_left = reading.ended_ns is not None and reading.ended_ns <= self.read_at_ns
        if has_left or not self.is_known_to_tell:
            return Claim.UNOPPOSED
        after = self.first_after(later)
        return Claim.UNOPPOSED if after is not None and after.busy_ratio > above else None

    def first_after(self, samples: Iterable[BusySample]) -> BusySample | None:
        """The first of them that began after the list was read."""
        return next((one for one in samples if one.start_ns >= self.read_at_ns), None)


def is_process_of(reading: RingReading, process: ProcessSample) -> bool:
    """Whether that is the run's own process.

    The kernel gives the pid of who holds a ring's lock. Of a ring for which it never gave one
    anybody may have written it, so there the user must be the same, where that can be known.
    """
    if process.pid != reading.host_pid:
        return False
    if reading.alive and reading.is_pid_seen:
        return True
    return process.uid == reading.owner_uid or (process.uid is None and not process.is_hidden)


class UndecidedSamples:
    """What was heard in some ticks and not settled yet: busy time counts, idle time is pending.

    Attributes:
        until_ns: Where the newest of them ends; -1 where there is none.
    """

    def __init__(self) -> None:
        self._ticks: deque[tuple[Sequence[BusySample], bool | None]] = deque()
        self._observed_ns = self._busy_ns = 0
        self.until_ns = -1

    def __bool__(self) -> bool:
        return bool(self._ticks)

    @property
    def samples(self) -> Iterator[BusySample]:
        """All of them, oldest first."""
        return (sample for busy, _ in self._ticks for sample in busy)

    def add(self, busy: Sequence[BusySample], present: bool | None, *, after_ns: int) -> None:
        """Take those of a tick, oldest first, and whether processes were on the GPU then.

        The newest that is settled ended at ``after_ns``.
        """
        self._ticks.append((busy, present))
        self._count(busy, max(self.until_ns, after_ns))

    def until(self, open_from_ns: int | None) -> Iterator[tuple[Sequence[BusySample], bool | None]]:
        """Let those ticks go, one by one, that end before an instant; ``None``: all."""
        ticks, settled_ns = self._ticks, -1
        while ticks and (
            open_from_ns is None or all(end_ns <= open_from_ns for _, end_ns, _ in ticks[0][0])
        ):
            tick = ticks.popleft()
            yield tick
            settled_ns = max([settled_ns, *(end_ns for _, end_ns, _ in tick[0])])
        self._observed_ns = self._busy_ns = 0
        self.until_ns = -1
        for busy, _ in ticks:
            self._count(busy, max(self.until_ns, settled_ns))

    def beside(self, totals: GpuTotals) -> GpuTotals:
        """What is settled and what is held, together."""
        return totals._replace(
            observed_ns=totals.observed_ns + self._observed_ns,
            busy_ns=totals.busy_ns + self._busy_ns,
            pending_ns=totals.pending_ns + self._observed_ns - self._busy_ns,
        )

    def _count(self, busy: Sequence[BusySample], until_ns: int) -> None:
        """Add up what a ledger would take: no nonsense, and no time twice."""
        for sample in busy:
            if sample.may_follow(until_ns):
                start_ns, end_ns, busy_ratio = sample
                length_ns = end_ns - start_ns
                self._observed_ns += length_ns
                self._busy_ns += round(length_ns * busy_ratio)
                until_ns = end_ns
        self.until_ns = max(self.until_ns, until_ns)
