"""Whether a run may count on a GPU: one rule, decided by the driver's process list.

Anyone can claim in a ring to be training on GPU 0. So a run is bound to a GPU only once the GPU
has worked during the run, by a process list that was read after that. The list must name the
run's process, or another one of its user's (a child that trains, a server that works for it).

Until then the binding is open, and nothing is settled by what the run records:

- the GPU's samples from its first work on are deferred;
- idle time before that work is kept apart for each user, who may yet be refused.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.attribution.idle_sharing import SharedIdle, share_idle
from gpumon.core.ring_format.events import RingReading
from gpumon.core.sample import BusySample, GpuSample, ProcessSample
from gpumon.pipeline.tracked_run import GpuBinding, TrackedRun, parts_of, with_reasons


def is_process_of(reading: RingReading, process: ProcessSample) -> bool:
    """Whether that is the run's own process.

    The kernel gives the pid of who holds a ring's lock. Without that anybody may have written the
    pid, so the user must be the same, where it can be known.
    """
    if process.pid != reading.host_pid:
        return False
    if reading.alive and reading.is_pid_seen:
        return True
    return process.uid == reading.owner_uid or (process.uid is None and not process.is_hidden)


def names_run(processes: Iterable[ProcessSample], reading: RingReading) -> bool:
    """Whether these include the run's process, or one of the same user."""
    return any(
        process.uid == reading.owner_uid or is_process_of(reading, process) for process in processes
    )


_MAX_LISTS: Final = 16
"""With one a second, all since the drain before last."""


class ProcessList(NamedTuple):
    """The newest list of one GPU's processes.

    Attributes:
        processes: ``None``: there is no list.
        read_at_ns: CLOCK_MONOTONIC.
        may_be_empty: Whether a list of this machine ever named a process. Otherwise an empty one
            is no evidence: a container hides processes.
    """

    processes: tuple[ProcessSample, ...] | None
    read_at_ns: int
    may_be_empty: bool

    def decide(
        self, reading: RingReading, at_work: BusySample, later: Iterable[BusySample], above: float
    ) -> GpuBinding | None:
        """Decide the binding of a run during which the GPU worked; ``None``: it stays open.

        A process of an unknown user contradicts no run, unless ``/proc`` hides the user: then only
        a run whose own process is listed is believed. After an empty list, another user's work may
        have just ended: then the run is believed if the GPU goes on working.

        Args:
            reading: The run's ring.
            at_work: A sample of its time in which the GPU worked.
            later: Samples after it, oldest first.
            above: The busy ratio above which a GPU works.
        """
        if self.processes is None:
            return GpuBinding.UNOPPOSED
        if self.read_at_ns < at_work.end_ns:
            return None
        if names_run(self.processes, reading):
            return GpuBinding.SEEN
        if self.processes:
            are_users_known = all(
                process.uid is not None or process.is_hidden for process in self.processes
            )
            return GpuBinding.REFUSED if are_users_known else GpuBinding.UNOPPOSED
        has_left = reading.ended_ns is not None and reading.ended_ns <= self.read_at_ns
        if has_left or not self.may_be_empty:
            return GpuBinding.UNOPPOSED
        after = self.first_after(later)
        return GpuBinding.UNOPPOSED if after is not None and after.busy_ratio > above else None

    def first_after(self, samples: Iterable[BusySample]) -> BusySample | None:
        """Return the first of these samples that began after the list was read."""
        return next((sample for sample in samples if sample.start_ns >= self.read_at_ns), None)


class DeferredTick(NamedTuple):
    """Samples of one tick, oldest first, and whether processes were on the GPU then."""

    busy: Sequence[BusySample]
    has_processes: bool | None


