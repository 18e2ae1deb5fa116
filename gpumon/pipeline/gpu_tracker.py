"""One GPU from tick to tick: its newest sample, and its time settled by what runs did on it.

A tick calls ``observe``, then ``decide`` once every GPU was observed, then ``settle`` once every
binding is decided: what a GPU's idle time was for can depend on the other GPUs of its job.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.core.accounting.energy_use import EnergyLedger
from gpumon.core.accounting.ledger import GpuLedger
from gpumon.core.accounting.rank_wait import RankWait, RankWaits
from gpumon.core.accounting.seen_pauses import PlacedSample
from gpumon.core.attribution.bounds import Bounds, Narrowed
from gpumon.core.attribution.first_waits import NEVER
from gpumon.core.attribution.idle_sharing import SharedIdle, reshared, share_idle
from gpumon.core.clock import NS_PER_S
from gpumon.core.device.board_counters import BoardLedger
from gpumon.core.device.idle_holder import HoldWatch
from gpumon.core.device.job_measurements import InJobLedger
from gpumon.core.device.sm_utilisation import FillLedger
from gpumon.core.device.troubles import ErrorWatch
from gpumon.core.diagnosis.current_verdict import CurrentVerdict, GpuMoment
from gpumon.core.diagnosis.verdict_rules import diagnose
from gpumon.core.phase import IdleCause
from gpumon.core.sample import BusySample, GpuSample, ProcessSample
from gpumon.core.settings.detector import DetectorSettings
from gpumon.core.stacks.place import Place
from gpumon.core.stacks.stack import StackSample
from gpumon.core.state import GpuState, SettledTime
from gpumon.pipeline.gpu_bindings import AwaitedWork, DeferredTick, GpuBindings
from gpumon.pipeline.job_stacks import JobStacks
from gpumon.pipeline.peer_work import PeerWork
from gpumon.pipeline.settled_time import TimeByOwner
from gpumon.pipeline.tracked_run import TrackedRun, parts_of, with_reasons

_NOT_SHARED: Final = SharedIdle({})
_LAG_NS: Final = NS_PER_S
"""An idle board may take no sample for as long."""
_DRAINED_AFTER_NS: Final = 10 * NS_PER_S
"""How long a device may go on with what a process gave it before it was suspended."""


class GpuTracker:
    """Settles one GPU's samples, with the phases of the runs on it.

    Attributes:
        newest: Its newest sample.
        ledger: Its time, settled.
        fill: How much of it works while it is busy.
        board: What its board's gauges add up to.
        energy: What its energy was used for.
        in_job: What its board showed while it worked for a job of several GPUs.
        errors: Its errors.
        unlisted_since_ns: Since when the source no longer lists it; ``None`` while it does.
        rank_waits: Which ranks of its job it waited for.
        peers: Its work compared with that of the other GPUs of its job.
        stack_pending_from_ns: From when on a stack sample of its process may yet come; later
            samples are not settled before that. ``None``: none is being taken.
    """

    def __init__(
        self, first: GpuSample, settings: DetectorSettings, *, counts_users: bool = False
    ) -> None:
        self._settings = settings
        self.newest = first
        self.ledger = GpuLedger(settings)
        self._time = TimeByOwner(self.ledger, counts_users=counts_users)
        self.fill = FillLedger(settings.fill)
        self.board = BoardLedger()
        self.energy = EnergyLedger()
        self.in_job = InJobLedger(settings.fill)
        self.errors = ErrorWatch()
        self.rank_waits = RankWaits()
        self.peers = PeerWork()
        self.unlisted_since_ns: int | None = None
        self.stack_pending_from_ns: int | None = None
        self._answered_at_ns: int | None = None
        self._has_peers = False  # only then is it worth remembering samples
        self._bindings = GpuBindings(settings.active_above)
        self._awaited = AwaitedWork()
        self._hang = _Hang()
        self._suspended_since_ns: int | None = None
        self._had_processes: bool | None = None
        self._last_processes: tuple[ProcessSample, ...] = ()
        self._now = CurrentVerdict(settings)
        self._stacks = JobStacks()
        self._hold = HoldWatch(settings.held_after_ns)
        self._is_repeated = self._had_runs = False
        self._shown: GpuState | None = None  # until something happens

    @property
    def uuid(self) -> str:
        return self.newest.device.uuid

    # -- what is observed ------------------------------------------------------

    def observe(self, sample: GpuSample, at_ns: int) -> None:
        """Record a sample, before anything is settled."""
        before, self.newest = self.newest, sample
        self.note_answer(at_ns)
        self._is_repeated = not sample.busy and _repeats(sample, before)
        if self._is_repeated:
            return
        self.fill.observe(sample)
        self.board.observe(sample)
        self.energy.observe(sample, at_ns)
        self.errors.observe(sample, at_ns)
        if self._has_peers:
            self.peers.observe(sample.busy)
            self.in_job.observe(sample)

    def note_answer(self, at_ns: int) -> None:
        """Record that its newest sample still holds."""
        if self.newest.error is None:
            self._answered_at_ns = at_ns

    def note_listed(self, is_listed: bool, at_ns: int) -> None:
        """Record whether the source still lists it: a removed GPU runs no job."""
        if is_listed:
            self.unlisted_since_ns = None
        elif self.unlisted_since_ns is None:
            self.unlisted_since_ns = at_ns
            self._shown = None
            self.newest = self.newest._replace(busy=(), error=None, faults=())
            for busy, _ in self._bindings.release_all():
                self.ledger.observe(busy)
            self.ledger.end_job()

    def note_rank_wait(self, wait: RankWait, amount_ns: int) -> None:
        """Record that it waited for that rank, idle or reading as busy."""
        if amount_ns > 0:
            self._shown = None
            self.rank_waits.note(wait, amount_ns, self.ledger.jobs)

    def note_stack_sample(self, sample: StackSample, place: Place) -> None:
        """Record where the GPU's process was; a failed sample is no evidence."""
        if sample.error is None:
            start_ns, end_ns, owner_uid = sample.start_ns, sample.end_ns, sample.owner_uid
            self.ledger.note_stack_sample(PlacedSample(start_ns, end_ns, place, owner_uid))
        else:
            self._stacks.evidence.add_failure(sample.error)

    @property
    def defers_samples(self) -> bool:
        """Whether samples wait for a binding, or for a stack sample."""
        return self._bindings.is_open

    def is_active_in(self, run: TrackedRun) -> bool:
        """Whether its newest sample has it at work while the run goes on."""
        return any(
            self._is_active(sample) and run.is_under_way_in(sample) for sample in self.newest.busy
        )

    def busy_ns_within(self, start_ns: int, end_ns: int) -> int | None:
        """Estimate its busy time in a window; ``None``: nothing of it is known."""
        return self.peers.busy_ns_within(start_ns, end_ns, self.newest.busy)

    def decide(self, runs: Sequence[TrackedRun], *, driver_lists_processes: bool) -> None:
        """Decide which of these runs are bound to it: see ``GpuBindings``."""
        answered_at_ns = self._answered_at_ns or 0
        self._bindings.decide(
            runs, self.newest, answered_at_ns, driver_lists_processes=driver_lists_processes
        )

    # -- settling --------------------------------------------------------------

    def settle(self, runs: tuple[TrackedRun, ...], peers: Sequence[GpuTracker]) -> None:
        """Settle this tick's samples, except those held because a binding is open.

        Args:
            runs: Runs that may be on this GPU and were not refused, alive or just ended;
                usually none.
            peers: Other GPUs of the same jobs, which have observed this tick.
        """
        newest = self.newest
        if not (runs or self._had_runs) and self._is_repeated and not self._bindings.is_open:
            return  # nothing happened since the last tick
        self._shown, self._had_runs = None, bool(runs)
        self._hang.follow(runs, self.uuid)
        if newest.processes is not None:
            self._last_processes = newest.processes
        read_at_ns = newest.processes_at_ns
        self._time.note_processes(
            newest.processes, (self._answered_at_ns or 0) if read_at_ns is None else read_at_ns
        )
        since_ns = _suspended_since_ns(runs, self.uuid)
        if since_ns is not None and self.ledger.last_active_end_ns > since_ns + _DRAINED_AFTER_NS:
            since_ns = None  # an untagged process works here
        self._suspended_since_ns = since_ns
        newest_tick = DeferredTick(newest.busy, self._has_processes())
        for tick in self._bindings.release(newest_tick, self.stack_pending_from_ns):
            self._settle_tick(tick, runs, peers)
        self._hold.update(
            newest.busy,
            newest.processes,
            self.ledger.last_end_ns,
            has_run=any(not run.is_over and run.is_surely_on(self.uuid) for run in runs),
        )

    def _has_processes(self) -> bool | None:
        """Whether processes were on it until its newest sample; ``None``: there is no list.

        A list that is newer than the samples counts once they reach it.
        """
        processes, read_at_ns = self.newest.processes, self.newest.processes_at_ns
        newest_end_ns = max([self.ledger.last_end_ns, *(one.end_ns for one in self.newest.busy)])
        lags = read_at_ns is not None and newest_end_ns < read_at_ns - _LAG_NS
        if processes is None or not lags:
            self._had_processes = None if processes is None else bool(processes)
        return self._had_processes

    def _settle_tick(
        self, tick: DeferredTick, runs: tuple[TrackedRun, ...], peers: Sequence[GpuTracker]
    ) -> None:
        ledger, uuid = self.ledger, self.uuid
        overs_ns = {run: run.over_ns for run in runs}
        # An unbound run keeps no other job alive whose processes are gone.
        is_bound = any(
            over_ns is None and run.is_bound_to(uuid) for run, over_ns in overs_ns.items()
        )
        # A run that is over is waited for until its end is passed: samples may be older than that.
        waits_for = [
            run
            for run, over_ns in overs_ns.items()
            if over_ns is None or run.left_ns.get(uuid) != over_ns
        ]
        owners = frozenset([run.reading.owner_uid for run in waits_for])
        self._drop_waiting_owners(self._awaited.owners - owners)
        ledger.set_run_waiting(bool(waits_for))
        if not waits_for:
            self._awaited.forget()
        self._has_peers = bool(peers)
        jobs = {run.reading.facts.job for run in waits_for if run.is_bound_to(uuid)}
        if peers and jobs:
            self.in_job.work_for(tuple(sorted(jobs)))
        if runs:
            steady = _Steady.of(runs, tick.busy, uuid)
            for sample in tick.busy:
                if not sample.may_follow(ledger.last_end_ns):
                    ledger.observe((sample,))  # which counts it as rejected
                    continue
                is_active = self._is_active(sample)
                if steady is None:
                    # A run does not wait before it begins, however late the sample comes.
                    ledger.set_run_waiting(any(run.began_by(sample.end_ns) for run in waits_for))
                self._settle_sample(sample, runs, peers, is_active=is_active, steady=steady)
                if steady is None:
                    self._time.belongs_to(None)
                    self._end_jobs(overs_ns, is_active=is_active)
            self._time.belongs_to(None)
            ledger.set_run_waiting(bool(waits_for))
            if not tick.busy:
                self._end_jobs(overs_ns, is_active=False)
        elif tick.busy:
            self._time.belongs_to(())
            ledger.observe(tick.busy)
            self._time.belongs_to(None)
        has_processes = tick.has_processes
        ledger.processes_seen(None if has_processes is None else has_processes or is_bound)
        self._awaited.note_pending(owners, ledger.awaited_ns)

    def _drop_waiting_owners(self, owners: Collection[int]) -> None:
        """Drop idle time as start-up if only runs of these users, who did no work, waited."""
        if owners:
            self.ledger.give_up_awaiting(self._awaited.drop(owners))

    def _settle_sample(
        self,
        sample: BusySample,
        runs: tuple[TrackedRun, ...],
        peers: Sequence[GpuTracker],
        *,
        is_active: bool,
        steady: _Steady | None,
    ) -> None:
        """Settle one sample by what the runs at work did; without one, keep it for later."""
        uuid, candidates = self.uuid, runs
        if steady is None or steady.have_workers:
            candidates = tuple([run for run in runs if run.is_under_way_in(sample)])
            candidates = self._without_workers(candidates, sample, is_active=is_active)
        if is_active:
            self._note_work(sample, candidates, candidates if steady is None else steady.noting)
        at_work = [run for run in candidates if uuid in run.used_uuids]
        if steady is None and len(at_work) > 1:
            # A run that stands still, or is over, has no part in others' losses.
            at_work = [run for run in at_work if run.goes_on(sample)] or at_work
        if is_active and len(at_work) < len(candidates):
            owners_at_work = {run.reading.owner_uid for run in at_work}
            self._drop_waiting_owners(
                {run.reading.owner_uid for run in candidates} - owners_at_work
            )
        hung_ns = self._hang.overlap_ns(sample)
        self._time.belongs_to(at_work)
        if not at_work:
            if candidates and not is_active:
                self._awaited.add(sample, candidates)
            self.ledger.observe_shared(sample, _NOT_SHARED, hung_ns=hung_ns)
            return
        if self._awaited.is_known:
            self.ledger.explain_pending(self._awaited.settle(at_work))
        shared, bounds, narrowed = self._share(
            sample, at_work, peers, is_active=is_active, steady=steady
        )
        may_wait = not all(run.timeline.tags_waits for run in at_work)
        self.ledger.observe_shared(
            sample, shared, bounds=bounds, hung_ns=hung_ns, may_wait=may_wait
        )
        if narrowed is not None:
            self.ledger.narrow(narrowed)

    def _note_work(
        self, sample: BusySample, candidates: Sequence[TrackedRun], noting: Sequence[TrackedRun]
    ) -> None:
        """Note that the GPU works for those of ``candidates`` to which it matters."""
        present = set(candidates)
        for run in noting:
            if run in present and run.is_bound_to(self.uuid):
                run.used_uuids.add(self.uuid)
                run.timeline.note_activity(sample.start_ns, sample.end_ns)

    def _is_active(self, sample: BusySample) -> bool:
        return sample.busy_ratio > self._settings.active_above

    def _without_workers(
        self, candidates: tuple[TrackedRun, ...], sample: BusySample, *, is_active: bool
    ) -> tuple[TrackedRun, ...]:
        """Leave out runs that have counted no step, where another one works on this GPU.

        They are a loader's workers, or about to begin.
        """
        if len(candidates) < 2:
            return candidates
        uuid, at_work = self.uuid, [run for run in candidates if run.works_by(sample.end_ns)]
        for run in at_work:
            is_on = uuid in run.used_uuids or (is_active and run.is_bound_to(uuid))
            if is_on and run.goes_on(sample):
                return tuple(at_work)
        return candidates

    def _share(
        self,
        sample: BusySample,
        at_work: list[TrackedRun],
        peers: Sequence[GpuTracker],
        *,
        is_active: bool,
        steady: _Steady | None,
    ) -> tuple[SharedIdle, Bounds | None, Narrowed | None]:
        """Share a sample's idle time between causes; return how certain that is, too."""
        start_ns, end_ns, _ = sample
        codes = {} if steady is None else steady.code_of
        length_ns, window = end_ns - start_ns, parts_of(at_work, start_ns, end_ns, codes)
        idle_ns = sample.idle_ns
        only_run = at_work[0] if len(at_work) == 1 else None
        leads_ns = self.peers.leads_ns(sample, peers)
        if leads_ns and only_run is not None and not only_run.used_uuids.isdisjoint(leads_ns):
            self.peers.hide_input_wait(window, sample, leads_ns, only_run)
        if peers and only_run is not None:
            # Work that is done and still reads as busy: a kernel waits for another GPU.
            done_ns = only_run.timeline.drained_ns(start_ns, end_ns)
            self.peers.spun_ns += max(0, done_ns - idle_ns)
        excess_ns = self.peers.excess_ns(sample, window, idle_ns, leads_ns)
        shared = share_idle(idle_ns, window, peer_excess_ns=excess_ns, wholly_idle=not is_active)
        bounds = narrowed = None
        if only_run is not None and len(only_run.used_uuids) == 1:
            bounds, narrowed = only_run.bounds.observe(
                sample, window, shared, only_run.timeline, has_peers=bool(peers)
            )
            if bounds is not None and bounds.best_ns is not shared.idle_ns:
                shared = reshared(shared, window, bounds.best_ns)
        imbalance_ns = shared.idle_ns.get(IdleCause.IMBALANCE, 0)
        self.peers.carry_excess(excess_ns, imbalance_ns, length_ns)
        idle_in_steps_ns = imbalance_ns + shared.idle_ns.get(IdleCause.WITHIN_STEP, 0)
        busy_ns = max(0, window.step_ns - idle_in_steps_ns)
        for run in at_work if window.step_ns > 0 else ():
            if not run.stands_still:
                run.balance.add(self.uuid, start_ns, window.step_ns, busy_ns)
        return with_reasons(shared, at_work, start_ns, end_ns), bounds, narrowed

    def _end_jobs(self, overs_ns: Mapping[TrackedRun, int | None], *, is_active: bool) -> None:
        """End the job of a run whose end the samples have passed, before they go on.

        Unless another run uses the GPU, what follows belongs to no job. A run whose process lives
        on has left once the device has done its last work.
        """
        uuid, last_end_ns, has_left = self.uuid, self.ledger.last_end_ns, False
        for run, over_ns in overs_ns.items():
            if over_ns is None or over_ns > last_end_ns or run.left_ns.get(uuid) == over_ns:
                continue
            if run.ended_ns is not None or not is_active:
                run.left_ns[uuid] = over_ns
                has_left |= uuid in run.used_uuids
        if has_left and not self._is_in_use(overs_ns):
            self.ledger.end_job()

    def _is_in_use(self, overs_ns: Mapping[TrackedRun, int | None]) -> bool:
        """Whether a run or an untagged process is at work here; one to come has its own job."""
        if any(
            over_ns is None and self.uuid in run.used_uuids for run, over_ns in overs_ns.items()
        ):
            return True
        pids = {run.reading.host_pid for run in overs_ns if run.ended_ns is None}
        return any(process.pid not in pids for process in self.newest.processes or ())

    # -- what outlets show -----------------------------------------------------

    def pop_settled(self) -> SettledTime | None:
        """What was settled since the last call, and for whom; ``None``: nothing was."""
        return None if self._shown is not None else self._time.pop(self.uuid)

    def state(self, now_ns: int, silence_ns: int) -> GpuState:
        """Return the GPU as outlets show it; silent for ``silence_ns`` means absent.

        While nothing happens, the last state stays the state: that is for some seconds, because
        each drain of the GPU's ring brings samples.
        """
        newest, ledger, answered_ns = self.newest, self.ledger, self._answered_at_ns
        listed = self.unlisted_since_ns is None
        is_present = listed and answered_ns is not None and now_ns - answered_ns <= silence_ns
        shown = self._shown
        if shown is not None and shown.present is is_present:
            if shown.latest is not None and shown.latest.busy:
                shown = self._shown = shown._replace(latest=newest)
            return shown
        settled = ledger.snapshot()
        totals, last_ns = self._bindings.with_deferred(settled, ledger.last_end_ns)
        if self._hang.run is not None:
            totals = totals._replace(hanging_now=True)
        unsettled = ledger.unsettled()
        silence = None if self._hang.run is None else self._hang.run.silence
        moment = GpuMoment(
            last_ns if last_ns >= 0 else now_ns,  # the totals reach no further
            totals,
            unsettled,
            ledger.last_active_end_ns,
            ledger.jobs,
            ledger.in_job,
            self._suspended_since_ns,
            None if silence is None else silence.since_ns,
        )
        self._shown = GpuState(
            device=newest.device,
            totals=totals,
            verdict=diagnose(totals, self._settings),
            latest=newest if newest.error is None else None,
            last_processes=self._last_processes,
            present=is_present,
            last_sample_at_ns=last_ns if last_ns >= 0 else None,
            resolution_ns=ledger.resolution_ns or None,
            error=newest.error,
            fill=self.fill.snapshot(),
            under_filled_now=self.fill.is_under_filled_now(now_ns),
            listed=listed,
            xid_errors=newest.xid_errors,
            errors=self.errors.errors,
            claims_refused=self._bindings.refused_total,
            is_undecided=self._bindings.is_open,
            in_job=self.in_job.snapshot(),
            unsettled=unsettled,
            now=self._now.update(moment),
            held=self._hold.held if newest.error is None else None,
            waits_for=self.rank_waits.most(ledger.jobs),
            stacks=self._stacks.finding(ledger),
            deferred_ns=totals.observed_ns - settled.observed_ns,
            deferred_busy_ns=totals.busy_ns - settled.busy_ns,
            board=self.board.counters,
            energy=self.energy.settle(totals),
        )
        return self._shown


