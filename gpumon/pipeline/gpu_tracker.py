"""One GPU from tick to tick: its ledger, its newest answer, and whether it still answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from gpumon.core.accounting.ledger import GpuLedger
from gpumon.core.accounting.rank_wait import RankWait, RankWaits
from gpumon.core.attribution.bounds import Bounds, Narrowed
from gpumon.core.attribution.first_batch import NEVER
from gpumon.core.attribution.idle_sharing import (
    SharedIdle,
    WindowParts,
    hide_input_wait,
    reshared,
    share_idle,
)
from gpumon.core.clock import NS_PER_S
from gpumon.core.device.fill import FillLedger
from gpumon.core.device.held import HoldWatch
from gpumon.core.device.in_job import InJobLedger
from gpumon.core.device.troubles import ErrorWatch
from gpumon.core.diagnosis.judging_now import GpuMoment, JudgedNow
from gpumon.core.diagnosis.verdict_rules import judge
from gpumon.core.phase import IdleCause
from gpumon.core.sample import BusySample, GpuSample
from gpumon.core.settings.detector import DetectorSettings
from gpumon.core.state import GpuState
from gpumon.pipeline.awaited_work import AwaitedWork, Awaiting
from gpumon.pipeline.gpu_claims import Claim, ProcessList, UndecidedSamples
from gpumon.pipeline.lasting_excess import LastingExcess
from gpumon.pipeline.runs import TrackedRun, parts_of, with_reasons


def _hanging_among(runs: Sequence[TrackedRun], uuid: str) -> TrackedRun | None:
    """A run that hangs on that GPU; ``None``: there is none, or another one works there."""
    hanging = [run for run in runs if run.is_hanging and run.is_surely_on(uuid)]
    if not hanging or any(run.is_working_on(uuid) for run in runs):
        return None
    return hanging[0]


def _suspended_since_ns(runs: Sequence[TrackedRun], uuid: str) -> int | None:
    """Since when all runs that use that GPU are suspended; ``None``: one can work, or none is."""
    stops_ns = [
        run.timeline.suspended_since_ns
        for run in runs
        if run.is_surely_on(uuid) and not run.is_over
    ]
    known_ns = [since_ns for since_ns in stops_ns if since_ns is not None]
    return max(known_ns) if known_ns and len(known_ns) == len(stops_ns) else None


_RECENT_SAMPLES = 256
_KEPT_OF_WORK: Final = 0.9
"""What is left of the weight of busy time with each further tick."""
_NOT_SHARED: Final = SharedIdle({})
_INPUT = "input"
_DRAINED_AFTER_NS: Final = 10 * NS_PER_S
"""So long a device may go on with what a process gave it before it was stopped."""


class GpuTracker:
    """Settles one GPU's samples, with the phases of the runs on it.

    Attributes:
        newest: What the GPU said last.
        ledger: Its time, settled.
        fill: How much of it works while it is busy.
        in_job: What its board tells while it works for a job of several GPUs.
        errors: Its errors.
        unlisted_since_ns: Since when the source lists it no longer; ``None`` while it does.
        claims_refused: How many runs named it while only processes of others were on it.
        rank_waits: Which ranks of its job it waited for.
        late_peer: The run of its job that is late now; ``None``: none is.
        worked_ns: Busy time of late, while it works for a job of several GPUs: what is older
            counts for less.
        spun_ns: For how long it read as busy though its run's work on the device was done.
    """

    def __init__(self, first: GpuSample, settings: DetectorSettings) -> None:
        self._settings = settings
        self.ledger = GpuLedger(settings)
        self.fill = FillLedger(settings.fill)
        self.in_job = InJobLedger(settings.fill)
        self.errors = ErrorWatch()
        self.newest = first
        self.unlisted_since_ns: int | None = None
        self._answered_at_ns: int | None = None
        self._has_peers = False  # only then is it worth remembering samples
        self._recent: deque[BusySample] = deque(maxlen=_RECENT_SAMPLES)
        self._excess = LastingExcess()
        self._awaited = AwaitedWork()
        self._awaiting = Awaiting()
        self._undecided = UndecidedSamples()
        self._open_from_ns: int | None = None  # where the first sample begins that is not decided
        self.claims_refused = 0
        self._hanging: TrackedRun | None = None
        self._hung_ns_span = NEVER, 0
        self._suspended_since_ns: int | None = None
        self._now = JudgedNow(settings)
        self._hold = HoldWatch(settings.held_after_ns)
        self.rank_waits = RankWaits()
        self.late_peer: TrackedRun | None = None
        self.spun_ns = 0
        self.worked_ns = 0.0
        self._unplaced_ns = 0  # by how much longer a peer was busy, and no idle time was found

    def hear(self, sample: GpuSample, at_ns: int) -> None:
        """Note what the GPU said, before anything is settled."""
        self.newest = sample
        if sample.error is None:
            self._answered_at_ns = at_ns
        self.fill.observe(sample)
        self.errors.hear(sample, at_ns)
        if self._has_peers:
            self._recent.extend(sample.busy)
            self.in_job.observe(sample)
            busy_ns = sum((end_ns - start_ns) * ratio for start_ns, end_ns, ratio in sample.busy)
            self.worked_ns = _KEPT_OF_WORK * self.worked_ns + busy_ns

    def note_listed(self, is_listed: bool, at_ns: int) -> None:
        """Note whether the source still lists it: a GPU that was taken out runs no job."""
        if is_listed:
            self.unlisted_since_ns = None
        elif self.unlisted_since_ns is None:
            self.unlisted_since_ns = at_ns
            self.newest = self.newest._replace(busy=(), error=None, faults=())
            self._open_from_ns = None
            # There is no run any more that these could be of.
            for busy, _ in self._undecided.until(None):
                self.ledger.observe(busy)
            self.ledger.end_job()

    def note_rank_wait(self, wait: RankWait, amount_ns: int) -> None:
        """Note that it waited for that rank, idle or reading as busy."""
        if amount_ns > 0:
            self.rank_waits.note(wait, amount_ns, self.ledger.jobs)

    def is_active_in(self, run: TrackedRun) -> bool:
        """Whether what the GPU said last has it at work while the run goes on."""
        above = self._settings.active_above
        return any(
            sample.busy_ratio > above and run.is_under_way_in(sample) for sample in self.newest.busy
        )

    def busy_ns_within(self, start_ns: int, end_ns: int) -> int | None:
        """Busy time in a window, also where it is not known to its end yet; ``None``: not at all.

        What is missing is taken to be like the rest; all of it, like the sample just before.
        """
        samples = self._recent or self.newest.busy
        busy_ns = known_ns = 0.0
        for sample in reversed(samples):
            if sample.end_ns <= start_ns:
                if not known_ns and start_ns - sample.end_ns < sample.end_ns - sample.start_ns:
                    return round(sample.busy_ratio * (end_ns - start_ns))
                break
            inside_ns = min(sample.end_ns, end_ns) - max(sample.start_ns, start_ns)
            if inside_ns > 0:
                busy_ns += inside_ns * sample.busy_ratio
                known_ns += inside_ns
        return round(busy_ns * (end_ns - start_ns) / known_ns) if known_ns else None

    def decide(self, runs: Sequence[TrackedRun], *, lists_tell: bool) -> None:
        """Hold the claims of these runs against the GPU's processes, as far as it has worked.

        Args:
            runs: Runs that may be on this GPU, alive or ended a moment ago.
            lists_tell: Whether a list of this machine ever named a process.
        """
        newest, uuid = self.newest, self.newest.device.uuid
        undecided = [run for run in runs if run.claims.get(uuid) is not Claim.SEEN]
        if newest.error is not None and undecided:
            return  # it tells nothing now, and its list neither
        self._open_from_ns = None
        if not undecided:
            return
        if newest.processes is None and all(run.counts_on(uuid) for run in undecided):
            return
        read_at_ns = newest.processes_at_ns
        heard_at_ns = self._answered_at_ns or 0
        listed = ProcessList(
            newest.processes, heard_at_ns if read_at_ns is None else read_at_ns, lists_tell
        )
        above, samples = self._settings.active_above, [*self._undecided.samples, *newest.busy]
        for run in undecided:
            run.undecided_on.discard(uuid)
            for at, sample in enumerate(samples):
                if sample.busy_ratio > above and run.is_under_way_in(sample):
                    self._decide(run, listed, samples[at:])
                    break

    def _decide(self, run: TrackedRun, listed: ProcessList, samples: Sequence[BusySample]) -> None:
        at_work, *later = samples
        uuid, was_open = self.newest.device.uuid, not run.counts_on(self.newest.device.uuid)
        claim = listed.decide(run.reading, at_work, later, self._settings.active_above)
        if claim is not None:
            if claim is Claim.UNOPPOSED and not was_open:
                return
            run.decide(uuid, claim)
            self.claims_refused += claim is Claim.REFUSED
        elif was_open and (listed.read_at_ns < at_work.end_ns or listed.first_after(later) is None):
            run.undecided_on.add(uuid)
            first_ns = at_work.start_ns
            open_ns = self._open_from_ns
            self._open_from_ns = first_ns if open_ns is None else min(open_ns, first_ns)

    def settle(self, runs: tuple[TrackedRun, ...], peers: Sequence[GpuTracker]) -> None:
        """Settle the samples of this tick, but none from the first on that is not decided.

        Args:
            runs: Runs that may be on this GPU and were not refused, alive or ended a moment ago;
                mostly none.
            peers: Other GPUs of the same jobs, which have heard theirs.
        """
        newest = self.newest
        self._follow_hang(_hanging_among(runs, newest.device.uuid))
        since_ns = _suspended_since_ns(runs, newest.device.uuid)
        if since_ns is not None and self.ledger.last_active_end_ns > since_ns + _DRAINED_AFTER_NS:
            since_ns = None  # somebody works here whom no tag names
        self._suspended_since_ns = since_ns
        present = None if newest.processes is None else bool(newest.processes)
        if self._open_from_ns is None and not self._undecided:
            self._settle_tick(newest.busy, present, runs, peers)
        else:
            self._undecided.add(newest.busy, present, after_ns=self.ledger.last_end_ns)
            for busy, was_present in self._undecided.until(self._open_from_ns):
                self._settle_tick(busy, was_present, runs, peers)
        self._hold.update(
            newest.busy,
            newest.processes,
            self.ledger.last_end_ns,
            has_run=any(not run.is_over and run.is_surely_on(newest.device.uuid) for run in runs),
        )

    def _settle_tick(
        self,
        busy: Sequence[BusySample],
        present: bool | None,
        runs: tuple[TrackedRun, ...],
        peers: Sequence[GpuTracker],
    ) -> None:
        ledger, newest = self.ledger, self.newest
        overs_ns = {run: run.over_ns(self._settings.idle_job_ends_after_ns) for run in runs}
        # Also for a training that is over, until its end is passed: these samples may be older.
        uuid = newest.device.uuid
        # A claim that is open holds nobody else's job, whose processes are gone.
        waiting = any(over_ns is None and run.counts_on(uuid) for run, over_ns in overs_ns.items())
        waits_for = [
            run
            for run, over_ns in overs_ns.items()
            if over_ns is None or run.left_ns.get(uuid) != over_ns
        ]
        owners = frozenset([run.reading.owner_uid for run in waits_for])
        self._stop_awaiting(self._awaiting.owners - owners)
        ledger.run_waits(bool(waits_for))
        if not waits_for:
            self._awaited.forget()
        self._has_peers = bool(peers)
        jobs = {run.reading.facts.job for run in waits_for if run.counts_on(uuid)}
        if peers and jobs:
            self.in_job.work_for(tuple(sorted(jobs)))
        if runs:
            for sample in busy:
                if not sample.may_follow(ledger.last_end_ns):
                    ledger.observe((sample,))  # which counts it as rejected
                    continue
                self._settle(sample, runs, peers)
                self._close(overs_ns, is_at_work=sample.busy_ratio > self._settings.active_above)
            if not busy:
                self._close(overs_ns, is_at_work=False)
        elif busy:
            ledger.observe(busy)
        ledger.processes_seen(None if present is None else present or waiting)
        self._awaiting.note(owners, ledger.awaited_ns)

    def _stop_awaiting(self, owners: Collection[int]) -> None:
        """The work of these users did not come: what nobody else waited for was no start."""
        if owners:
            self.ledger.await_less(self._awaiting.drop(owners))
            self._awaited.drop(owners)

    def state(self, now_ns: int, silence_ns: int) -> GpuState:
        """The GPU as outlets show it; silent for ``silence_ns`` means absent."""
        newest, ledger, answered_ns = self.newest, self.ledger, self._answered_at_ns
        totals, last_ns = ledger.snapshot(), ledger.last_end_ns
        if self._hanging is not None:
            totals = totals._replace(hanging_now=True)
        if self._undecided:
            totals, last_ns = self._undecided.beside(totals), self._undecided.until_ns
        listed = self.unlisted_since_ns is None
        unsettled = ledger.unsettled()
        silence = None if self._hanging is None else self._hanging.silence
        moment = GpuMoment(
            now_ns,
            totals,
            unsettled,
            ledger.last_active_end_ns,
            ledger.jobs,
            ledger.in_job,
            self._suspended_since_ns,
            None if silence is None else silence.since_ns,
        )
        return GpuState(
            device=newest.device,
            totals=totals,
            verdict=judge(totals, self._settings),
            latest=newest if newest.error is None else None,
            present=listed and answered_ns is not None and now_ns - answered_ns <= silence_ns,
            last_sample_at_ns=last_ns if last_ns >= 0 else None,
            resolution_ns=ledger.resolution_ns or None,
            error=newest.error,
            fill=self.fill.snapshot(),
            under_filled_now=self.fill.is_under_filled_now(now_ns),
            listed=listed,
            xid_errors=newest.xid_errors,
            errors=self.errors.errors,
            claims_refused=self.claims_refused,
            is_undecided=bool(self._undecided),
            in_job=self.in_job.snapshot(),
            unsettled=unsettled,
            now=self._now.update(moment),
            held=self._hold.held if newest.error is None else None,
            waits_for=self.rank_waits.most(ledger.jobs),
        )

    def _settle(
        self, sample: BusySample, runs: tuple[TrackedRun, ...], peers: Sequence[GpuTracker]
    ) -> None:
        """Settle one sample by what the runs did: those at work here, or else those to come."""
        uuid = self.newest.device.uuid
        here = [run for run in runs if run.is_under_way_in(sample)]
        is_active = sample.busy_ratio > self._settings.active_above
        here = self._without_workers(here, sample, is_active=is_active)
        if is_active:
            for run in here:
                if run.counts_on(uuid):
                    run.used_uuids.add(uuid)
                    run.timeline.note_activity(sample.start_ns, sample.end_ns)
        at_work = [run for run in here if uuid in run.used_uuids]
        if len(at_work) > 1:  # who stands still, or is over, takes no part of what others lose
            at_work = [run for run in at_work if self._goes_on(run, sample)] or at_work
        if is_active and len(at_work) < len(here):
            # It was others who worked: of these nobody knows yet.
            theirs = {run.reading.owner_uid for run in at_work}
            self._stop_awaiting({run.reading.owner_uid for run in here} - theirs)
        hung_ns = self._hung_ns(sample)
        if not at_work:
            if here and not is_active:
                self._awaited.add(sample, here)
            self.ledger.observe_shared(sample, _NOT_SHARED, hung_ns=hung_ns)
            return
        if self._awaited:
            self.ledger.explain_pending(self._awaited.take(at_work))
        shared, bounds, narrowed = self._shared(sample, at_work, peers)
        may_wait = not all(run.timeline.tags_waits for run in at_work)
        self.ledger.observe_shared(
            sample, shared, bounds=bounds, hung_ns=hung_ns, may_wait=may_wait
        )
        if narrowed is not None:
            self.ledger.narrow(narrowed)

    def _without_workers(
        self, here: list[TrackedRun], sample: BusySample, *, is_active: bool
    ) -> list[TrackedRun]:
        """Where a run works on this GPU, those that have worked by then; else all of them.

        What has counted no step beside it is a loader's worker, or is about to begin.
        """
        if len(here) < 2:
            return here
        uuid, at_work = (
            self.newest.device.uuid,
            [run for run in here if run.works_by(sample.end_ns)],
        )
        for run in at_work:
            is_on = uuid in run.used_uuids or (is_active and run.counts_on(uuid))
            if is_on and self._goes_on(run, sample):
                return at_work
        return here

    def _goes_on(self, run: TrackedRun, sample: BusySample) -> bool:
        """Whether a run neither stands still nor was over before that sample."""
        if run.stands_still:
            return False
        over_ns = run.over_ns(self._settings.idle_job_ends_after_ns)
        return over_ns is None or over_ns > sample.start_ns

    def _follow_hang(self, hanging: TrackedRun | None) -> None:
        """Note from when until when a run hangs: samples come later than what its ring tells."""
        former, self._hanging = self._hanging, hanging
        silence = None if hanging is None else hanging.silence
        if silence is not None and silence.hanging_from_ns is not None:
            self._hung_ns_span = silence.hanging_from_ns, NEVER
        elif former is not None and self._hung_ns_span[1] == NEVER:
            stamps_ns = former.reading.events.stamps_ns
            until_ns = stamps_ns[0] if stamps_ns else former.reading.told_until_ns
            until_ns = until_ns if former.ended_ns is None else former.ended_ns
            self._hung_ns_span = self._hung_ns_span[0], until_ns

    def _hung_ns(self, sample: BusySample) -> int:
        """How much of a sample passed while a run hung that is alone on the GPU."""
        from_ns, until_ns = self._hung_ns_span
        return max(0, min(sample.end_ns, until_ns) - max(sample.start_ns, from_ns))

    def _shared(
        self, sample: BusySample, on_here: list[TrackedRun], peers: Sequence[GpuTracker]
    ) -> tuple[SharedIdle, Bounds | None, Narrowed | None]:
        """How the idle time of a sample is shared, and how certain that is."""
        start_ns, end_ns, busy_ratio = sample
        length_ns, window = end_ns - start_ns, parts_of(on_here, start_ns, end_ns)
        idle_ns = length_ns - round(length_ns * busy_ratio)
        leads_ns = self._leads_ns(sample, peers)
        if leads_ns and len(on_here) == 1 and not on_here[0].used_uuids.isdisjoint(leads_ns):
            self._hide_input_wait(window, sample, leads_ns, on_here[0])
        lead_ns = max(leads_ns.values()) if leads_ns else 0
        if self.late_peer is not None:
            lead_ns += self._late_ns(sample, window, idle_ns)
        if peers and len(on_here) == 1:
            # What the device has done, and is busy all the same: it waits for another in a kernel.
            done_ns = on_here[0].timeline.drained_ns(start_ns, end_ns)
            self.spun_ns += max(0, done_ns - idle_ns)
        shared = share_idle(
            idle_ns,
            window,
            peer_excess_ns=self._unplaced_ns + lead_ns,
            wholly_idle=busy_ratio <= self._settings.active_above,
        )
        bounds = narrowed = None
        if len(on_here) == 1 and len(on_here[0].used_uuids) == 1:
            (run,) = on_here
            bounds, narrowed = run.bounds.observe(
                sample, window, shared, run.timeline, has_peers=bool(peers)
            )
            if bounds is not None and bounds.best_ns is not shared.idle_ns:
                shared = reshared(shared, window, bounds.best_ns)
        # What found no idle time in this window may have been in the next: see LastingExcess.
        imbalance_ns = shared.idle_ns.get(IdleCause.IMBALANCE, 0)
        self._unplaced_ns = min(self._unplaced_ns + lead_ns - imbalance_ns, length_ns)
        idle_in_steps_ns = imbalance_ns + shared.idle_ns.get(IdleCause.WITHIN_STEP, 0)
        busy_ns = max(0, window.step_ns - idle_in_steps_ns)
        for run in on_here:
            if run.stands_still:
                continue
            run.balance.add(self.newest.device.uuid, start_ns, window.step_ns, busy_ns)
        return with_reasons(shared, on_here, start_ns, end_ns), bounds, narrowed

    def _leads_ns(self, sample: BusySample, peers: Sequence[GpuTracker]) -> dict[str, int]:
        """How much longer each peer was busy in this window, by UUID; 0 where it was not."""
        if not peers:
            return {}
        start_ns, end_ns, busy_ratio = sample
        length_ns = end_ns - start_ns
        own_ns, leads_ns = round(length_ns * busy_ratio), {}
        for peer in peers:
            peer_ns = peer.busy_ns_within(start_ns, end_ns)
            if peer_ns is not None:
                uuid, most_ns = peer.newest.device.uuid, max(length_ns, peer.ledger.resolution_ns)
                leads_ns[uuid] = self._excess.of(uuid, peer_ns - own_ns, most_ns)
        return leads_ns

    def _late_ns(self, sample: BusySample, window: WindowParts, idle_ns: int) -> int:
        """How much longer than this run the late rank of its job was in a wait of its own."""
        own_ns = sum(window.waits.values())
        if self.late_peer is None or idle_ns <= own_ns:
            return 0
        parts = self.late_peer.timeline.parts(sample.start_ns, sample.end_ns)
        return max(0, sum(parts.waits.values()) + parts.validation_ns - own_ns)

    def _hide_input_wait(
        self, window: WindowParts, sample: BusySample, leads_ns: dict[str, int], run: TrackedRun
    ) -> None:
        """Expose the run to no more waits for input than all its GPUs were idle."""
        lead_ns = max(ns for uuid, ns in leads_ns.items() if uuid in run.used_uuids)
        length_ns = sample.end_ns - sample.start_ns
        all_idle_ns = max(0, length_ns - round(length_ns * sample.busy_ratio) - lead_ns)
        surplus_ns = self._excess.of(_INPUT, window.input_wait_ns - all_idle_ns, length_ns)
        hide_input_wait(window, surplus_ns)

    def _close(self, overs_ns: Mapping[TrackedRun, int | None], *, is_at_work: bool) -> None:
        """End the job of a training whose end the samples have passed, before they go on.

        Unless somebody else uses the GPU, what follows belongs to no job: its process is gone
        with its lock, or lives on with other things, once the device has done its last work.
        """
        uuid, last_end_ns, left = self.newest.device.uuid, self.ledger.last_end_ns, False
        for run, over_ns in overs_ns.items():
            if over_ns is None or over_ns > last_end_ns or run.left_ns.get(uuid) == over_ns:
                continue
            if run.ended_ns is not None or not is_at_work:
                run.left_ns[uuid] = over_ns
                left |= uuid in run.used_uuids
        if left and not self._is_in_use(overs_ns):
            self.ledger.end_job()

    def _is_in_use(self, overs_ns: Mapping[TrackedRun, int | None]) -> bool:
        """Whether somebody is at work here; who is only about to be begins a job of its own."""
        uuid = self.newest.device.uuid
        if any(over_ns is None and uuid in run.used_uuids for run, over_ns in overs_ns.items()):
            return True
        pids = {run.reading.host_pid for run in overs_ns if run.ended_ns is None}
        return any(process.pid not in pids for process in self.newest.processes or ())
