"""Every threshold that decides what a user is shown, in one type, each with its origin."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.core.settings.host import HostSettings
from gpumon.core.settings.threshold import Settings, amount_bytes, count, share, time_ns, times
from gpumon.errors import UsageError

GAP_BUCKETS_SECONDS: Final = (
    *(0.25, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0),
    *(30.0, 60.0, 300.0),
)
"""Upper bounds of ``gpumon_gpu_idle_gap_seconds``, in seconds."""

MAX_INTERVALS: Final = 1_000
"""Starved intervals kept for one GPU; then adjacent ones merge."""

_SYNTHETIC: Final = "ours: fitted to synthetic workloads with known causes"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceSettings(Settings):
    """What is worth an advice, or a sentence in it. No verdict depends on these."""

    min_share: float = share(
        0.01, "A cause that costs less of a GPU's time gets no advice.", "ours: one in a hundred"
    )
    min_start_up_share: float = share(
        0.10,
        "Start-up, or the wait for the first batch, gets advice from this share of the time on.",
        "ours: it happens once, so it matters only where it is long compared with the work",
    )
    min_callbacks_share: float = share(
        0.01, "Callbacks below this share of a run are not named.", "ours: as advice.min_share"
    )
    min_class_share: float = share(
        0.05,
        "A class below this share of all callbacks' time is not named.",
        "ours: a list of everything names nothing",
    )
    min_reason_share: float = share(
        0.50,
        "The advice follows a reason that explains at least this share of the input wait.",
        "ours: most of it",
    )
    mostly_low_share: float = share(
        0.70,
        "A GPU that is nearly idle for more of its time in use is not called partly busy.",
        "ours: small kernels in a row show some utilisation most of the time",
    )
    level_within: float = share(
        0.02,
        "A job whose GPUs differ by less than this skew is balanced.",
        "ours: neither shares nor busy time are much more precise",
    )
    min_step_ns: int = time_ns(
        NS_PER_S,
        "A GPU with less time in training steps is not compared with others.",
        "ours: the driver's window is up to a second long",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FillSettings(Settings):
    """When a busy GPU counts as under-filled.

    In doubt it does not: a wrong finding costs its user a day.
    """

    busy_above: float = share(
        0.90,
        "Only stretches that are busier than this count.",
        "ours: as high_above; the verdicts cover GPUs that also idled",
    )
    sm_active_below: float = share(
        0.50,
        "Little works when fewer multiprocessors than this are active on average.",
        "NVIDIA's guide to DCGM's profiling metrics: below 0.5 is a likely sign of ineffective "
        "use, 0.8 is necessary for an effective one",
    )
    memory_bound_from: float = share(
        0.50,
        "From this share of the memory bandwidth on, memory is the limit.",
        "ours: copying alone reaches about 0.8; small kernels stay below half",
    )
    power_below: float = share(
        0.50,
        "Below this share of the power limit, at full clock, little works.",
        "ours: on training boards, kernels that only move data draw at least half of the limit, "
        "matrix products nearly all; not yet checked on hardware",
    )
    full_clock_from: float = share(
        0.90,
        "This share of the highest clock is a full clock; below it, power proves nothing.",
        "ours: warm boards lower their clock by a few percent; further down, power falls faster "
        "than speed because the voltage falls too",
    )
    min_busy_ns: int = time_ns(
        60 * NS_PER_S, "Busy time needed for a finding.", "ours: in doubt, no finding"
    )
    held_share: float = share(
        0.50,
        "From this share of the busy time on, clocks reduced by heat or power are the finding.",
        "ours: most of the time",
    )
    held_told_from: float = share(
        0.01, "Clocks reduced for less of the busy time are not mentioned.", "ours: a moment"
    )
    tensors_in_use_from: float = share(
        0.10,
        "From this share of the time on, the tensor cores are in use: no mixed-precision advice.",
        "ours: mixed precision is on where they work for a tenth of the time",
    )
    min_cover: float = share(
        0.50,
        "Utilisation must be known for this share of a stretch.",
        "ours: most of it",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ImbalanceSettings(Settings):
    """Why one GPU of a job is slow. Who waits for whom does not depend on these."""

    min_known_ns: int = time_ns(
        10 * NS_PER_S,
        "Clocks or processes must be known for this long before they explain a slow GPU.",
        "ours: as trouble.min_busy_ns; boards are read every 5 s",
    )
    clock_below: float = share(
        0.95,
        "A clock below this share of the waiting GPU's clock is lower.",
        "ours: boards of one model differ by a few percent as they warm up",
    )
    tenant_from: float = share(
        0.05,
        "From this share of the time on, other processes on a GPU slow a run down.",
        "ours: as lost_share; an idle monitor or notebook takes less",
    )
    explained_from: float = share(
        0.50,
        "Where the causes explain less of the difference, the advice says how much.",
        "ours: most of it",
    )
    compared_from_ns: int = time_ns(
        60 * NS_PER_S,
        "Time in training steps from which a note says that waits inside NCCL are not visible.",
        origin="ours: the same as fill.min_busy_ns",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HangSettings(Settings):
    """How long a run may go without a step before it hangs."""

    min_ns: int = time_ns(
        30 * NS_PER_S,
        "A run hangs after at least this long without a step, ...",
        "ours: opening the next file, or a slow disk, takes some seconds",
    )
    medians: int = count(
        20, "... and this many of its median steps, ...", "ours: single steps take several times"
    )
    longest_times: float = times(
        3.0,
        "... and this many times its longest step so far; in a validation, a prediction or a "
        "checkpoint, the longest of these so far.",
        "ours: the next one may well take twice as long",
    )
    first_batch_ns: int = time_ns(
        300 * NS_PER_S,
        "A run hangs if its first batch takes longer.",
        "ours: shuffle buffers and cold caches take minutes",
    )
    long_phase_ns: int = time_ns(
        1800 * NS_PER_S,
        "A first validation, prediction or checkpoint may take this long.",
        "ours: a complete evaluation takes tens of minutes",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings(Settings):
    """Sampling, held memory, and several GPUs in a log."""

    min_samples: int = count(
        20,
        "A GPU with fewer samples in a log gets no verdict.",
        "ours: a pattern needs three pauses with bursts around them, and one sample in twenty is "
        "the share that is worth a verdict",
    )
    longest_distance_ns: int = time_ns(
        300 * NS_PER_S,
        "Nor does one with a longer median distance between samples.",
        "ours: the driver looks back a second at most, so one part in three hundred is seen",
    )
    hole_periods: float = times(
        2.5,
        "A gap of more of a log's usual periods counts as not observed, with a note.",
        "ours: one row may be lost or late; two in a row are missing",
    )
    ended_early_ns: int = time_ns(
        60 * NS_PER_S,
        "A GPU whose last row is this much before another one's ended early.",
        "ours: as idle_job_ends_after_ns",
    )
    ended_early_share: float = share(
        0.20,
        "In a shorter log, one whose last row is earlier by this share of it.",
        "ours: as high_share; a killed log lacks a few rows",
    )
    usable_enough: float = share(
        0.90,
        "If fewer of a GPU's rows have a utilisation, the first line says so.",
        "ours: a tenth more or less changes no verdict",
    )
    usable_least: float = share(
        0.50,
        "If fewer do, no loss is high, and only these rows count.",
        "ours: most rows are unknown",
    )
    period_told_from: float = share(
        0.01,
        "A second sampling period is mentioned from this share of the observed time on.",
        "ours: as advice.min_share",
    )
    coarse_from_ns: int = time_ns(
        5 * NS_PER_S,
        "From this sampling period on, samples are too few for the pauses of a training run.",
        "ours: a starved run pauses for up to a few seconds; the driver looks back a second at "
        "most, so from here on at least four fifths of the time are unseen",
    )
    held_from_bytes: int = amount_bytes(
        2 << 30,
        "A GPU with this much memory in use is held.",
        "ours: a bare CUDA context takes 0.2 to 0.6 GiB, a desktop up to 1.5 GiB; gpu-usage-audit "
        "takes 100 MB, which any context exceeds",
    )
    released_share: float = share(
        0.10,
        "A job ended when memory in use falls to this share of the job's memory.",
        "ours: a framework keeps its memory in a pause, and a context alone is more",
    )
    held_told_from_ns: int = time_ns(
        300 * NS_PER_S,
        "Memory held without work is mentioned from this time on.",
        "ours: giving back a GPU for less is not worth it",
    )
    common_share: float = share(
        0.50,
        "GPUs pause together from this share of what is possible beyond chance on.",
        "ours: most of it",
    )
    beside_peer_share: float = share(
        0.20,
        "Idle time while another GPU works is mentioned from this share on.",
        "ours: as high_share; a starved GPU idles some of the time while a healthy one works",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TroubleSettings(Settings):
    """When a GPU in trouble is mentioned. Errors that the driver reports always are."""

    recent_ns: int = time_ns(
        24 * 3600 * NS_PER_S,
        "An older error is not in the first line of a report.",
        "ours: the person on call learns of it within a day",
    )
    throttled_share: float = share(
        0.10,
        "A GPU is throttled if heat, board protection or power supply reduce its clocks for "
        "this share of its busy time.",
        "ours: a warm board steps down for a moment, a badly cooled one for long",
    )
    min_busy_ns: int = time_ns(
        10 * NS_PER_S,
        "Busy time needed to call a GPU throttled.",
        "ours: as min_in_use_ns; the board reports it itself, and is read every 5 s",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorSettings(Settings):
    """All thresholds of verdicts, findings and advice. Shares 0 to 1, times in nanoseconds.

    ``gpumon doctor --rules`` lists them with the rules that read them.
    """

    active_above: float = share(0.05, "A busier sample is active.", _SYNTHETIC)
    burst_above: float = share(
        0.35,
        "A busier sample is a burst; samples at or below it, between two bursts, are a pause.",
        _SYNTHETIC,
    )
    level_samples: int = count(
        3,
        "... but at least this many samples are a level of work and no pause if fewer than half "
        "of them, without the first and the last, are below low_below, unless tags explain most "
        "of the GPU's idle time.",
        "ours: all windows of a pause but the first and the last are completely idle",
    )
    low_below: float = share(
        0.10,
        "A less busy sample is idle in the pattern.",
        _SYNTHETIC + "; SageMaker Debugger's rule of fluctuating use takes the same 10 %",
    )
    high_above: float = share(0.90, "A busier sample is fully busy in the pattern.", _SYNTHETIC)
    mostly_high_share: float = share(
        0.50,
        "If more of the time in use is fully busy, a single loss is no pattern.",
        "ours: most of it",
    )
    min_pauses: int = count(
        3,
        "Pauses that make a pattern.",
        _SYNTHETIC + "; one checkpoint, or a break between two jobs, is none",
    )
    enough_pauses: int = count(
        10,
        "A loss with fewer pauses, and without a proven cause, is never high.",
        "ours: below ten, the position of the samples decides what pauses look like; a few "
        "checkpoints, or rounds of other machines, look the same",
    )
    blip_pause_samples: int = count(
        10,
        "A burst of one sample between two pauses of at least this length is a blip: it does not "
        "split the pause.",
        "ours: compared with such pauses, one sample is a tenth",
    )
    blip_burst_samples: int = count(
        5,
        "... but only if the job's median burst has at least this many samples.",
        "ours: among shorter bursts, one sample may be a burst",
    )
    min_low_share: float = share(
        0.05, "A bursty pattern has more in-use samples below low_below.", _SYNTHETIC
    )
    min_cycles: int = count(8, "Bursts with their pauses needed to call them regular.", _SYNTHETIC)
    remembered_cycles: int = count(
        64,
        "The last cycles of a job that describe its pauses.",
        "ours: enough for a median deviation within a tenth, and minutes of a loader",
    )
    suspected_from: float = share(
        0.50,
        "From this probability on, pauses are suspected to wait for input.",
        "ours: more likely than not",
    )
    shape_weight: int = count(
        2,
        "Pauses with stack samples that count as much as the shape of all pauses, for those "
        "without.",
        "ours: then three pauses seen as waits for input outweigh any shape, and so do three "
        "seen as something else",
    )
    seen_least: int = count(
        10,
        "With fewer agreeing stack samples, a cause that was only seen is suspected, and no "
        "speed-up is promised.",
        "ours: of ten agreeing samples, at least 72 % of the time is of their cause, with 95 % "
        "confidence",
    )
    unlikely_below: float = share(
        0.25,
        "Below this probability, late input is not named as a possible cause.",
        "ours: between the model's answers for patterns that contradict late input, 20 %, and "
        "for undecided ones, 35 %",
    )
    requests_from: float = times(
        0.9,
        "Bursts that vary by more than this many times their median are irregular: requests to a "
        "server, or the cells of a notebook.",
        _SYNTHETIC + "; a fixed number of training steps varies less",
    )
    every_n_steps_from_ns: int = time_ns(
        60 * NS_PER_S,
        "Pauses between equal bursts of at least this length are more likely checkpoints or "
        "evaluations than rounds of other machines.",
        _SYNTHETIC + "; checkpoints every few seconds are unusual",
    )
    copies_from: float = share(
        0.04,
        "... and so are pauses that are busier than this.",
        "ours: on an H200, copying a checkpoint to the host reads as 4 to 6 %",
    )
    steady_below: float = times(
        0.10,
        "Cycles are regular if their standard deviation is below this part of their mean.",
        "ours: a fixed number of steps varies less, a loader more",
    )
    clockwork_from_ns: int = time_ns(
        30 * NS_PER_S,
        "Shorter cycles are not called regular.",
        "ours: periodic work of a training run is seldom more frequent, and loader waves are "
        "shorter",
    )
    lost_share: float = share(
        0.05,
        "Share of the time in use that is worth a verdict: a moderate loss.",
        "XProf calls a program moderately input-bound from 5 % of the step on",
    )
    high_share: float = share(
        0.20,
        "Share of the time in use that is a high loss.",
        "XProf calls a program highly input-bound from 20 % of the step on",
    )
    wide_range: float = share(
        0.03,
        "Bounds of a cause that differ by more of the time in use are both printed.",
        "ours: a smaller error still shows what to change",
    )
    min_in_use_ns: int = time_ns(
        10 * NS_PER_S, "Less time in use is too short for a verdict.", _SYNTHETIC
    )
    too_short_share: float = share(
        0.10,
        "... and counts as not in use up to this share of the observed time.",
        "ours: a GPU that idles nine tenths of the time is idle",
    )
    min_coverage: float = share(
        0.90,
        "If less of the time in use is busy or explained, the verdict says how much is unknown, "
        "and how to tag it.",
        "ours: from a tenth on, the unknown part may be the larger part of a loss",
    )
    idle_job_ends_after_ns: int = time_ns(
        60 * NS_PER_S,
        "Without a process list, a job ends this long after its last active sample.",
        "ours: longer pauses within a job are rare",
    )
    held_after_ns: int = time_ns(
        600 * NS_PER_S,
        "While processes stay on the GPU without tags, a job ends this long after its last active "
        "sample: then the GPU is only held.",
        "ours: an evaluation or a slow checkpoint may take ten minutes; an open notebook lasts "
        "longer",
    )
    idle_job_ends_after_samples: int = count(
        12,
        "... but never before this many samples.",
        "ours: a minute at 5 s a sample; fewer may all fall into pauses by chance ("
        + _SYNTHETIC.removeprefix("ours: ")
        + ")",
    )
    flag_window_ns: int = time_ns(
        60 * NS_PER_S,
        "'Starved now' covers this much time in use.",
        "ours: soon enough to act, and longer than a rhythm of seconds",
    )
    flag_on_share: float = share(
        0.05,
        "'Starved now' is set from this starved or suspected share of it on.",
        "ours: as lost_share, and so XProf's",
    )
    flag_off_share: float = share(
        0.03,
        "'Starved now' is cleared below this share.",
        "ours: far enough below flag_on_share not to flicker",
    )
    now_window_ns: int = time_ns(
        600 * NS_PER_S,
        "The present verdict covers this much of a job's time in use.",
        "ours: long enough for what happens every few minutes, short enough to show a fix soon",
    )
    now_every_ns: int = time_ns(
        10 * NS_PER_S,
        "How often the present verdict is renewed.",
        "ours: a sixtieth of the time it covers",
    )
    fill: FillSettings = field(default_factory=FillSettings)
    advice: AdviceSettings = field(default_factory=AdviceSettings)
    imbalance: ImbalanceSettings = field(default_factory=ImbalanceSettings)
    hang: HangSettings = field(default_factory=HangSettings)
    log: LogSettings = field(default_factory=LogSettings)
    trouble: TroubleSettings = field(default_factory=TroubleSettings)
    host: HostSettings = field(default_factory=HostSettings)

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        if self.active_above > self.burst_above:
            raise UsageError("active_above must not exceed burst_above")


DEFAULT_SETTINGS: Final = DetectorSettings()
DEFAULT_FILL_SETTINGS: Final = DEFAULT_SETTINGS.fill
DEFAULT_TROUBLE_SETTINGS: Final = DEFAULT_SETTINGS.trouble
