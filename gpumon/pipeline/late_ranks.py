"""Whom the ranks of a job wait for: a rank that is late, for as long as its tags and GPU prove.

Ranks that meet in a collective may wait in a kernel that reads as busy. What proves the wait is
the rank that is late: its GPU idles, and its tags say in what. How long the others wait for it lies
between what they are busier than it, where they compute alike, and what it is late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.core.clock import NS_PER_S
from gpumon.core.join.own_time import OwnTime
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import JobKey
from gpumon.core.ring.events import RingReading
from gpumon.core.settings.detector import DetectorSettings
from gpumon.core.time.rank_wait import ITS_STEP, SUSPENDED, RankWait
from gpumon.pipeline.gpu_tracker import GpuTracker, LastingExcess
from gpumon.pipeline.runs import TrackedRun

_LATE_IN: Final = (
    IdleCause.INPUT_WAIT,
    IdleCause.HOST_TO_DEVICE,
    IdleCause.CALLBACKS,
    IdleCause.CHECKPOINT,
    IdleCause.VALIDATION,
    IdleCause.BETWEEN_EPOCHS,
)
"""In these a rank is late; idle time within a step may itself be a wait for others."""


_AS_MANY: Final = 0.02
_EVERY_NS: Final = 2 * NS_PER_S


class _Sums(NamedTuple):
    """What a rank's GPU did so far, nanoseconds."""

    busy_ns: int
    idle_ns: int
    step_idle_ns: int
    late_ns: dict[IdleCause, int]
    spun_ns: int


class _Grown(NamedTuple):
    """The same since the last look."""

    busy_ns: int
    idle_ns: int
    step_idle_ns: int
    late_ns: int
    late_in: str
    spun_ns: int


class _Rank:
    """One rank of a job, and the GPU that it has for itself.

    Attributes:
        open_low_ns: For how long it waited, if it waited for the rank that is late: how that one's
            steps vary has not told yet.
        open_high_ns: The most of that.
    """

    def __init__(self, run: TrackedRun, gpu: GpuTracker) -> None:
        self.run, self.gpu = run, gpu
        self.own_time = OwnTime()
        self.excess = LastingExcess()
        self.open_low_ns = self.open_high_ns = 0
        self._before = self._sums()
        self._until_ns = run.reading.told_until_ns

    def grown(self) -> _Grown:
        """What has come since this was asked last."""
        before, now = self._before, self._sums()
        late_ns = {cause: ns - before.late_ns.get(cause, 0) for cause, ns in now.late_ns.items()}
        until_ns = self.run.reading.told_until_ns
        stopped_ns = self.run.timeline.suspended_ns(self._until_ns, until_ns)
        self._before, self._until_ns = now, until_ns
        longest = max(late_ns, key=late_ns.__getitem__)
        is_stopped = stopped_ns > late_ns[longest]
        return _Grown(
            now.busy_ns - before.busy_ns,
            now.idle_ns - before.idle_ns,
            now.step_idle_ns - before.step_idle_ns,
            max(0, sum(late_ns.values())) + stopped_ns,
            SUSPENDED if is_stopped else longest.value,
            now.spun_ns - before.spun_ns,
        )

    def count(self, wait: RankWait, low_ns: int, high_ns: int, *, is_known: bool) -> None:
        """Count that it waited for another one; unless that is known, the least is kept open."""
        if is_known:
            low_ns += self.open_low_ns
            self.open_low_ns = self.open_high_ns = 0
        else:
            self.open_low_ns += low_ns
            self.open_high_ns += high_ns
            low_ns = 0
        self.gpu.wait_for_rank(wait, low_ns, high_ns)

    def forget(self) -> None:
        """It did not wait: the other one itself waits for the rest of its time."""
        self.gpu.ledger.wait_for_rank(0, -self.open_high_ns)
        self.open_low_ns = self.open_high_ns = 0

    def _sums(self) -> _Sums:
        totals = self.gpu.ledger.snapshot()
        late_ns = {cause: totals.bounds_ns(cause)[0] for cause in _LATE_IN}
        late_ns[IdleCause.INPUT_WAIT] = totals.starved_ns
        used_ns = totals.idle_total_ns - totals.idle_ns.get(IdleCause.NOT_IN_USE, 0)
        in_step = (IdleCause.IMBALANCE, IdleCause.WITHIN_STEP)
        step_ns = sum(totals.idle_ns.get(cause, 0) for cause in in_step)
        return _Sums(totals.busy_ns, used_ns, step_ns, late_ns, self.gpu.spun_ns)

    def wait(self, cause: str) -> RankWait:
        """That others wait for it."""
        facts = self.run.reading.facts
        return RankWait(self.run.label or facts.run, facts.rank, cause)