def _repeats(sample: GpuSample, before: GpuSample) -> bool:
    """Whether all of a sample but ``busy`` is as it was."""
    return sample.device is before.device and sample[2:] == before[2:]


class _Steady(NamedTuple):
    """Runs on one GPU that went on throughout a tick, and what each of its samples asks of them.

    There may be a hundred, and most do nothing.

    Attributes:
        code_of: The phase that each was in all the time; ``SEVERAL``, if there is none.
        noting: Those to which it matters that the GPU works.
        have_workers: Whether some have counted a step, and others not.
    """

    code_of: dict[TrackedRun, int]
    noting: list[TrackedRun]
    have_workers: bool

    @classmethod
    def of(
        cls, runs: Sequence[TrackedRun], samples: Sequence[BusySample], uuid: str
    ) -> _Steady | None:
        """``None``: not all of them went on throughout these samples."""
        if not samples:
            return None
        start_ns, end_ns = samples[0].start_ns, samples[-1].end_ns
        if not all(run.goes_on_throughout(start_ns, end_ns) for run in runs):
            return None
        code_of = {run: run.timeline.sole_code(start_ns, end_ns) for run in runs}
        noting = [run for run in runs if uuid not in run.used_uuids or run.timeline.awaits_activity]
        at_work = [run for run in runs if run.works_by(end_ns)]
        were_all = len(at_work) == len(runs) and all(run.works_by(start_ns) for run in runs)
        return cls(code_of, noting, bool(at_work) and not were_all)


