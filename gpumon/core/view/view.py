"""What the page and ``gpumon top`` show of the present: built once, drawn by both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from gpumon.core.diagnosis.messages import WORD_OF_CAUSE
from gpumon.core.phase import IdleCause
from gpumon.core.verdict import Severity
from gpumon.core.view.status import GpuStatus, Tone

BUSY: Final = "busy"
SUSPECTED: Final = "suspected"
PENDING: Final = "pending"
PARTS: Final[Mapping[str, str]] = {
    BUSY: "busy",
    **{
        cause.value: WORD_OF_CAUSE[cause]
        for cause in (
            IdleCause.WITHIN_STEP, IdleCause.IMBALANCE, IdleCause.HOST_TO_DEVICE,
            IdleCause.CALLBACKS, IdleCause.VALIDATION, IdleCause.CHECKPOINT, IdleCause.COMPILE,
            IdleCause.START_UP, IdleCause.BETWEEN_EPOCHS, IdleCause.INPUT_WAIT,
        )
    },
    SUSPECTED: "suspected starvation",
    IdleCause.UNKNOWN.value: WORD_OF_CAUSE[IdleCause.UNKNOWN],
    PENDING: "pending",
    IdleCause.NOT_IN_USE.value: WORD_OF_CAUSE[IdleCause.NOT_IN_USE],
}  # fmt: skip
"""The parts of observed time, as they are stacked, and their names."""


class RecentCells(NamedTuple):
    """The last minutes of a GPU in cells of one length, oldest first.

    Attributes:
        start_seconds: CLOCK_MONOTONIC at which the first cell begins.
        cell_seconds: Length of a cell; the last one is not over yet. A sample counts in the cell
            in which it ends.
        parts: Seconds by part of ``PARTS``, a list of all cells each; a part without any time is
            left out. What they leave of a cell was not observed.
    """

    start_seconds: float
    cell_seconds: float
    parts: Mapping[str, tuple[float, ...]]


class HolderView(NamedTuple):
    """The process that holds a GPU without using it. Fields are as in ``HeldGpu``."""

    pid: int
    user: str | None
    command: str | None
    memory_used_bytes: int | None
    since: str | None


class ProcessView(NamedTuple):
    """A process on a GPU. Fields are as in ``ProcessSample``; names only where enabled."""

    pid: int
    user: str | None
    command: str | None
    memory_used_bytes: int | None
    sm_ratio: float | None


class TroubleView(NamedTuple):
    """One thing that is wrong with a GPU; fields are as in ``Trouble``."""

    short_name: str
    severity: Severity
    text: str
    advice: str


class GpuView(NamedTuple):
    """One GPU now.

    Attributes:
        number: NVML's index of its board.
        status: Its one status.
        since: ISO 8601 time since when it has that; ``None``: unknown.
        since_text: The same as people say it, "since 14:03 UTC"; empty: unknown.
        line: What is the matter with it, in sentences.
        cause: What it mostly waits for: an ``IdleCause``; ``None``: nothing, or unknown.
        reason: Why it waits for input: an ``InputWaitReason``; ``None``: unknown.
        lost_ratio: Share of its recent time in use that was idle, 0 to 1; ``None``: not in use.
        lost_by_cause: The same by part of ``PARTS``.
        utilization_ratio: The newest sample; like the values after it ``None`` where unknown or
            where the GPU does not answer.
        advice: Indices in ``MonitorView.advice`` of what would help it, the most important first.
        first_advice: What to do about it, in sentences; empty: nothing.
        troubles: The worst first.
        seen_text: What stack samples showed.
        seen_files: Whole paths of the user's files that it names, for who may see them.
        hint: What may be worth a look although nothing is wrong, such as low SM utilisation.
        runs: Labels of its living runs.
        processes: ``None``: there is no list.
        user: Who holds it, else the user of its process with the most memory; of a lost GPU,
            before it was lost; ``None``: unknown.
        observed_ns: Since gpumon began, as are all times after it.
        idle_ns: By part of ``PARTS`` but ``busy`` and ``pending``.
        input_wait_by_reason_ns: By ``InputWaitReason``.
        cells: Its last minutes.
    """

    label: str
    uuid: str
    number: int
    parent_uuid: str | None
    name: str | None
    status: GpuStatus
    since: str | None
    since_text: str
    line: str
    cause: str | None
    cause_text: str
    reason: str | None
    reason_text: str
    lost_ratio: float | None
    lost_by_cause: Mapping[str, float]
    utilization_ratio: float | None
    memory_used_bytes: int | None
    memory_capacity_bytes: int | None
    power_watts: float | None
    power_limit_watts: float | None
    temperature_celsius: float | None
    sm_clock_hertz: float | None
    advice: tuple[int, ...]
    first_advice: str
    troubles: tuple[TroubleView, ...]
    seen_text: str
    seen_files: tuple[str, ...]
    hint: str
    runs: tuple[str, ...]
    held_by: HolderView | None
    processes: tuple[ProcessView, ...] | None
    user: str | None
    observed_ns: int
    busy_ns: int
    pending_ns: int
    in_use_ns: int
    idle_ns: Mapping[str, int]
    input_wait_by_reason_ns: Mapping[str, int]
    cells: RecentCells


class Headline(NamedTuple):
    """The lines on the machine.

    Attributes:
        title: For a window's title.
        line: ``verdict`` if that is short, else what is the matter with which GPUs, and since when.
        advice: The index in ``MonitorView.advice`` that ``next`` gives; ``None``: none.
    """

    tone: Tone
    title: str
    line: str
    verdict: str
    why: str
    next: str
    advice: int | None


class AdviceView(NamedTuple):
    """One thing to change. Other fields are as in ``Advice``.

    Attributes:
        heading: Which GPUs, what they lose, and the most that can be gained.
    """

    cause: str
    cause_text: str
    gpus: tuple[str, ...]
    lost_seconds: float
    speedup_upper_bound: float | None
    may_be_more: bool
    heading: str
    text: str
    evidence: str
    reason: str | None


class RunView(NamedTuple):
    """One training run. Other fields are as in ``RunState``.

    Attributes:
        phase_text: What it is doing now, or that it has ended.
        gpus: Labels of its GPUs.
        step_seconds: Median time of a step; ``None``: unknown.
        held_up_text: What delayed it most; empty: that was not measured.
    """

    run: str
    job: str
    rank: int
    pid: int
    framework: str
    alive: bool
    phase: str | None
    phase_text: str
    steps: int
    epoch: int | None
    gpus: tuple[str, ...]
    wall_seconds: float
    step_seconds: float | None
    held_up_text: str


class MonitorView(NamedTuple):
    """Everything that is shown of one tick.

    Attributes:
        monotonic_seconds: CLOCK_MONOTONIC of the tick.
        wall_time_s: Seconds since the epoch at that time.
        started_at: ISO 8601 time at which observation began.
        boot_id: Kernel boot id of the machine.
        notes: Sentences that a reader must know.
        gpus: In order of need.
    """

    monotonic_seconds: float
    wall_time_s: float
    started_at: str
    period_seconds: float
    source: str
    simulated: bool
    replayed: bool
    boot_id: str
    headline: Headline
    notes: tuple[str, ...]
    advice: tuple[AdviceView, ...]
    gpus: tuple[GpuView, ...]
    runs: tuple[RunView, ...]
