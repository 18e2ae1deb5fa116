"""The report: where the GPU time went, from a log, a daemon or a recording alike."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeAlias

from gpumon.core.accounting.now_verdict import NowVerdict
from gpumon.core.accounting.pending import NOTHING_UNSETTLED, Unsettled
from gpumon.core.accounting.rank_wait import RankWait
from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.device.fill import GpuFill
from gpumon.core.device.held import HeldGpu
from gpumon.core.device.in_job import InJob
from gpumon.core.device.troubles import Trouble, all_troubles
from gpumon.core.host.reasons import WaitReason
from gpumon.core.log_summary.common_pauses import Together
from gpumon.core.log_summary.held_memory import HeldMemory
from gpumon.core.phase import OUT_OF_USE, IdleCause, TrainingPhase
from gpumon.core.ring_format.events import LoaderFacts
from gpumon.core.ring_format.silence import RunSilence
from gpumon.core.settings.detector import DEFAULT_SETTINGS, DetectorSettings
from gpumon.core.settings.rule import RuleKind, rule
from gpumon.core.verdict import Severity, Verdict, VerdictName
from gpumon.core.wording import gpu_label

UNDER_FILLED: Final = "under_filled"
"""The cause in an ``Advice`` on GPUs of which little works while they are busy."""

FIRST_INPUT_WAIT: Final = "first_input_wait"
"""The cause in an ``Advice`` on the wait for a training's very first batch, paid once."""

UNSEEN_IMBALANCE: Final = "unseen_imbalance"
"""The cause in an ``Advice`` on GPUs that read as busy and probably wait for a peer."""

LATE_RANK: Final = "late_rank"
"""The cause in an ``Advice`` on a rank that others of its job wait for while they read as busy."""

HANGING: Final = "hanging"
"""The cause in an ``Advice`` on runs that have counted no step for too long."""

HELD: Final = "held"
"""The cause in an ``Advice`` on GPUs that processes hold without using them."""

TOO_FEW_SAMPLES: Final = "too_few_samples"
"""The cause in an ``Advice`` on GPUs of which a log has too few samples for a verdict."""

OPEN_SPLIT: Final = "open_split"
"""The cause in an ``Advice`` on a loss of which tags leave open how much each cause has."""

JobKey: TypeAlias = tuple[str, int | None]
"""A job's id, and whose it is; ``None``: not told."""

BESIDE_CAUSES: Final = (
    UNDER_FILLED, UNSEEN_IMBALANCE, FIRST_INPUT_WAIT, HANGING, OPEN_SPLIT, LATE_RANK, HELD,
    TOO_FEW_SAMPLES,
)  # fmt: skip
"""The causes in an ``Advice`` that are no ``IdleCause``: no verdict rests on them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One thing to change, and the most it can gain.

    Attributes:
        cause: Name of the ``IdleCause`` it would remove, or one of ``BESIDE_CAUSES``.
        lost_seconds: What that cause cost, over all GPUs; 0 of GPUs that are
            busy, and under-filled or waiting unseen, for no idle time is lost.
        speedup_upper_bound: In-use time / (in-use time - lost): the run can
            become at most this many times faster. At least 1. Of ``imbalance``,
            where the shares are known, only what level GPUs would win counts.
            Of ``UNDER_FILLED`` it is 1: nobody knows it, so nothing is promised.
            ``None``: nor is it where nothing proves the cause, and too little
            proves its cause.
        evidence: The observation it rests on, with figures.
        text: What to do.
        gpus: Labels of the GPUs that it would help; empty where nobody said.
        reason: Name of the ``InputWaitReason`` that explains most of it; ``None``: none does.
        may_be_more: Whether the speed-up is that of what is certain, and tags leave open how much
            more there is to gain.
    """

    cause: str
    lost_seconds: float
    speedup_upper_bound: float | None
    evidence: str
    text: str
    gpus: tuple[str, ...] = ()
    reason: str | None = None
    may_be_more: bool = False


