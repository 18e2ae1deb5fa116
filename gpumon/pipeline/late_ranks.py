"""Find the rank that the others of a job wait for, and for how long.

Ranks that wait in a collective may read as busy. The late rank proves the wait: its GPU idles,
and its tags show why. The others wait for it at most as long as it is late, and, if they are
known to do the same work, at least as long as they are busier than it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.core.accounting.rank_wait import ITS_STEP, SUSPENDED, LastingExcess, RankWait
from gpumon.core.attribution.own_time import OwnTime
from gpumon.core.clock import NS_PER_S
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import JobKey
from gpumon.core.ring_format.events import RingReading
from gpumon.core.settings.detector import DetectorSettings
from gpumon.pipeline.gpu_tracker import GpuTracker
from gpumon.pipeline.tracked_run import TrackedRun

_LATE_CAUSES: Final = (
    IdleCause.INPUT_WAIT,
    IdleCause.HOST_TO_DEVICE,
    IdleCause.CALLBACKS,
    IdleCause.CHECKPOINT,
    IdleCause.VALIDATION,
    IdleCause.BETWEEN_EPOCHS,
)
"""Causes that make a rank late; idle time within a step may itself be a wait for others."""
_EQUAL_BATCH_TOLERANCE: Final = 0.02
_EVERY_NS: Final = 2 * NS_PER_S
_PATIENCE_NS: Final = 10 * NS_PER_S
"""After this time a job is compared even if one of its GPUs has no new samples."""
_MAX_STEPS_AHEAD: Final = 1
_MAX_AHEAD_RATIO: Final = 0.02
"""Ranks that synchronise in each step are at most this far ahead of each other: one step, plus this
part of the steps, because rings are not read at the same time."""


class _Sums(NamedTuple):
    busy_ns: int
    idle_ns: int
    step_idle_ns: int
    late_ns: dict[IdleCause, int]
    max_late_ns: int
    spun_ns: int


class _Growth(NamedTuple):
    """A rank's growth since the last comparison: ``late_ns`` at least, ``max_late_ns`` at most."""

    busy_ns: int
    idle_ns: int
    step_idle_ns: int
    late_ns: int
    max_late_ns: int
    late_cause: str
    spun_ns: int
    steps: int


