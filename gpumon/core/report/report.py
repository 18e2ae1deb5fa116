"""The report: where the GPU time went, from a log, a daemon or a recording alike."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

from gpumon.core.accounting.pending import NOTHING_UNSETTLED, Unsettled
from gpumon.core.accounting.rank_wait import RankWait
from gpumon.core.accounting.totals import GpuTotals, NowVerdict
from gpumon.core.clock import seconds
from gpumon.core.device.idle_holder import HeldGpu
from gpumon.core.device.job_measurements import InJob
from gpumon.core.device.sm_utilisation import GpuFill
from gpumon.core.device.troubles import Trouble, all_troubles
from gpumon.core.log_summary.common_pauses import Together
from gpumon.core.log_summary.held_memory import HeldMemory
from gpumon.core.phase import OUT_OF_USE, IdleCause, TrainingPhase
from gpumon.core.ring_format.events import LoaderFacts
from gpumon.core.ring_format.silence import RunSilence
from gpumon.core.settings.detector import DEFAULT_SETTINGS, DetectorSettings
from gpumon.core.settings.rule import RuleKind, rule
from gpumon.core.stacks.evidence import StackFinding
from gpumon.core.verdict import Severity, Verdict, VerdictName
from gpumon.core.waits.reasons import WaitReason
from gpumon.core.wording import gpu_label

UNDER_FILLED: Final = "under_filled"
FIRST_INPUT_WAIT: Final = "first_input_wait"
UNSEEN_IMBALANCE: Final = "unseen_imbalance"
"""Written by older versions, and still read: GPUs that probably wait for a peer inside NCCL."""
LATE_RANK: Final = "late_rank"
"""A rank that others of its job wait for while they read as busy."""
HANGING: Final = "hanging"
HELD: Final = "held"
TOO_FEW_SAMPLES: Final = "too_few_samples"
OPEN_SPLIT: Final = "open_split"
"""A loss whose split into causes the tags leave open."""
BESIDE_CAUSES: Final = (
    UNDER_FILLED, UNSEEN_IMBALANCE, FIRST_INPUT_WAIT, HANGING, OPEN_SPLIT, LATE_RANK, HELD,
    TOO_FEW_SAMPLES,
)  # fmt: skip
"""The causes of an ``Advice`` that are no ``IdleCause``: no verdict rests on them."""

JobKey: TypeAlias = tuple[str, int | None]
"""A job's id and owner; ``None``: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One thing to change, and the most it can gain.

    Attributes:
        cause: Name of the ``IdleCause`` it would remove, or one of ``BESIDE_CAUSES``.
        lost_seconds: Cost of the cause over all GPUs; 0 if the GPUs are busy.
        speedup_upper_bound: In-use time / (in-use time - lost), at least 1. Of
            ``imbalance``, with known shares, only what balanced GPUs would gain counts. 1 for
            ``UNDER_FILLED``, whose gain is unknown. ``None``: the cause is not proved.
        evidence: The observation it rests on, with figures.
        text: What to do.
        gpus: Labels of the GPUs that it would help; empty: unknown.
        reason: Name of the ``InputWaitReason`` that explains most of it.
        may_be_more: Whether the speed-up counts only what is certain, and tags leave open how
            much more there is to gain.
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
    """One fact that a log shows.

    Attributes:
        rule: Id of the rule that holds.
        gpus: Labels of the GPUs it is about; empty: the log.
        text: The fact, with figures.
        remedy: What to do.
    """

    rule: str
    gpus: tuple[str, ...]
    text: str
    remedy: str


class Sampling(NamedTuple):
    """How finely a log was sampled.

    Attributes:
        period_ns: Usual time between two samples of one GPU.
        shortest_visible_pause_ns: Shorter pauses may be invisible.
        is_coarse: Whether that is too long for the pauses of a training run.
    """

    period_ns: int
    shortest_visible_pause_ns: int
    is_coarse: bool


@rule(
    "sampling_too_coarse",
    RuleKind.FINDING,
    says="a log has too few samples to show the pauses of a training run",
    evidence="The usual time between two samples of a GPU.",
    thresholds=("log.coarse_from_ns",),
)
def is_too_coarse(period_ns: int, settings: DetectorSettings) -> bool:
    """Whether samples at this distance miss the pauses of a training run."""
    return period_ns >= settings.log.coarse_from_ns