class GpuBindings:
    """Decides which runs are bound to one GPU, and defers its samples while a binding is open.

    Attributes:
        refused_total: How many runs were refused.
    """

    def __init__(self, active_above: float) -> None:
        self._active_above = active_above
        self._deferred: deque[DeferredTick] = deque()
        self._open_from_ns: int | None = None  # start of the first sample to defer
        self._lists: deque[ProcessList] = deque(maxlen=_MAX_LISTS)  # samples come later than they
        self.refused_total = 0

    @property
    def is_open(self) -> bool:
        return bool(self._deferred)

    def decide(
        self,
        runs: Sequence[TrackedRun],
        newest: GpuSample,
        answered_at_ns: int,
        *,
        driver_lists_processes: bool,
    ) -> None:
        """Compare these runs with the GPU's processes, as far as it has worked.

        Args:
            runs: Runs that may be on this GPU, alive or just ended.
            newest: Its newest sample.
            answered_at_ns: When it answered last.
            driver_lists_processes: Whether a list of this machine ever named a process.
        """
        uuid = newest.device.uuid
        undecided = [run for run in runs if run.bindings.get(uuid) is not GpuBinding.SEEN]
        if newest.processes is None:  # nothing opposes those that count already
            undecided = [run for run in undecided if not run.is_bound_to(uuid)]
        if undecided and newest.error is not None:
            return  # there is no new list
        self._open_from_ns = None
        read_at_ns = answered_at_ns if newest.processes_at_ns is None else newest.processes_at_ns
        listed = ProcessList(newest.processes, read_at_ns, driver_lists_processes)
        if not self._lists or self._lists[-1].read_at_ns != read_at_ns:
            self._lists.append(listed)
        samples = [*self._deferred_samples(), *newest.busy]
        for run in undecided:
            run.undecided_on.discard(uuid)
            for at, sample in enumerate(samples):
                if sample.busy_ratio > self._active_above and run.is_under_way_in(sample):
                    self._decide(run, uuid, samples[at:])
                    break

    def _decide(self, run: TrackedRun, uuid: str, samples: Sequence[BusySample]) -> None:
        at_work, *later = samples
        was_open = not run.is_bound_to(uuid)
        # The first list after the work decides: later ones may name who came after the run.
        listed = self._lists[-1]
        lists = [listed] if listed.processes is None else self._lists
        decisions = (
            one.decide(run.reading, at_work, later, self._active_above)
            for one in lists
            if one.processes is not None or one is listed
        )
        binding = next((found for found in decisions if found is not None), None)
        if binding is not None:
            if was_open or binding is not GpuBinding.UNOPPOSED:
                run.bind(uuid, binding)
                self.refused_total += binding is GpuBinding.REFUSED
        elif was_open and (listed.read_at_ns < at_work.end_ns or listed.first_after(later) is None):
            run.undecided_on.add(uuid)
            open_ns = self._open_from_ns
            start_ns = at_work.start_ns
            self._open_from_ns = start_ns if open_ns is None else min(open_ns, start_ns)

    def release(
        self, newest: DeferredTick, pending_from_ns: int | None = None
    ) -> Iterator[DeferredTick]:
        """Yield the ticks that may be settled now, oldest first; defer those of open bindings.

        From ``pending_from_ns`` on, a stack sample may yet come.
        """
        deferred, open_ns = self._deferred, self._open_from_ns
        if pending_from_ns is not None:
            open_ns = pending_from_ns if open_ns is None else min(open_ns, pending_from_ns)
        deferred.append(newest)
        while deferred and (
            open_ns is None or all(sample.end_ns <= open_ns for sample in deferred[0].busy)
        ):
            yield deferred.popleft()

    def release_all(self) -> Iterator[DeferredTick]:
        """Yield all deferred ticks: no run is left that they could belong to."""
        self._open_from_ns = None
        while self._deferred:
            yield self._deferred.popleft()

    def with_deferred(self, totals: GpuTotals, settled_until_ns: int) -> tuple[GpuTotals, int]:
        """Add deferred samples to settled totals: busy time counts, idle time is pending.

        Returns:
            The totals, and where the newest sample ends.
        """
        if not self._deferred:
            return totals, settled_until_ns
        observed_ns = busy_ns = 0
        until_ns = settled_until_ns
        for sample in self._deferred_samples():
            if sample.may_follow(until_ns):  # as the ledger will accept it
                until_ns = sample.end_ns
                observed_ns += sample.length_ns
                busy_ns += sample.busy_ns
        totals = totals._replace(
            observed_ns=totals.observed_ns + observed_ns,
            busy_ns=totals.busy_ns + busy_ns,
            pending_ns=totals.pending_ns + observed_ns - busy_ns,
        )
        return totals, until_ns

    def _deferred_samples(self) -> Iterator[BusySample]:
        return chain.from_iterable(tick.busy for tick in self._deferred)


