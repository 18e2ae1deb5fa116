"""The ledger of one GPU's time, for live samples and for logs.

``busy + sum(idle by cause) + pending == observed`` holds after every call, in
integer nanoseconds; settled time never moves. Memory is constant.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from gpumon.core.accounting.job_end import job_patience_ns
from gpumon.core.accounting.pauses import IdleSpan, PauseTracker
from gpumon.core.accounting.pending import PendingTime, Unsettled
from gpumon.core.accounting.sample_columns import ACTIVE, BURST, Levels, SampleColumns
from gpumon.core.accounting.seen_pauses import PlacedSample, SeenPause, SeenPauses
from gpumon.core.accounting.starved_flag import StarvedFlag
from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.attribution.bounds import Bounds, Narrowed
from gpumon.core.attribution.idle_sharing import SharedIdle
from gpumon.core.phase import UNPROVED, IdleCause, InputWaitReason
from gpumon.core.sample import BusySample
from gpumon.core.settings.detector import DEFAULT_SETTINGS, DetectorSettings
from gpumon.core.stacks.sample_join import Joined


class GpuLedger:
    """Settles the samples of one GPU, oldest first.

    Idle time that a phase explains settles at once, and so does idle time
    inside an active sample (``unknown``). The rest is pending until the next
    active sample, which makes it part of a pause (``unknown``), or until the
    job has ended (``not_in_use``).

    With stack samples, a pause in which they agree gets the cause that they show. Idle time inside
    an active sample is then pending until the next sample, which may begin such a pause.

    Attributes:
        levels: Thresholds on busy ratios.
        last_end_ns: End of the newest sample; -1 before the first.
        resolution_ns: Length of the newest sample.
        rejected: Samples dropped so far.
        in_job: Whether a job is running.
        job_named_process: Whether the process list named a process during the
            present job: then it ends when the list is empty, or after ``held_after_ns``.
        jobs: How many jobs have begun.
        last_active_end_ns: End of the newest active sample; 0 before the first.
    """

    def __init__(self, settings: DetectorSettings = DEFAULT_SETTINGS) -> None:
        self._settings = settings
        self.levels = Levels(settings)
        self._pauses = PauseTracker(settings)
        self._flag = StarvedFlag(settings)
        self._pending = PendingTime()
        self._observed_ns = self._busy_ns = 0
        self._resolved_ns = self._inferred_ns = self._hidden_ns = 0
        self._first_wait_ns = self._validation_wait_ns = self._epoch_wait_ns = 0
        self._less_ns: defaultdict[IdleCause, int] = defaultdict(int)
        self._more_ns: defaultdict[IdleCause, int] = defaultdict(int)
        self._hanging_ns = self._hung_pending_ns = 0
        self._rank_wait_low_ns = self._rank_wait_high_ns = 0
        self._hanging_idle_ns: defaultdict[IdleCause, int] = defaultdict(int)
        self._idle_ns: defaultdict[IdleCause, int] = defaultdict(int)
        self._reasons_ns: dict[IdleCause, Counter[str]] = {
            cause: Counter() for cause in (IdleCause.INPUT_WAIT, IdleCause.WITHIN_STEP)
        }
        self._in_use_ns = self._in_use_busy_ns = self._low_ns = self._high_ns = 0
        # Inactive time since the last active sample: in use only if another follows.
        self._unsure_ns = self._unsure_busy_ns = self._unsure_low_ns = 0
        self.in_job = self._run_is_waiting = self.job_named_process = False
        self._in_use_at_job_start_ns = self._low_at_job_start_ns = 0
        self.jobs = 0
        self.last_active_end_ns, self.last_end_ns = 0, -1
        self._seen: SeenPauses | None = None  # until there is a stack sample
        self._edge_ns = 0  # idle part of the newest active sample, while that is pending
        self._seen_ns: defaultdict[IdleCause, int] = defaultdict(int)
        self._seen_samples: defaultdict[IdleCause, int] = defaultdict(int)
        self.resolution_ns = self.rejected = 0

    def observe(self, samples: Iterable[BusySample]) -> None:
        """Settle samples that no phase explains.

        Args:
            samples: Disjoint, oldest first. Samples that overlap, are empty or have a ratio
                outside 0 to 1 are dropped and counted in ``rejected``: they are not idle time.
        """
        if self._seen is not None:
            for sample in samples:
                self.observe_shared(sample, SharedIdle({}))
            return
        columns, rejected = SampleColumns.of([*samples], self.levels, self.last_end_ns)
        self.rejected += rejected
        self.observe_columns(columns)

    def observe_columns(self, columns: SampleColumns) -> None:
        """Settle samples as ``observe``, a stretch of them at a time."""
        for begin, end in columns.stretches:
            self._settle_level(columns, begin, end)
        self._update_flag()

    def observe_shared(
        self,
        sample: BusySample,
        shared: SharedIdle,
        *,
        bounds: Bounds | None = None,
        hung_ns: int = 0,
        may_wait: bool = True,
    ) -> None:
        """Settle one sample whose idle time phases explain, in full or in part.

        Args:
            sample: As in ``observe``.
            shared: Its idle time by cause; sums to at most its idle time.
            bounds: How much of it is certain; ``None``: all of it.
            hung_ns: How much of the sample passed while a run hung.
            may_wait: Whether idle time that no phase explains can be a wait for input: not if the
                run tags its waits.
        """
        if not sample.may_follow(self.last_end_ns):
            self.rejected += 1
            return
        if self._seen is not None:
            self._seen.observe(sample)
        starved_ns = shared.idle_ns.get(IdleCause.INPUT_WAIT, 0) - shared.first_input_wait_ns
        if hung_ns:
            self._hanging_ns += hung_ns
            if not shared.idle_ns:  # its cause is unknown until work comes
                self._hung_pending_ns += round(hung_ns * (1 - sample.busy_ratio))
            for cause, amount_ns in shared.idle_ns.items():
                if cause not in UNPROVED:
                    hung_idle_ns = amount_ns * hung_ns // (sample.end_ns - sample.start_ns)
                    self._hanging_idle_ns[cause] += hung_idle_ns
                    starved_ns -= hung_idle_ns if cause is IdleCause.INPUT_WAIT else 0
        if bounds is not None:
            starved_ns -= self._widen(bounds, starved_ns)
        explained_ns = self._explain(shared)
        self._settle(
            sample,
            explained_ns,
            starved_ns,
            unused_ns=shared.idle_ns.get(IdleCause.NOT_IN_USE, 0),
            may_wait=may_wait,
        )
        self._update_flag()

    def _widen(self, bounds: Bounds, starved_ns: int) -> int:
        """Count the uncertain time of a window; return how much of its starved time that is."""
        unsure_ns = 0
        for cause, less_ns in bounds.less_ns.items():
            if cause is IdleCause.INPUT_WAIT:
                less_ns = less_ns * max(0, starved_ns) // bounds.best_ns[cause]
                unsure_ns = less_ns
            self._less_ns[cause] += less_ns
        for cause, more_ns in bounds.more_ns.items():
            self._more_ns[cause] += more_ns
        return unsure_ns

    def narrow(self, narrowed: Narrowed) -> None:
        """Count what became known of earlier windows: certain time only grows."""
        for unsure_ns, known_ns in (
            (self._less_ns, narrowed.low_ns),
            (self._more_ns, narrowed.high_ns),
        ):
            for cause, amount_ns in known_ns.items():
                unsure_ns[cause] = max(0, unsure_ns[cause] - amount_ns)
        self._update_flag()

    def note_stack_sample(self, sample: PlacedSample) -> None:
        """Add a stack sample of the GPU's process; of time that is settled, it is no evidence."""
        if self._seen is None:
            self._seen = SeenPauses()
        if sample.start_ns < self.last_end_ns:
            self._seen.note_late(sample)
        else:
            self._seen.note(sample)

    def pop_stack_samples(self) -> list[Joined[PlacedSample]]:
        """The stack samples whose driver samples came since the last call."""
        return [] if self._seen is None else self._seen.pop_decided()

    def wait_for_rank(self, low_ns: int, high_ns: int) -> None:
        """Count busy time that was a wait for another rank, at least and at most."""
        self._rank_wait_low_ns += low_ns
        self._rank_wait_high_ns += high_ns

    def explain_pending(self, shared: SharedIdle) -> None:
        """Settle pending time by phases, because the work that it led to has come.

        Args:
            shared: Pending idle time by cause, from before a run's first active
                sample on this GPU, which is observed next.
        """
        explained_ns = sum(shared.idle_ns.values())
        if not 0 < explained_ns <= self._pending.amount_ns:
            return  # it was settled meanwhile
        self._explain(shared)
        self._explain_hang(shared)
        for cause, amount_ns in shared.idle_ns.items():
            if amount_ns:
                self._pending.settle(cause, amount_ns)
        self._pauses.explain(explained_ns)
        if not self.in_job:
            unused_ns = shared.idle_ns.get(IdleCause.NOT_IN_USE, 0)
            self._count_in_use(0.0, explained_ns - unused_ns, 0)

    def _explain_hang(self, shared: SharedIdle) -> None:
        """Count pending time of a hang under the cause that lasted longest."""
        hung_ns, self._hung_pending_ns = self._hung_pending_ns, 0
        causes = [cause for cause in shared.idle_ns if cause not in UNPROVED]
        if not hung_ns or not causes:
            return
        cause = max(causes, key=shared.idle_ns.__getitem__)
        hung_ns = min(hung_ns, shared.idle_ns[cause])
        self._hanging_idle_ns[cause] += hung_ns
        if cause is IdleCause.INPUT_WAIT:  # count no second twice, as first batch and as hang
            self._first_wait_ns -= min(hung_ns, shared.first_input_wait_ns)

    @property
    def awaited_ns(self) -> int:
        """Idle time that is pending because a tagged run may yet use the GPU."""
        return 0 if self.in_job else self._pending.amount_ns

    def give_up_awaiting(self, amount_ns: int) -> None:
        """Settle at most ``amount_ns`` of ``awaited_ns`` as not in use: no run's work followed."""
        amount_ns = min(amount_ns, self.awaited_ns)
        if amount_ns:
            self._pending.settle(IdleCause.NOT_IN_USE, amount_ns)
            self._idle_ns[IdleCause.NOT_IN_USE] += amount_ns

    def processes_seen(self, present: bool | None) -> None:
        """Update from the process list: not empty, empty, or not available (``None``)."""
        if present is None:
            self.job_named_process = False  # no list shows when it ends
        elif present:
            self.job_named_process = self.in_job
        elif self.in_job and self.job_named_process:
            self.end_job()

    def set_run_waiting(self, is_waiting: bool) -> None:
        """Note whether a tagged run may yet use the GPU.

        Then the job does not end by itself, and idle time before its first active
        sample is pending: ``start_up`` if that comes, else ``not_in_use``.
        """
        if self._run_is_waiting and not is_waiting and not self.in_job:
            self._settle_pending(IdleCause.NOT_IN_USE)
        self._run_is_waiting = is_waiting

    def end_job(self) -> None:
        """End the job, or the log: pending time was no pause."""
        self._settle_part(IdleCause.UNKNOWN, self._edge_ns)
        self._settle_pending(IdleCause.NOT_IN_USE)
        self._unsure_ns = self._unsure_busy_ns = self._unsure_low_ns = 0
        self.in_job = self.job_named_process = False
        if self._seen is not None:
            self._seen.end_pause()

    def snapshot(self) -> GpuTotals:
        """All totals, as of the newest sample."""
        pauses = self._pauses
        return GpuTotals(
            observed_ns=self._observed_ns,
            busy_ns=self._busy_ns,
            idle_ns=dict(self._idle_ns),
            pending_ns=self._pending.amount_ns,
            in_use_ns=self._in_use_ns,
            in_use_busy_ns=self._in_use_busy_ns,
            suspected_ns=pauses.suspected_ns,
            resolved_ns=self._resolved_ns,
            inferred_ns=self._inferred_ns,
            hidden_input_wait_ns=self._hidden_ns,
            low_ns=self._low_ns,
            high_ns=self._high_ns,
            gaps=pauses.gaps.snapshot(),
            starved_intervals=pauses.starved_intervals.snapshot(),
            merged_intervals=pauses.starved_intervals.merged,
            episodes=self._flag.episodes,
            low_levels=pauses.low_levels,
            starved_now=self._flag.raised,
            irregular_ns=pauses.irregular_ns,
            cycle_ns=pauses.cycle_ns,
            suspicion=pauses.suspicion,
            pauses=pauses.counted.lengths.snapshot(),
            first_input_wait_ns=self._first_wait_ns,
            validation_input_wait_ns=self._validation_wait_ns,
            epoch_input_wait_ns=self._epoch_wait_ns,
            rank_wait_low_ns=self._rank_wait_low_ns,
            rank_wait_high_ns=self._rank_wait_high_ns,
            input_wait_by_reason_ns=dict(self._reasons_ns[IdleCause.INPUT_WAIT]),
            within_step_by_reason_ns=dict(self._reasons_ns[IdleCause.WITHIN_STEP]),
            may_be_less_ns=dict(self._less_ns),
            may_be_more_ns=dict(self._more_ns),
            hanging_ns=self._hanging_ns,
            hanging_idle_ns=dict(self._hanging_idle_ns),
            seen_ns=dict(self._seen_ns),
            seen_samples=dict(self._seen_samples),
            sampled_pauses=pauses.sampled,
            seen_input_pauses=pauses.seen_as_input,
        )

    @property
    def settled_ns(self) -> tuple[int, Mapping[IdleCause, int]]:
        """Busy and settled idle time, cheaply; valid until the next sample."""
        return self._busy_ns, self._idle_ns

    def idle_only(self) -> GpuTotals:
        """Busy and idle time by cause alone, cheaply; valid until the next sample."""
        return GpuTotals(
            busy_ns=self._busy_ns,
            idle_ns=self._idle_ns,
            first_input_wait_ns=self._first_wait_ns,
            may_be_less_ns=self._less_ns,
            may_be_more_ns=self._more_ns,
            hanging_idle_ns=self._hanging_idle_ns,
        )

    def unsettled(self) -> Unsettled:
        """What is not settled yet, as of the newest sample."""
        return self._pending.snapshot(
            self._unsure_busy_ns, self._unsure_low_ns, self._pauses.open_idle_ns
        )

    def _settle(
        self,
        sample: BusySample,
        explained_ns: int,
        input_wait_ns: int,
        *,
        unused_ns: int = 0,
        may_wait: bool = True,
    ) -> None:
        """Settle one sample.

        Args:
            sample: The next one.
            explained_ns: Part of its idle time that phases explain.
            input_wait_ns: Part of that which is certainly a wait for input, but not for a first
                batch.
            unused_ns: Part of it that is not in use: the process could not run.
            may_wait: Whether unexplained idle time can be a wait for input.
        """
        start_ns, end_ns, busy_ratio = sample
        length_ns, busy_ns = end_ns - start_ns, sample.busy_ns
        if self.in_job and not self._run_is_waiting:
            is_active = busy_ratio > self._settings.active_above
            if self._finds_job_over(start_ns if is_active else end_ns, length_ns):
                self.end_job()
        cause = self._settle_time(start_ns, end_ns, busy_ratio, busy_ns, explained_ns, unused_ns)
        self.resolution_ns = length_ns
        idle_ns = length_ns - busy_ns - unused_ns
        if cause is IdleCause.INPUT_WAIT:  # seen in the pause that this sample ends
            input_wait_ns += length_ns - busy_ns - explained_ns
        may_wait = may_wait and cause is IdleCause.UNKNOWN
        is_active = busy_ratio > self._settings.active_above
        if self._seen is not None and not (explained_ns or is_active):
            self._seen.add_idle(sample)
        if self.in_job and (idle_ns or not unused_ns):  # else it is a gap in a pause
            open_ns = length_ns - busy_ns - explained_ns if may_wait else 0
            span = IdleSpan(start_ns, end_ns, idle_ns, open_ns, input_wait_ns)
            self._follow_pauses(span, busy_ratio, span, 1)

    def _settle_level(self, columns: SampleColumns, begin: int, end: int) -> None:
        """Settle the samples from ``begin`` to ``end``, which no phase explains, as ``_settle``."""
        level = columns.levels[begin]
        if level & BURST and end - begin > 1 and self._pauses.is_open:
            self._settle_level(columns, begin, begin + 1)  # the burst that ends a pause
            begin += 1
        over = self._position_after_job(columns, begin, end)
        if over is not None:
            if over > begin:
                self._settle_level(columns, begin, over)
                begin = over
            self.end_job()
        start_ns, end_ns = columns.starts_ns[begin], columns.ends_ns[end - 1]
        busy_ns = columns.busy_between(begin, end)
        self._settle_time(start_ns, end_ns, columns.busy_ratios[begin], busy_ns)
        last_start_ns = columns.starts_ns[end - 1]
        self.resolution_ns = end_ns - last_start_ns
        if self.in_job:
            idle_ns = end_ns - start_ns - busy_ns
            span = IdleSpan(start_ns, end_ns, idle_ns, idle_ns, 0)
            idle_ns = end_ns - last_start_ns - columns.busy_ns[end - 1]
            last = IdleSpan(last_start_ns, end_ns, idle_ns, idle_ns, 0)
            self._follow_pauses(span, columns.busy_ratios[begin], last, end - begin)

    def _settle_time(
        self,
        start_ns: int,
        end_ns: int,
        busy_ratio: float,
        busy_ns: int,
        explained_ns: int = 0,
        unused_ns: int = 0,
    ) -> IdleCause:
        """Settle samples without a gap, which pass the same thresholds as ``busy_ratio``.

        Returns:
            The cause that stack samples show of the pause that they end; else ``UNKNOWN``.
        """
        length_ns = end_ns - start_ns
        untagged_ns = length_ns - busy_ns - explained_ns
        self.last_end_ns = end_ns
        self._observed_ns += length_ns
        self._busy_ns += busy_ns
        if busy_ratio <= self._settings.active_above:
            self._settle_inactive(busy_ratio, busy_ns, untagged_ns, explained_ns - unused_ns)
            return IdleCause.UNKNOWN
        cause = IdleCause.UNKNOWN
        if not self.in_job:
            self._begin_job()
        elif self._unsure_ns or self._pending.amount_ns:
            cause = self._confirm_unsure()
        self.last_active_end_ns = end_ns
        if self._seen is not None and not self._pauses.is_open:
            self._edge_ns = untagged_ns
            self._pending.amount_ns += untagged_ns
        elif untagged_ns:
            self._settle_as(cause, untagged_ns)
        self._count_in_use(busy_ratio, length_ns - unused_ns, busy_ns)
        return cause

    def _finds_job_over(self, idle_until_ns: int, sample_ns: int) -> bool:
        """Whether the GPU was inactive for too long, as a sample of this length shows."""
        idle_ns = idle_until_ns - self.last_active_end_ns
        if not idle_ns or idle_ns <= self._settings.idle_job_ends_after_ns:
            return False
        is_listed = self.job_named_process
        return idle_ns > job_patience_ns(sample_ns, self._settings, is_listed=is_listed)

    def _position_after_job(self, columns: SampleColumns, begin: int, end: int) -> int | None:
        """The first sample that finds the job over; ``None``: none does."""
        if not self.in_job or self._run_is_waiting:
            return None
        is_active = columns.levels[begin] & ACTIVE
        if is_active:
            end = begin + 1  # those after it follow an active sample
        idle_until_ns = columns.starts_ns if is_active else columns.ends_ns
        longest_idle_ns = idle_until_ns[end - 1] - self.last_active_end_ns
        if longest_idle_ns <= self._settings.idle_job_ends_after_ns:
            return None
        for at in range(begin, end):
            sample_ns = columns.ends_ns[at] - columns.starts_ns[at]
            if self._finds_job_over(idle_until_ns[at], sample_ns):
                return at
        return None

    def _follow_pauses(
        self, span: IdleSpan, busy_ratio: float, last: IdleSpan, samples: int
    ) -> None:
        """Follow pauses through samples without a gap; ``last`` is the newest."""
        pauses = self._pauses
        if busy_ratio <= self._settings.burst_above:
            pauses.add_low(span, busy_ratio, samples)
        elif pauses.is_open:
            in_use_ns = self._in_use_ns - self._in_use_at_job_start_ns  # includes this sample
            low_ns = self._low_ns - self._low_at_job_start_ns
            pauses.end_pause(span, low_ns / in_use_ns)
        else:
            pauses.add_bursts(last, span.end_ns - span.start_ns, samples)

    def _settle_inactive(
        self, busy_ratio: float, busy_ns: int, untagged_ns: int, explained_ns: int
    ) -> None:
        if explained_ns:
            if not self.in_job:
                self._begin_job()
            if not untagged_ns:
                self._count_in_use(busy_ratio, busy_ns + explained_ns, busy_ns)
                return
            self._count_in_use(busy_ratio, explained_ns, 0)
        if self.in_job:
            self._pending.amount_ns += untagged_ns
            self._unsure_ns += busy_ns + untagged_ns
            self._unsure_busy_ns += busy_ns
            if busy_ratio < self._settings.low_below:
                self._unsure_low_ns += busy_ns + untagged_ns
        elif self._run_is_waiting:
            self._pending.amount_ns += untagged_ns
        else:
            self._idle_ns[IdleCause.NOT_IN_USE] += untagged_ns

    def _begin_job(self) -> None:
        self._settle_pending(IdleCause.START_UP)  # only if a run was waiting
        if self._seen is not None:
            self._seen.end_pause()
        self.in_job = True
        self.jobs += 1
        self._in_use_at_job_start_ns = self._in_use_ns
        self._low_at_job_start_ns = self._low_ns
        self._pauses.begin_job()

    def _confirm_unsure(self) -> IdleCause:
        """Settle pending time: it was a pause. Return the cause that stack samples show of it."""
        cause = IdleCause.UNKNOWN
        if self._seen is not None:
            cause = self._settle_seen(self._seen.end_pause())
        self._settle_pending(IdleCause.UNKNOWN)
        self._in_use_ns += self._unsure_ns
        self._in_use_busy_ns += self._unsure_busy_ns
        self._low_ns += self._unsure_low_ns
        self._unsure_ns = self._unsure_busy_ns = self._unsure_low_ns = 0
        return cause

    def _settle_seen(self, seen: SeenPause) -> IdleCause:
        """Settle what stack samples show of the pause that ends, and return its cause."""
        cause = seen.cause
        if seen.samples:
            self._pauses.note_seen(seen)
        if not seen.is_whole:
            self._settle_part(IdleCause.UNKNOWN, self._edge_ns)
        self._edge_ns = 0
        if cause is None:
            return IdleCause.UNKNOWN
        self._settle_part(cause, self._pending.amount_ns if seen.is_whole else seen.idle_ns)
        self._seen_samples[cause] += seen.agreeing
        return cause

    def _count_in_use(self, busy_ratio: float, length_ns: int, busy_ns: int) -> None:
        self._in_use_ns += length_ns
        self._in_use_busy_ns += busy_ns
        if busy_ratio < self._settings.low_below:
            self._low_ns += length_ns
        elif busy_ratio > self._settings.high_above:
            self._high_ns += length_ns

    def _settle_pending(self, cause: IdleCause) -> None:
        self._hung_pending_ns = self._edge_ns = 0
        self._settle_part(cause, self._pending.amount_ns)

    def _settle_part(self, cause: IdleCause, amount_ns: int) -> None:
        """Settle so much pending time, if there is as much, as a pause of this cause."""
        amount_ns = min(amount_ns, self._pending.amount_ns)
        if amount_ns:
            self._pending.settle(cause, amount_ns)
            self._settle_as(cause, amount_ns)

    def _settle_as(self, cause: IdleCause, amount_ns: int) -> None:
        """Count idle time under its cause: one that no tag proves was seen."""
        self._idle_ns[cause] += amount_ns
        if cause not in UNPROVED:
            self._seen_ns[cause] += amount_ns
        if cause in self._reasons_ns:
            self._reasons_ns[cause][InputWaitReason.UNKNOWN.value] += amount_ns

    def _explain(self, shared: SharedIdle) -> int:
        """Settle idle time by phases; return how much it is."""
        explained_ns = sum(shared.idle_ns.values())
        unknown_ns = shared.idle_ns.get(IdleCause.UNKNOWN, 0)
        for cause, amount_ns in shared.idle_ns.items():
            self._idle_ns[cause] += amount_ns
        self._count_reasons(shared)
        self._resolved_ns += shared.resolved_ns
        unproved_ns = unknown_ns + shared.idle_ns.get(IdleCause.NOT_IN_USE, 0)
        self._inferred_ns += explained_ns - shared.resolved_ns - unproved_ns
        self._hidden_ns += shared.hidden_input_wait_ns
        self._first_wait_ns += shared.first_input_wait_ns
        self._validation_wait_ns += shared.validation_input_wait_ns
        self._epoch_wait_ns += shared.epoch_input_wait_ns
        return explained_ns

    def _count_reasons(self, shared: SharedIdle) -> None:
        """Split idle time by reason; without one it is unknown."""
        for cause, reasons_ns in self._reasons_ns.items():
            unknown_ns = shared.idle_ns.get(cause, 0)
            if not unknown_ns:
                continue
            for (of_cause, reason), amount_ns in shared.reasons_ns.items():
                if of_cause is cause:
                    reasons_ns[reason.value] += amount_ns
                    unknown_ns -= amount_ns
            if unknown_ns:
                reasons_ns[InputWaitReason.UNKNOWN.value] += unknown_ns

    def _update_flag(self) -> None:
        # Waits for a first batch are paid once, and those in a hang are reported as a hang.
        excluded_ns = self._first_wait_ns + self._hanging_idle_ns.get(IdleCause.INPUT_WAIT, 0)
        waited_ns = self._idle_ns.get(IdleCause.INPUT_WAIT, 0) - excluded_ns
        waited_ns -= self._less_ns.get(IdleCause.INPUT_WAIT, 0)
        self._flag.update(self._in_use_ns - excluded_ns, waited_ns + self._pauses.suspected_ns)