class _Hang:
    """Which run hangs on a GPU that no other run works on, and from when until when.

    Samples come later than what a ring records.

    Attributes:
        run: The run that hangs now; ``None``: none.
    """

    def __init__(self) -> None:
        self.run: TrackedRun | None = None
        self._from_ns, self._until_ns = NEVER, 0

    def follow(self, runs: Sequence[TrackedRun], uuid: str) -> None:
        before, self.run = self.run, _hanging_run(runs, uuid)
        silence = None if self.run is None else self.run.silence
        if silence is not None and silence.hanging_from_ns is not None:
            self._from_ns, self._until_ns = silence.hanging_from_ns, NEVER
        elif before is not None and self._until_ns == NEVER:
            stamps_ns = before.reading.events.stamps_ns
            until_ns = stamps_ns[0] if stamps_ns else before.reading.known_until_ns
            self._until_ns = until_ns if before.ended_ns is None else before.ended_ns

    def overlap_ns(self, sample: BusySample) -> int:
        """Return how much of a sample passed while a run hung."""
        return max(0, min(sample.end_ns, self._until_ns) - max(sample.start_ns, self._from_ns))


def _hanging_run(runs: Sequence[TrackedRun], uuid: str) -> TrackedRun | None:
    """A run that hangs on that GPU; ``None``: there is none, or another one works there."""
    hanging = [run for run in runs if run.is_hanging and run.is_surely_on(uuid)]
    if not hanging or any(run.is_working_on(uuid) for run in runs):
        return None
    return hanging[0]


def _suspended_since_ns(runs: Sequence[TrackedRun], uuid: str) -> int | None:
    """Since when all runs that use that GPU are suspended; ``None``: one can work, or none is."""
    stops_ns = [
        run.suspended_since_ns for run in runs if run.is_surely_on(uuid) and not run.is_over
    ]
    known_ns = [since_ns for since_ns in stops_ns if since_ns is not None]
    return max(known_ns) if known_ns and len(known_ns) == len(stops_ns) else None