class LateRanks:
    """Follows the jobs of a machine from tick to tick, and tells each GPU whom it waits for."""

    def __init__(self, settings: DetectorSettings) -> None:
        self._settings = settings
        self._ranks: dict[str, _Rank] = {}  # by the run's key, of jobs of several
        self._late: list[_Rank] = []  # those that others may wait for, as of the last look
        self._due_ns = self._at_work = 0

    def update(
        self, at_ns: int, runs: Sequence[TrackedRun], gpus: Mapping[str, GpuTracker]
    ) -> None:
        """Take a tick, of which everything is settled."""
        for rank in self._late:
            rank.own_time.take(rank.run.reading.events)
        at_work = sum(len(run.used_uuids) for run in runs)
        if at_ns < self._due_ns and at_work == self._at_work:
            return
        self._due_ns, self._at_work = at_ns + _EVERY_NS, at_work
        for rank in self._ranks.values():
            rank.gpu.late_peer = None
        jobs = self._jobs(runs, gpus) if runs else []
        self._ranks = {rank.run.reading.key: rank for ranks in jobs for rank in ranks}
        self._late = [late for ranks in jobs if (late := self._look(ranks)) is not None]

    def _jobs(
        self, runs: Sequence[TrackedRun], gpus: Mapping[str, GpuTracker]
    ) -> list[list[_Rank]]:
        """The ranks of each job of two or more that have a GPU each."""
        of_job: dict[JobKey, dict[str, _Rank]] = {}
        for run in runs:
            if run.ended_ns is not None or len(run.used_uuids) != 1:
                continue
            (uuid,) = run.used_uuids
            if uuid in gpus:
                of_job.setdefault(run.job_key, {}).setdefault(uuid, self._rank(run, gpus[uuid]))
        return [[*of_gpu.values()] for of_gpu in of_job.values() if len(of_gpu) > 1]

    def _rank(self, run: TrackedRun, gpu: GpuTracker) -> _Rank:
        known = self._ranks.get(run.reading.key)
        return _Rank(run, gpu) if known is None or known.gpu is not gpu else known

    def _look(self, ranks: Sequence[_Rank]) -> _Rank | None:
        """Count what the ranks of a job waited; the one that others may have waited for."""
        grown = [(rank, rank.grown()) for rank in ranks]
        if all(rank.run.timeline.has_marks for rank in ranks):
            _count_spun(grown)
            return None
        late, most = max(grown, key=lambda pair: pair[1].late_ns)
        delays = True if most.late_in == SUSPENDED else late.own_time.delays
        others = [pair for pair in grown if pair[0] is not late]
        if delays is False:
            for rank, _ in others:
                rank.forget()
            return late
        wait, is_late = late.wait(most.late_in), False
        for rank, one in others:
            high_ns = min(one.busy_ns, max(0, most.late_ns - one.idle_ns))
            busier_ns = rank.excess.of(wait.run, one.busy_ns - most.busy_ns, most.busy_ns)
            low_ns = min(high_ns, busier_ns) if _compute_alike(rank, late) else 0
            rank.count(wait, low_ns, high_ns, is_known=bool(delays))
            is_worth_it = most.late_ns - one.idle_ns + one.step_idle_ns > (
                self._settings.advice.min_share * (one.busy_ns + one.idle_ns)
            )
            rank.gpu.late_peer = late.run if is_worth_it else None
            rank.gpu.waits_for = wait if is_worth_it else rank.gpu.waits_for
            is_late = is_late or is_worth_it
        return late if is_late else None


def _count_spun(grown: Sequence[tuple[_Rank, _Grown]]) -> None:
    """Where marks of the device tell for how long each was done: they wait for the last one."""
    last, least = min(grown, key=lambda pair: pair[1].spun_ns)
    is_late = 2 * least.late_ns > max(one.spun_ns for _, one in grown)
    wait = last.wait(least.late_in if is_late else ITS_STEP)
    for rank, one in grown:
        spun_ns = one.spun_ns - least.spun_ns
        rank.gpu.wait_for_rank(wait, spun_ns, spun_ns)


def _compute_alike(one: _Rank, other: _Rank) -> bool:
    """Whether both do the same work on boards of one kind, for all that is known."""
    boards = {rank.gpu.newest.device.name for rank in (one, other)}
    shares = {tuple(rank.run.reading.facts.shares.values()) for rank in (one, other)}
    return len(boards) == len(shares) == 1 and _take_as_many(one.run.reading, other.run.reading)


def _take_as_many(one: RingReading, other: RingReading) -> bool:
    """Whether both train on as many samples a step, where they tell."""
    if not (one.samples and one.steps and other.samples and other.steps):
        return True
    ratio = one.samples / one.steps / (other.samples / other.steps)
    return abs(ratio - 1) < _AS_MANY
