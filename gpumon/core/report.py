"""The report: where the GPU time went, from a log, a daemon or a recording alike."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpumon.core.phase import TrainingPhase
from gpumon.core.totals import GpuTotals
from gpumon.core.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One thing to change, and the most it can gain.

    Attributes:
        cause: Name of the ``IdleCause`` it would remove.
        lost_seconds: What that cause cost, over all GPUs.
        speedup_upper_bound: In-use time / (in-use time - lost): the run can
            become at most this many times faster. At least 1. Of ``imbalance``,
            where the shares are known, only what level GPUs would win counts.
        evidence: The observation it rests on, with figures.
        text: What to do.
    """

    cause: str
    lost_seconds: float
    speedup_upper_bound: float
    evidence: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReport:
    """One GPU's part of a report.

    Attributes:
        index: As the source counts.
        uuid: ``None`` where the source does not say.
        name: Likewise.
        totals: Where its time went. Times in intervals count from the
            report's ``origin_ns``.
        verdict: What that amounts to.
        error: Why it cannot be read now; ``None`` where it can.
    """

    index: int
    uuid: str | None
    name: str | None
    totals: GpuTotals
    verdict: Verdict
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """One training process: attributes as in ``RunState``.

    Attributes:
        alive: Whether it still trains; ``None`` where the document does not say.
    """

    run: str
    job: str
    rank: int
    pid: int
    framework: str
    steps: int
    gpu_uuids: tuple[str, ...]
    wall_ns: int
    phase_ns: dict[TrainingPhase, int]
    loader: dict[str, str | int | float | bool | None] = field(default_factory=dict)
    callback_ns: dict[str, int] = field(default_factory=dict)
    step_ns: int | None = None
    shares: dict[str, float] = field(default_factory=dict)
    ratio_changes: int = 0
    step_busy_ratios: dict[str, float] = field(default_factory=dict)
    alive: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything a report says, before it becomes text or JSON.

    Attributes:
        source: A log's path, or the ``--source`` word of a daemon.
        simulated: Whether the GPUs are made up.
        started_at: ISO 8601 time of the first observed instant; ``None``
            where the source has no wall clock.
        origin_ns: The instant ``started_at`` names, on the clock of the intervals.
        observed_ns: Longest time any GPU was observed.
        period_ns: Time between two samples.
        skipped_lines: Lines of a log that could not be used.
        gpus: In index order.
        runs: Training runs; empty for logs.
        advice: What to change first comes first.
        notes: Sentences a reader must know (assumptions, merged intervals).
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