class _Rank:
    """One rank of a job, and the GPU that only it uses."""

    def __init__(self, run: TrackedRun, gpu: GpuTracker) -> None:
        self.run, self.gpu = run, gpu
        self.own_time = OwnTime()
        self.excess = LastingExcess()
        # Least and longest waits for each run that is not yet known to be late.
        self._open_ns: dict[str, tuple[int, int]] = {}
        self._before = self._sums()
        self._until_ns = run.reading.known_until_ns
        self._samples_until_ns = gpu.ledger.last_end_ns
        self._steps = run.reading.steps
        self.compared_at_ns = 0

    @property
    def has_new_samples(self) -> bool:
        """Whether its GPU has any since the last comparison: they come every few seconds."""
        return self.gpu.ledger.last_end_ns > self._samples_until_ns

    def growth(self) -> _Growth:
        before, now = self._before, self._sums()
        late_ns = {cause: ns - before.late_ns.get(cause, 0) for cause, ns in now.late_ns.items()}
        self._samples_until_ns = self.gpu.ledger.last_end_ns
        until_ns = self.run.reading.known_until_ns  # a stop counts before samples show it
        stopped_ns = self.run.timeline.suspended_ns(self._until_ns, until_ns)
        self._before, self._until_ns = now, until_ns
        steps, self._steps = self.run.reading.steps - self._steps, self.run.reading.steps
        longest = max(late_ns, key=late_ns.__getitem__)
        is_stopped = stopped_ns > late_ns[longest]
        return _Growth(
            now.busy_ns - before.busy_ns,
            now.idle_ns - before.idle_ns,
            now.step_idle_ns - before.step_idle_ns,
            max(0, sum(late_ns.values())) + stopped_ns,
            max(0, now.max_late_ns - before.max_late_ns) + stopped_ns,
            SUSPENDED if is_stopped else longest.value,
            now.spun_ns - before.spun_ns,
            steps,
        )

    def count(self, wait: RankWait, low_ns: int, high_ns: int, *, is_known: bool) -> None:
        """Count a wait for another rank; keep its lower bound open unless the delay is known."""
        open_low_ns, open_high_ns = self._open_ns.pop(wait.run, (0, 0))
        if is_known:
            low_ns += open_low_ns
        else:
            self._open_ns[wait.run] = open_low_ns + low_ns, open_high_ns + high_ns
            low_ns = 0
        self.gpu.ledger.wait_for_rank(low_ns, high_ns)

    def forget(self, wait: RankWait) -> None:
        """Undo waits for a rank that is not late but waits itself."""
        _, open_high_ns = self._open_ns.pop(wait.run, (0, 0))
        self.gpu.ledger.wait_for_rank(0, -open_high_ns)

    def _sums(self) -> _Sums:
        totals = self.gpu.ledger.idle_only()
        late_ns = {cause: totals.bounds_ns(cause)[0] for cause in _LATE_CAUSES}
        late_ns[IdleCause.INPUT_WAIT] = totals.starved_ns
        used_ns = totals.idle_total_ns - totals.idle_ns.get(IdleCause.NOT_IN_USE, 0)
        in_step = (IdleCause.IMBALANCE, IdleCause.WITHIN_STEP)
        step_ns = sum(totals.idle_ns.get(cause, 0) for cause in in_step)
        max_late_ns = min(used_ns, sum(totals.bounds_ns(cause)[1] for cause in _LATE_CAUSES))
        return _Sums(totals.busy_ns, used_ns, step_ns, late_ns, max_late_ns, self.gpu.peers.spun_ns)

    def wait(self, cause: str) -> RankWait:
        """The wait of others for this rank."""
        facts = self.run.reading.facts
        return RankWait(self.run.label or facts.run, facts.rank, cause)