def sampling_of(period_ns: int, settings: DetectorSettings = DEFAULT_SETTINGS) -> Sampling:
    """What a log with this period can show.

    A sample is a mean over the driver's window, 1/6 s to 1 s, that ends at its timestamp. It takes
    two low samples in a row to show a pause, and a pause is sure to contain two timestamps, one
    period apart, only if it is two periods long. Where the window covers the period, the same
    holds: one complete sample is sure to lie only in a pause of two.

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
    """One GPU of a report, identified as in ``Device``.

    Attributes:
        uuid: ``None`` if the source does not have it; so is ``name``.
        totals: Where its time went, on the clock of the report's ``origin_ns``.
        error: Why it cannot be read now.
        fill: How much of it worked while it was busy; ``None``: unknown.
        listed: Whether it is still there: a GPU may be removed, an instance destroyed.
        idle_beside_peer_ns: In a log of several GPUs, how long it idled, in use or not, while
            another one worked.
        idle_after_use_ns: In a log, from the end of its last active sample to the log's end;
            ``None`` if it was never active.
        held_memory: In a log with memory, the memory held during long idle times.
        in_job: What its board showed while it worked for its present or last job; ``None``
            before the first job of several GPUs.
        unsettled: Its unsettled time, and how earlier unsettled time has been settled; empty if
            the report was read from a document.
        now: What it does now; ``None`` in a log.
        waits_for: The rank of its job that it waits for most.
        held: Who holds it now without using it.
        stacks: What stack samples show of the process of its present or last job; ``None``: none
            were taken.
        reported_troubles: Its ``troubles`` that the other fields do not imply: reported errors,
            that it cannot be read, and present throttling.
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
    reported_troubles: tuple[Trouble, ...] = ()
    unsettled: Unsettled = NOTHING_UNSETTLED
    now: NowVerdict | None = None
    waits_for: RankWait | None = None
    held: HeldGpu | None = None
    stacks: StackFinding | None = None

    @property
    def troubles(self) -> tuple[Trouble, ...]:
        """All its troubles, the worst first."""
        return all_troubles(self.reported_troubles, self.fill, self.error, self.index)

    @property
    def is_lost(self) -> bool:
        """Whether it is gone or does not answer."""
        return any(trouble.is_of_a_lost_gpu for trouble in self.troubles)

    @property
    def is_hardly_observed(self) -> bool:
        """Whether it was observed for less than the shortest use."""
        return self.totals.observed_ns < DEFAULT_SETTINGS.min_in_use_ns

    @property
    def at_present(self) -> GpuReport:
        """This GPU with the totals and verdict of its last minutes in use.

        After its job has ended, or while it is suspended, these are the job's. A GPU that was
        never in use keeps the totals of all its time.
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
    def in_partial_report(self) -> GpuReport:
        """This GPU in a report on part of the time: without ``now``, unless it is suspended."""
        return self if self.is_suspended else replace(self, now=None)

    @property
    def is_suspended(self) -> bool:
        """Whether the runs on it are suspended now."""
        return self.now is not None and self.now.is_suspended

    @property
    def label(self) -> str:
        """``"0"``, or ``"0:1"`` for a MIG instance."""
        return gpu_label(self.index, self.mig_index)

    @property
    def is_partitioned(self) -> bool:
        """Whether it is MIG-partitioned: only its instances have utilisation."""
        return self.mig_enabled and self.error is None

    @property
    def has_no_utilisation(self) -> bool:
        """Whether it is a MIG instance without utilisation data: unknown, not idle."""
        is_instance = self.parent_uuid is not None or self.mig_index is not None
        return is_instance and not self.totals.observed_ns and self.error is None

    @property
    def is_diagnosable(self) -> bool:
        """Whether it can have a verdict."""
        return not (self.is_partitioned or self.has_no_utilisation)


def diagnosed(gpus: Sequence[GpuReport]) -> list[GpuReport]:
    """The GPUs that can have a verdict."""
    return [gpu for gpu in gpus if gpu.is_diagnosable]


def well_sampled(gpus: Sequence[GpuReport]) -> list[GpuReport]:
    """The GPUs that can have a verdict and have enough samples."""
    few = VerdictName.TOO_FEW_SAMPLES
    return [gpu for gpu in diagnosed(gpus) if gpu.verdict.name is not few]


def idle_in(causes: Sequence[IdleCause], gpus: Iterable[GpuReport]) -> int:
    """Idle nanoseconds with these causes, over all these GPUs."""
    return sum(gpu.totals.idle_ns.get(cause, 0) for gpu in gpus for cause in causes)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """One training process; other fields are as in ``RunFacts``.

    Attributes:
        pid: Process id on its host.
        steps: Completed training steps.
        samples: Samples trained on; ``None``: not recorded.
        gpu_uuids: GPUs bound to this run.
        wall_ns: Time from the creation of its ring until it ended.
        phase_ns: Cumulative time by phase.
        step_ns: Median time between the ends of two training steps, within an epoch and after
            the warm-up.
        first_input_wait_ns: Wait for input before the end of its first step; ``None``: its start
            was not observed.
        shares: As in ``RunFacts``, but by UUID.
        step_busy_ratios: Busy part, 0 to 1, of the time in training steps since the shares last
            changed, by UUID of the GPUs with enough data.
        alive: Whether it holds its ring's lock; ``None``: unknown, in an old document.
        ended_before: Whether it ended before observation began: it is not shown.
        owner_uid: Owner of its ring.
        refused_uuids: GPUs that it names, but on which no process of its owner was while they
            worked: they do not count for this run.
        reasons: Why its GPUs waited for input, and within its steps, the most expensive first.
        world_size: Ranks of its job, on all machines.
        suspended_since_ns: Since when its process is stopped, or frozen with its cgroup;
            ``None``: it can run.
        silence: How long it has counted no step, if long enough to mention.
        on_cpu: Whether its framework computes on the CPU; never set with simulated GPUs.
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
        """Its own name: ``run`` ends with the pid where another run had the name."""
        return name_of_run(self.run, self.pid)

    @property
    def job_key(self) -> JobKey:
        """Its job: the same id of two users means two jobs."""
        return self.job, self.owner_uid

    @property
    def is_refused(self) -> bool:
        """Whether every GPU that it names was refused."""
        return bool(self.refused_uuids) and not self.gpu_uuids

    @property
    def uses_no_gpu(self) -> bool:
        """Whether its framework computes on the CPU, and it is bound to no GPU."""
        return self.on_cpu and not self.gpu_uuids