class AwaitedWork:
    """Idle time of one GPU before the first work of runs: who waits for it, and its causes.

    Each user has an account: which user's work comes is known only then. A phase is read once it
    is over, because what it held, such as compiling, is recorded at its end. Memory is constant,
    however long no work comes.
    """

    def __init__(self) -> None:
        self._accounts: dict[int, _Account] = {}
        self._ns_of: Counter[frozenset[int]] = Counter()  # pending, by the users who waited then
        self._pending_ns = 0

    @property
    def is_known(self) -> bool:
        return bool(self._accounts)

    @property
    def owners(self) -> frozenset[int]:
        """Users for whom idle time is pending."""
        return frozenset().union(*self._ns_of)

    def add(self, sample: BusySample, runs: Sequence[TrackedRun]) -> None:
        """Add an inactive sample, later than all before, and the runs that may use the GPU."""
        for owner, own in _by_owner(runs).items():
            self._accounts.setdefault(owner, _Account()).add(sample, own)

    def note_pending(self, owners: frozenset[int], pending_ns: int) -> None:
        """Record how much idle time is pending, and who waits now."""
        if pending_ns < self._pending_ns:  # settled: what is left came after that
            self._ns_of.clear()
            self._pending_ns = 0
        if pending_ns > self._pending_ns:
            self._ns_of[owners] += pending_ns - self._pending_ns
        self._pending_ns = pending_ns

    def settle(self, runs: Sequence[TrackedRun]) -> SharedIdle:
        """Return the idle time by cause: the work of these runs has come."""
        each = [
            self._accounts[owner].settle(own)
            for owner, own in sorted(_by_owner(runs).items())
            if owner in self._accounts
        ]
        self.forget()
        return each[0] if len(each) == 1 else _mean(each)

    def drop(self, owners: Collection[int]) -> int:
        """Remove users whose work did not come; return the pending time that only they caused."""
        left: Counter[frozenset[int]] = Counter()
        for waited, length_ns in self._ns_of.items():
            left[waited.difference(owners)] += length_ns
        dropped_ns = left.pop(frozenset(), 0)
        self._ns_of = left
        self._pending_ns -= dropped_ns
        for owner in owners:
            self._accounts.pop(owner, None)
        return dropped_ns

    def forget(self) -> None:
        self._accounts.clear()


class _Account:
    """Idle time before the first work of one user's runs."""

    def __init__(self) -> None:
        self._from_ns = self._until_ns = self._busy_ns = 0
        self._shared = _NOTHING

    def add(self, sample: BusySample, runs: Sequence[TrackedRun]) -> None:
        if sample.start_ns != self._until_ns:
            self._share(self._until_ns, runs)
            self._from_ns = sample.start_ns
        self._until_ns = sample.end_ns
        self._busy_ns += sample.busy_ns
        self._share(min(sample.end_ns, *(run.timeline.open_since_ns for run in runs)), runs)

    def settle(self, runs: Sequence[TrackedRun]) -> SharedIdle:
        self._share(self._until_ns, runs)
        return self._shared

    def _share(self, until_ns: int, runs: Sequence[TrackedRun]) -> None:
        length_ns = until_ns - self._from_ns
        if length_ns <= 0:
            return
        busy_ns = min(self._busy_ns, length_ns)
        parts = parts_of(runs, self._from_ns, until_ns)
        shared = share_idle(length_ns - busy_ns, parts, wholly_idle=True)
        self._shared = self._shared.plus(with_reasons(shared, runs, self._from_ns, until_ns))
        self._busy_ns -= busy_ns
        self._from_ns = until_ns


_NOTHING: Final = SharedIdle({})


def _by_owner(runs: Iterable[TrackedRun]) -> dict[int, list[TrackedRun]]:
    by_owner: dict[int, list[TrackedRun]] = {}
    for run in runs:
        by_owner.setdefault(run.reading.owner_uid, []).append(run)
    return by_owner


def _mean(each: Collection[SharedIdle]) -> SharedIdle:
    """Split idle time that several users waited for equally between them."""
    total = _NOTHING
    for shared in each:
        total = total.plus(shared)
    count = max(1, len(each))
    idle_ns = {cause: amount_ns // count for cause, amount_ns in total.idle_ns.items()}
    reasons_ns = {key: amount_ns // count for key, amount_ns in total.reasons_ns.items()}
    amounts_ns = (amount_ns // count for amount_ns in total.amounts_ns)
    mean = SharedIdle(idle_ns, reasons_ns, *amounts_ns)
    # Several phases at once prove none of them: see ``share_idle``.
    return mean if len(idle_ns) == 1 else mean._replace(resolved_ns=0)