class LogFinding(NamedTuple):
    """One thing that a log shows.

    Attributes:
        rule: Id of the rule that holds.
        gpus: Labels of the GPUs it is about; empty where it is about the log.
        text: What is so, with figures.
        remedy: What to do.
    """

    rule: str
    gpus: tuple[str, ...]
    text: str
    remedy: str


class Sampling(NamedTuple):
    """How finely a log was sampled.

    Attributes:
        period_ns: Time between two samples of one GPU, as it was for most of the log.
        shortest_visible_pause_ns: Shorter pauses cannot be told from none.
        is_coarse: Whether that is too long for the pauses of a training.
    """

    period_ns: int
    shortest_visible_pause_ns: int
    is_coarse: bool


@rule(
    "sampling_too_coarse",
    RuleKind.FINDING,
    says="a log has too few samples to show the pauses of a training",
    evidence="The time between two samples of a GPU, as it was for most of the log.",
    thresholds=("log.coarse_from_ns",),
)
def is_too_coarse(period_ns: int, settings: DetectorSettings) -> bool:
    """Whether samples that far apart are too few for the pauses of a training."""
    return period_ns >= settings.log.coarse_from_ns


def sampling_of(period_ns: int, settings: DetectorSettings = DEFAULT_SETTINGS) -> Sampling:
    """What a log of that period can show.

    A sample is a mean over the driver's window, 1/6 s to 1 s, that ends at
    its stamp. One low sample says only that the GPU was idle in that window:
    two in a row are the least that says that a pause lasted. Stamps are one
    period apart, at any phase, so a pause is sure to hold two of them only if
    it is two periods long. Where the period is the window or less, samples
    cover all the time, and it comes to the same: one whole sample, at any
    phase, lies surely only in a pause of two.

    >>> sampling_of(60_000_000_000)
    Sampling(period_ns=60000000000, shortest_visible_pause_ns=120000000000, is_coarse=True)
    """
    return Sampling(
        period_ns=period_ns,
        shortest_visible_pause_ns=2 * period_ns,
        is_coarse=is_too_coarse(period_ns, settings),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReport:
    """One GPU's part of a report; which GPU, is told as in ``Device``.

    Attributes:
        uuid: ``None`` where the source does not say; so is ``name``.
        totals: Where its time went. Times in intervals count from the
            report's ``origin_ns``.
        error: Why it cannot be read now; ``None`` where it can.
        fill: How much of it worked while it was busy; ``None`` where nothing tells.
        listed: Whether it is still there: a GPU may be taken out, an instance destroyed.
        idle_beside_peer_ns: In a log of several GPUs, how long it idled, in use or not, while
            another one worked; ``None`` where nobody looked.
        idle_after_use_ns: In a log, from the end of its last active sample to the log's end;
            ``None`` in a live report, and where it was never active.
        held_memory: Memory it held while nothing ran for long; ``None`` where the log does not
            say what is in use, and in a live report.
        in_job: What its board told while it worked for its present job, or its last one; ``None``
            before the first job of several GPUs.
        unsettled: What of its time is not settled yet, and how what was so has been settled
            since; nothing where the report was read from a document.
        now: What it does now; ``None`` in a log, and where a document does not say.
        waits_for: The rank of its job that it waits for most; ``None``: in this job it did not.
        held: Who holds it without using it now; ``None``: nobody, as far as is known.
        told_troubles: Those of its ``troubles`` that do not follow from the rest: the errors
            that it reported, that it cannot be read, and what slows it down just now.
    """

    index: int
    uuid: str | None
    name: str | None
    totals: GpuTotals
    verdict: Verdict
    error: str | None = None
    fill: GpuFill | None = None
    mig_enabled: bool = False
    parent_uuid: str | None = None
    mig_index: int | None = None
    listed: bool = True
    idle_beside_peer_ns: int | None = None
    idle_after_use_ns: int | None = None
    held_memory: HeldMemory | None = None
    in_job: InJob | None = None
    told_troubles: tuple[Trouble, ...] = ()
    unsettled: Unsettled = NOTHING_UNSETTLED
    now: NowVerdict | None = None
    waits_for: RankWait | None = None
    held: HeldGpu | None = None

    @property
    def troubles(self) -> tuple[Trouble, ...]:
        """What is wrong with it beside the time it loses, the worst first."""
        return all_troubles(self.told_troubles, self.fill, self.error, self.index)

    @property
    def is_lost(self) -> bool:
        """Whether it is there no longer, or gives no answer: what it did is of before."""
        return any(trouble.is_of_a_lost_gpu for trouble in self.troubles)

    @property
    def is_hardly_observed(self) -> bool:
        """Whether it was watched for less than it takes to be in use at all."""
        return self.totals.observed_ns < DEFAULT_SETTINGS.min_in_use_ns

    @property
    def at_present(self) -> GpuReport:
        """The same, judged by its last minutes in use instead of all its time.

        Of a job that has ended, or cannot go on, it is what that job did. One that was never in
        use is judged by all its time.
        """
        now = self.now
        if now is None or (now.name is VerdictName.NOT_IN_USE and not self.totals.in_use_ns):
            return self
        verdict = now.verdict
        if now.ended_ns is None and not now.is_suspended:
            severity = verdict.severity
            if now.name is VerdictName.HANGING:
                severity = Severity.HIGH
            elif now.name.is_of_a_loss and severity is Severity.NONE:
                severity = Severity.MODERATE
            verdict = verdict._replace(name=now.name, severity=severity)
        return replace(self, totals=now.totals, verdict=verdict)

    @property
    def in_a_part(self) -> GpuReport:
        """The same in a report of a part of the time: of now, only that it is suspended counts."""
        is_suspended = self.now is not None and self.now.is_suspended
        return self if is_suspended else replace(self, now=None)

    @property
    def label(self) -> str:
        """How people number it: ``"0"``, and ``"0:1"`` for a MIG instance."""
        return gpu_label(self.index, self.mig_index)

    @property
    def is_cut(self) -> bool:
        """Whether MIG is on: then its instances work, and of itself nothing is to be said."""
        return self.mig_enabled and self.error is None

    @property
    def is_mute(self) -> bool:
        """Whether it is a MIG instance that has not told how busy it is: unknown, not idle."""
        is_instance = self.parent_uuid is not None or self.mig_index is not None
        return is_instance and not self.totals.observed_ns and self.error is None

    @property
    def is_judgeable(self) -> bool:
        """Whether there can be a verdict on it."""
        return not (self.is_cut or self.is_mute)


def judged(gpus: Sequence[GpuReport]) -> list[GpuReport]:
    """The GPUs that there is a verdict on: without those cut by MIG, and mute instances."""
    return [gpu for gpu in gpus if gpu.is_judgeable]


def well_sampled(gpus: Sequence[GpuReport]) -> list[GpuReport]:
    """Of the GPUs that there is a verdict on those without too few samples in a log."""
    few = VerdictName.TOO_FEW_SAMPLES
    return [gpu for gpu in judged(gpus) if gpu.verdict.name is not few]


def idle_in(causes: Sequence[IdleCause], gpus: Iterable[GpuReport]) -> int:
    """Idle time of these causes, nanoseconds, of all these GPUs."""
    return sum(gpu.totals.idle_ns.get(cause, 0) for gpu in gpus for cause in causes)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """One training process; what it says of itself is as in ``RunFacts``.

    Attributes:
        pid: Process id as its host sees it.
        steps: Training steps done.
        samples: Samples trained on; ``None``: the training does not tell.
        gpu_uuids: GPUs that count for this run.
        wall_ns: Time since the run's ring was made, until it ended.
        phase_ns: Cumulative time in each phase it has been in.
        step_ns: Median time from the end of a training step to that of the
            next, within an epoch and after the warm-up; ``None`` before there is one.
        first_input_wait_ns: How long it waited for input until its first step was over; ``None``:
            its beginning is not known.
        shares: As in ``RunFacts``, but by UUID.
        step_busy_ratios: The busy part, 0 to 1, of the time in training steps
            since the shares last changed, by UUID; without a GPU of which
            too little is known.
        alive: Whether it still trains: holds its ring's lock; ``None`` where a document does
            not say.
        ended_before: Whether it had ended before observation began, so that
            nothing of it was observed: people are not told of it.
        owner_uid: Whose ring it is; ``None``: not told.
        refused_uuids: GPUs that it names, and no process of its owner was on them while they
            worked: they do not count for this run.
        reasons: Why its GPUs waited for input, and within its steps, as far as its machine
            showed it; what cost most comes first.
        world_size: Ranks of its job, on all machines.
        suspended_since_ns: Since when its process is stopped, or frozen with its cgroup, on the
            clock of the intervals; ``None``: it can run.
        silence: How long it has counted no step; ``None``: not worth a word.
        on_cpu: Whether its framework computes on the CPU; never set beside simulated GPUs, for
            which its steps may stand.
    """

    run: str
    job: str
    rank: int
    pid: int
    framework: str
    steps: int
    samples: int | None = None
    gpu_uuids: tuple[str, ...]
    wall_ns: int
    phase_ns: dict[TrainingPhase, int]
    loader: LoaderFacts = field(default_factory=dict)
    callback_ns: dict[str, int] = field(default_factory=dict)
    step_ns: int | None = None
    first_input_wait_ns: int | None = None
    shares: dict[str, float] = field(default_factory=dict)
    ratio_changes: int = 0
    step_busy_ratios: dict[str, float] = field(default_factory=dict)
    alive: bool | None = None
    ended_before: bool = False
    owner_uid: int | None = None
    refused_uuids: tuple[str, ...] = ()
    reasons: tuple[WaitReason, ...] = ()
    world_size: int = 1
    suspended_since_ns: int | None = None
    silence: RunSilence | None = None
    on_cpu: bool = False

    @property
    def name(self) -> str:
        """What it calls itself: beside one that lived, its label has its pid at the end."""
        return name_of_run(self.run, self.pid)

    @property
    def job_key(self) -> JobKey:
        """Its job: of two users that give one id, each has a job of his own."""
        return self.job, self.owner_uid

    @property
    def is_refused(self) -> bool:
        """Whether all that it names are GPUs of others: then it says nothing of any."""
        return bool(self.refused_uuids) and not self.gpu_uuids

    @property
    def uses_no_gpu(self) -> bool:
        """Whether its framework computes on the CPU, and no GPU counts for it."""
        return self.on_cpu and not self.gpu_uuids


def runs_on(gpus: Iterable[GpuReport], runs: Iterable[RunReport]) -> list[RunReport]:
    """The runs that train on any of these GPUs."""
    uuids = {gpu.uuid for gpu in gpus}
    return [run for run in runs if not uuids.isdisjoint(run.gpu_uuids)]


def runs_concerned(gpus: Iterable[GpuReport], runs: Sequence[RunReport]) -> list[RunReport]:
    """The runs on these GPUs; where none is known to be, those that may be on any."""
    return runs_on(gpus, runs) or [run for run in runs if not run.gpu_uuids and not run.uses_no_gpu]


def hanging_on(
    gpus: Sequence[GpuReport], runs: Iterable[RunReport]
) -> list[tuple[RunReport, RunSilence]]:
    """The runs that hang on any of these GPUs; one that has used none yet may be on any."""
    uuids = {gpu.uuid for gpu in gpus}
    return [
        (run, run.silence)
        for run in runs
        if uuids
        and run.silence is not None
        and run.silence.is_hanging
        and (not run.gpu_uuids or not uuids.isdisjoint(run.gpu_uuids))
    ]


def name_of_run(label: str, pid: int) -> str:
    """What a run with this label calls itself.

    >>> name_of_run("train", 12), name_of_run("train-12", 12), name_of_run("train-12-2", 12)
    ('train', 'train', 'train')
    """
    return re.sub(rf"-{pid}(-\d+)?$", "", label)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything a report says, before it becomes text or JSON.

    Attributes:
        source: A log's path, or the ``--source`` word of a daemon.
        started_at: ISO 8601 time of the first observed instant; ``None``
            where the source has no wall clock.
        origin_ns: The instant ``started_at`` names, on the clock of the intervals.
        observed_ns: Longest time any GPU was observed.
        skipped_lines: Lines of a log that could not be used.
        gpus: In index order.
        runs: Training runs; empty for logs.
        advice: What to change first comes first.
        notes: Sentences a reader must know (assumptions, merged intervals).
        together: What the GPUs of a log did at the same time; ``None`` where nobody looked.
        sampling: What the period of a log lets anybody see; ``None`` in a live report.
        is_part: Whether it is of a part of the time only: of one run, or of the last hour.
        source_error: Why the source can read no GPU at all, and after a colon what to do; ``None``
            where it has read one, or gives no reason.
        lost_elsewhere: That a GPU of which a log has no row cannot be read, as its errors say, and
            after a colon what to do.
    """

    source: str
    simulated: bool
    started_at: str | None
    origin_ns: int
    observed_ns: int
    period_ns: int
    skipped_lines: int
    gpus: tuple[GpuReport, ...]
    runs: tuple[RunReport, ...]
    advice: tuple[Advice, ...]
    notes: tuple[str, ...] = ()
    replayed: bool = False
    together: Together | None = None
    sampling: Sampling | None = None
    is_part: bool = False
    source_error: str | None = None
    lost_elsewhere: tuple[str, ...] = ()

    @property
    def at_present(self) -> Report:
        """The same, each GPU judged by what it does now; a part of the time is judged as it is."""
        if not self.is_part:
            return replace(self, gpus=tuple(gpu.at_present for gpu in self.gpus))
        return replace(self, gpus=tuple(gpu.in_a_part for gpu in self.gpus))

    @property
    def in_use_ns(self) -> int:
        """Time in use, that of all its GPUs added up."""
        return sum(gpu.totals.in_use_ns for gpu in self.gpus)

    @property
    def in_use_busy_ns(self) -> int:
        """Of it, busy time."""
        return sum(gpu.totals.in_use_busy_ns for gpu in self.gpus)

    @property
    def lost_ns(self) -> int:
        """Of it, idle time."""
        return self.in_use_ns - self.in_use_busy_ns

    @property
    def observed_runs(self) -> tuple[RunReport, ...]:
        """The runs of which something can have been observed."""
        return tuple(run for run in self.runs if not run.ended_before)


class MachineTime(NamedTuple):
    """GPU-time of several GPUs, nanoseconds.

    ``busy_ns + lost_ns + out_of_use_ns + pending_ns == observed_ns``.

    Attributes:
        gpus: How many; those that MIG cuts up, and instances that tell nothing, are left out.
        observed_ns: Time covered by samples, of each of them.
        busy_ns: Of it, busy.
        lost_ns: Idle while in use.
        out_of_use_ns: Idle before a job, after it, and without one.
        pending_ns: Not decided yet; 0 in a log.
    """

    gpus: int
    observed_ns: int
    busy_ns: int
    lost_ns: int
    out_of_use_ns: int
    pending_ns: int

    def share(self, part_ns: int) -> float | None:
        """A part of the observed time; ``None`` where none was observed."""
        return part_ns / self.observed_ns if self.observed_ns else None


def machine_time(gpus: Sequence[GpuReport]) -> MachineTime:
    """The time of all GPUs that there is a verdict on, taken as one machine."""
    known = judged(gpus)
    totals, out_of_use_ns = [gpu.totals for gpu in known], idle_in(OUT_OF_USE, known)
    return MachineTime(
        gpus=len(known),
        observed_ns=sum(one.observed_ns for one in totals),
        busy_ns=sum(one.busy_ns for one in totals),
        lost_ns=sum(one.idle_total_ns for one in totals) - out_of_use_ns,
        out_of_use_ns=out_of_use_ns,
        pending_ns=sum(one.pending_ns for one in totals),
    )