def runs_by_job(runs: Iterable[RunReport]) -> dict[JobKey, list[RunReport]]:
    """The runs of each job, in the order of its first run."""
    of_job: dict[JobKey, list[RunReport]] = {}
    for run in runs:
        of_job.setdefault(run.job_key, []).append(run)
    return of_job


def runs_on(gpus: Iterable[GpuReport], runs: Iterable[RunReport]) -> list[RunReport]:
    """The runs that train on any of these GPUs."""
    uuids = {gpu.uuid for gpu in gpus}
    return [run for run in runs if not uuids.isdisjoint(run.gpu_uuids)]


def runs_concerned(gpus: Iterable[GpuReport], runs: Sequence[RunReport]) -> list[RunReport]:
    """The runs on these GPUs; if none is known, those that may be on any GPU."""
    return runs_on(gpus, runs) or [run for run in runs if not run.gpu_uuids and not run.uses_no_gpu]


def hanging_on(
    gpus: Sequence[GpuReport], runs: Iterable[RunReport]
) -> list[tuple[RunReport, RunSilence]]:
    """The runs that hang on any of these GPUs; one that has used no GPU may be on any."""
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
    """The own name of a run with this label.

    >>> name_of_run("train", 12), name_of_run("train-12", 12), name_of_run("train-12-2", 12)
    ('train', 'train', 'train')
    """
    return re.sub(rf"-{pid}(-\d+)?$", "", label)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A complete report, before it becomes text or JSON.

    Attributes:
        source: A log's path, or a daemon's ``--source``.
        started_at: ISO 8601 time at which observation began; ``None``: no wall clock.
        origin_ns: The same time on the clock of the intervals.
        observed_ns: Longest time any GPU was observed.
        skipped_lines: Lines of a log that could not be used.
        gpus: In index order.
        runs: Empty for logs.
        advice: In order of importance.
        notes: Sentences a reader must know (assumptions, merged intervals).
        together: What the GPUs of a log did at the same time.
        sampling: What the period of a log can show; ``None`` in a live report.
        is_part: Whether it covers only part of the time: one run, or the last hour.
        source_error: Why the source can read no GPU at all, and after a colon what to do.
        lost_elsewhere: GPUs without a row in the log that cannot be read, by its errors, and
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
        """This report with the present of each GPU, unless it covers only part of the time."""
        if not self.is_part:
            return replace(self, gpus=tuple(gpu.at_present for gpu in self.gpus))
        return replace(self, gpus=tuple(gpu.in_partial_report for gpu in self.gpus))

    @property
    def in_use_ns(self) -> int:
        """Time in use, over all its GPUs."""
        return sum(gpu.totals.in_use_ns for gpu in self.gpus)

    @property
    def in_use_busy_ns(self) -> int:
        """Busy part of the time in use."""
        return sum(gpu.totals.in_use_busy_ns for gpu in self.gpus)

    @property
    def lost_ns(self) -> int:
        """Idle part of the time in use."""
        return self.in_use_ns - self.in_use_busy_ns

    def wall_time(self, at_ns: int) -> datetime | None:
        """The wall clock at that time; ``None`` where it is unknown."""
        if self.started_at is None:
            return None
        passed = timedelta(seconds=seconds(at_ns - self.origin_ns))
        return datetime.fromisoformat(self.started_at) + passed

    @property
    def observed_runs(self) -> tuple[RunReport, ...]:
        """The runs that had not ended before observation began."""
        return tuple(run for run in self.runs if not run.ended_before)


class MachineTime(NamedTuple):
    """Time summed over the GPUs that can have a verdict.

    ``busy_ns + lost_ns + out_of_use_ns + pending_ns == observed_ns``.

    Attributes:
        gpus: Their number.
        lost_ns: Idle while in use.
        out_of_use_ns: Idle outside a job.
        pending_ns: Not settled yet; 0 in a log.
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
    """The time of all GPUs that can have a verdict."""
    known = diagnosed(gpus)
    totals, out_of_use_ns = [gpu.totals for gpu in known], idle_in(OUT_OF_USE, known)
    return MachineTime(
        gpus=len(known),
        observed_ns=sum(one.observed_ns for one in totals),
        busy_ns=sum(one.busy_ns for one in totals),
        lost_ns=sum(one.idle_total_ns for one in totals) - out_of_use_ns,
        out_of_use_ns=out_of_use_ns,
        pending_ns=sum(one.pending_ns for one in totals),
    )