class LateRanks:
    """Follows the jobs of a machine, and notes which rank each GPU waits for."""

    def __init__(self, settings: DetectorSettings) -> None:
        self._settings = settings
        self._ranks: dict[str, _Rank] = {}  # by the run's key, in jobs of several
        self._late: list[_Rank] = []  # those that others may wait for
        self._due_ns = self._at_work = 0

    def update(
        self, at_ns: int, runs: Sequence[TrackedRun], gpus: Mapping[str, GpuTracker]
    ) -> None:
        for rank in self._late:
            rank.own_time.ingest(rank.run.reading.events)
        at_work = sum(len(run.used_uuids) for run in runs)
        if at_work == self._at_work and not self._is_due(at_ns):
            return
        self._due_ns, self._at_work = at_ns + _EVERY_NS, at_work
        jobs = self._jobs(runs, gpus) if runs else []
        before = self._ranks
        self._ranks = {rank.run.reading.key: rank for ranks in jobs for rank in ranks}
        for key in before.keys() - self._ranks.keys():
            before[key].gpu.peers.late_peer = None
        found = [self._late_of(ranks, at_ns) for ranks in jobs]
        self._late = [late for late in found if late is not None]

    def _is_due(self, at_ns: int) -> bool:
        if at_ns < self._due_ns:
            return False
        ranks = self._ranks.values()
        has_more = not ranks or any(rank.has_new_samples for rank in ranks)
        return has_more or at_ns - self._due_ns >= _PATIENCE_NS

    def _late_of(self, ranks: Sequence[_Rank], at_ns: int) -> _Rank | None:
        """The rank of a job that others may wait for, as of its newest samples."""
        is_overdue = at_ns - ranks[0].compared_at_ns >= _PATIENCE_NS
        if not is_overdue and not all(rank.has_new_samples for rank in ranks):
            return next((rank for rank in ranks if rank in self._late), None)
        for rank in ranks:
            rank.gpu.peers.late_peer, rank.compared_at_ns = None, at_ns
        return self._compare(ranks)

    def _jobs(
        self, runs: Sequence[TrackedRun], gpus: Mapping[str, GpuTracker]
    ) -> list[list[_Rank]]:
        """The ranks of each job of two or more that have a GPU each."""
        of_job: dict[JobKey, dict[str, TrackedRun]] = {}
        for run in runs:
            if run.ended_ns is not None or len(run.used_uuids) != 1:
                continue
            (uuid,) = run.used_uuids
            if uuid in gpus:
                of_job.setdefault(run.job_key, {}).setdefault(uuid, run)
        return [
            [self._rank(run, gpus[uuid]) for uuid, run in of_gpu.items()]
            for of_gpu in of_job.values()
            if len(of_gpu) > 1
        ]

    def _rank(self, run: TrackedRun, gpu: GpuTracker) -> _Rank:
        known = self._ranks.get(run.reading.key)
        return _Rank(run, gpu) if known is None or known.gpu is not gpu else known

    def _compare(self, ranks: Sequence[_Rank]) -> _Rank | None:
        """Count the waits of a job's ranks; return the rank that others may have waited for."""
        growths = [(rank, rank.growth()) for rank in ranks]
        if all(rank.run.timeline.has_marks for rank in ranks):
            _count_spun(growths)
            return None
        late_rank, latest = max(growths, key=lambda pair: pair[1].late_ns + pair[1].max_late_ns)
        is_suspended = latest.late_cause == SUSPENDED
        delays = True if is_suspended else late_rank.own_time.delays
        max_steps = (1 + _MAX_AHEAD_RATIO) * latest.steps + _MAX_STEPS_AHEAD
        others = [
            (rank, growth)
            for rank, growth in growths
            if rank is not late_rank and growth.steps <= max_steps
        ]
        wait, is_late = late_rank.wait(latest.late_cause), False
        if delays is False:
            for rank, _ in others:
                rank.forget(wait)
            return late_rank
        for rank, growth in others:
            own_ns = max(growth.idle_ns, growth.max_late_ns)
            high_ns = min(growth.busy_ns, max(0, latest.max_late_ns - own_ns))
            excess_ns = rank.excess.of(wait.run, growth.busy_ns - latest.busy_ns, latest.busy_ns)
            certain_ns = min(high_ns, excess_ns, max(0, latest.late_ns - growth.idle_ns))
            low_ns = certain_ns if is_suspended or _compute_alike(rank, late_rank) else 0
            rank.count(wait, low_ns, high_ns, is_known=bool(delays))
            waits_ns = latest.max_late_ns - own_ns + growth.step_idle_ns
            least_ns = self._settings.advice.min_share * (growth.busy_ns + growth.idle_ns)
            if waits_ns > least_ns:
                is_late = True
                rank.gpu.peers.late_peer = late_rank.run
                rank.gpu.note_rank_wait(wait, waits_ns)
        return late_rank if is_late else None


def _count_spun(growths: Sequence[tuple[_Rank, _Growth]]) -> None:
    """Count waits from the device's marks, which show how long each rank waited for the last."""
    last_rank, last = min(growths, key=lambda pair: pair[1].spun_ns)
    is_late = 2 * last.late_ns > max(growth.spun_ns for _, growth in growths)
    wait = last_rank.wait(last.late_cause if is_late else ITS_STEP)
    for rank, growth in growths:
        spun_ns = growth.spun_ns - last.spun_ns
        rank.gpu.note_rank_wait(wait, spun_ns)
        rank.gpu.ledger.wait_for_rank(spun_ns, spun_ns)


def _compute_alike(one: _Rank, other: _Rank) -> bool:
    """Whether both are known to do the same work, on boards of one kind."""
    boards = {rank.gpu.newest.device.name for rank in (one, other)}
    shares = {tuple(rank.run.reading.facts.shares.values()) for rank in (one, other)}
    return len(boards) == len(shares) == 1 and _have_equal_batches(
        one.run.reading, other.run.reading
    )


def _have_equal_batches(one: RingReading, other: RingReading) -> bool:
    if not (one.samples and one.steps and other.samples and other.steps):
        return False
    ratio = one.samples / one.steps / (other.samples / other.steps)
    return abs(ratio - 1) < _EQUAL_BATCH_TOLERANCE
