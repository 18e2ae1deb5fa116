"""Every threshold that decides what is said to a user, in one type, each with its origin.

Those of one thing that is said (an advice, how full a GPU is, a log, a trouble) are a group.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.core.settings.host import HostSettings
from gpumon.core.settings.threshold import Settings, amount_bytes, count, share, time_ns, times
from gpumon.errors import UsageError

GAP_BUCKETS_SECONDS: Final = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of ``gpumon_gpu_idle_gap_seconds``, in seconds."""

MAX_INTERVALS: Final = 1_000
"""Starved intervals kept for one GPU; then neighbours merge."""

_ON_WORLDS: Final = "ours: found on generated worlds whose truth is known"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceSettings(Settings):
    """Thresholds of what is worth an advice, or a word in it. Shares 0 to 1, times in nanoseconds.

    They choose among things that are true: none of them changes a verdict or a second.
    """

    min_share: float = share(
        0.01,
        "A cause that costs less of a GPU's time is not worth a change.",
        origin="ours: what it could win at most is one part in a hundred",
    )
    min_start_up_share: float = share(
        0.10,
        "Start-up, or the wait for the very first batch, is worth an advice from this share of "
        "its time and use on.",
        origin="ours: start-up comes once, so it matters only where it is long beside the work",
    )
    min_callbacks_share: float = share(
        0.01,
        "Share of a run below which nobody need know which callbacks took it.",
        origin="ours: the same as advice.min_share",
    )
    min_class_share: float = share(
        0.05,
        "Share of all callbacks' time below which a class is not named.",
        origin="ours: a list of everything names nothing",
    )
    min_reason_share: float = share(
        0.50,
        "Share of the input wait that one reason must explain before the advice follows it.",
        origin="ours: most of it",
    )
    mostly_low_share: float = share(
        0.70,
        "More of the time in use than that, nearly idle, and the GPU is not called busy in part.",
        origin="ours: small kernels in a row read as a level, not as nothing most of the time",
    )
    level_within: float = share(
        0.02,
        "Skew between the GPUs of a job below which they count as level.",
        origin="ours: a share cannot be set, nor busy time read, much finer",
    )
    min_step_ns: int = time_ns(
        NS_PER_S,
        "Less time in training steps says nothing of a GPU's share of the work.",
        origin="ours: the driver's window is up to a second long",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FillSettings(Settings):
    """Thresholds of "busy, but under-filled". Shares 0 to 1, times in nanoseconds.

    All lean to silence: a GPU that is called under-filled wrongly costs its
    user a day, one that is not called so costs nothing new.
    """

    busy_above: float = share(
        0.90,
        "A stretch above it counts as busy all through.",
        origin="ours: the same as high_above; where the GPU also idled, the verdicts have their "
        "say",
    )
    sm_active_below: float = share(
        0.50,
        "Fewer multiprocessors at work than that, on average, is little.",
        origin="NVIDIA's guide to DCGM's profiling metrics: below 0.5 is a likely sign of "
        "ineffective use, 0.8 is necessary for an effective one",
    )
    memory_bound_from: float = share(
        0.50,
        "From this share of the memory's bandwidth on, the memory is the limit, "
        "and more multiprocessors would wait for it.",
        origin="ours: copying alone reaches about 0.8 in practice, so half is more than small "
        "kernels come to by chance",
    )
    power_below: float = share(
        0.50,
        "Less of the power limit than that, at full clock, suggests that little works.",
        origin="ours: kernels that only move data draw half of the limit or more on boards for "
        "training, a multiplication of matrices nearly all of it; not yet checked on hardware",
    )
    full_clock_from: float = share(
        0.90,
        "This share of the highest clock is a full clock; below it, the draw proves nothing.",
        origin="ours: boards step down by a few percent as they grow warm, and further down the "
        "draw falls faster than the speed, because the voltage falls too",
    )
    min_busy_ns: int = time_ns(
        60 * NS_PER_S,
        "Busy time that is looked at before anything is said.",
        origin="ours: in doubt nothing is said",
    )
    held_share: float = share(
        0.50,
        "From this share of the busy time on, clocks held down by heat or power "
        "are the finding, and nothing is said of filling.",
        origin="ours: most of the time",
    )
    held_told_from: float = share(
        0.01,
        "Clocks held down for less of the busy time are not spoken of.",
        origin="ours: a moment of it is not worth a word",
    )
    tensors_in_use_from: float = share(
        0.10,
        "From this share of the time on, the tensor cores work, and mixed "
        "precision is not advised.",
        origin="ours: where they work for a tenth of the time, mixed precision is there already",
    )
    min_cover: float = share(
        0.50,
        "Utilisation must be known for this share of a stretch to say how busy it was.",
        origin="ours: most of it",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ImbalanceSettings(Settings):
    """Thresholds of why one GPU of a job is slow. Shares 0 to 1, times in nanoseconds.

    None of them changes who waits for whom, or for how long.
    """

    min_known_ns: int = time_ns(
        10 * NS_PER_S,
        "Time for which clocks or processes must be known before a GPU is called slow for them.",
        origin="ours: the same as trouble.min_busy_ns; boards are read every 5 s",
    )
    clock_below: float = share(
        0.95,
        "A clock below this share of that of the GPU that waits is a lower clock.",
        origin="ours: boards of one model differ by a few percent as they grow warm",
    )
    tenant_from: float = share(
        0.05,
        "From this share of the time on, what others compute on a GPU makes a training slower.",
        origin="ours: the same as lost_share; a monitor or a notebook that idles takes less",
    )
    explained_from: float = share(
        0.50,
        "Where the causes of a slow GPU explain less of it, it is said that they do.",
        origin="ours: most of it",
    )
    compared_from_ns: int = time_ns(
        60 * NS_PER_S,
        "Busy time for which power or activity must be known before a GPU that reads busy is said "
        "to wait.",
        origin="ours: the same as fill.min_busy_ns",
    )
    works_below: float = share(
        0.80,
        "A GPU that reads as busy as its peer, and does less than this share of what that one "
        "does, probably waits for it.",
        origin="ours: boards of one model that do the same differ by less; a kernel that waits "
        "keeps few multiprocessors and draws little; not yet checked on hardware",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HangSettings(Settings):
    """Thresholds of how long a run may count no step before it hangs."""

    min_ns: int = time_ns(
        30 * NS_PER_S,
        "No run hangs that has counted a step for less time than this.",
        origin="ours: a loader that opens its next file, or a slow disk, takes some seconds",
    )
    medians: int = count(
        20,
        "... nor for fewer of its median steps.",
        origin="ours: a step now and then takes some times as long as the others",
    )
    longest_times: float = times(
        3.0,
        "... nor for less than so many times the longest time between two steps so far; in a "
        "validation, a prediction or a checkpoint, the longest of these so far.",
        origin="ours: what was so once may take twice as long the next time",
    )
    first_batch_ns: int = time_ns(
        300 * NS_PER_S,
        "A run whose first batch has not come for so long hangs.",
        origin="ours: shuffle buffers and cold caches take minutes",
    )
    long_phase_ns: int = time_ns(
        1800 * NS_PER_S,
        "A first validation, prediction or checkpoint may take so long.",
        origin="ours: a whole evaluation takes some tens of minutes; nobody knows its length yet",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings(Settings):
    """Thresholds of sampling, of memory held, and of several GPUs together."""

    min_samples: int = count(
        20,
        "Fewer samples of a GPU in a log than that are too few for a verdict.",
        origin="ours: the pattern takes three pauses with bursts around them, and one look in "
        "twenty is as much as the share that is worth a verdict",
    )
    longest_distance_ns: int = time_ns(
        300 * NS_PER_S,
        "So are samples whose median distance is longer.",
        origin="ours: the driver looks back for at most a second, so beyond it less than one part "
        "in three hundred of the time is seen",
    )
    hole_periods: float = times(
        2.5,
        "A silence of more of a log's usual periods is not observed, and a note says so.",
        origin="ours: a single row may be lost or late, two in a row are missing, and nobody knows "
        "what the GPU did",
    )
    ended_early_ns: int = time_ns(
        60 * NS_PER_S,
        "A GPU whose last row comes so much before that of another one ended early.",
        origin="ours: as long as a job without a process list is waited for",
    )
    ended_early_share: float = share(
        0.20,
        "So did one whose last row comes before that by this share of a shorter log.",
        origin="ours: as high_share; a few rows are missing at the end of any log that was killed",
    )
    usable_enough: float = share(
        0.90,
        "Where a smaller share of a GPU's rows says how busy it was, the first line says so, and "
        "nothing of giving it back.",
        origin="ours: a tenth more or less of any share that is told changes no verdict",
    )
    usable_least: float = share(
        0.50,
        "Where a smaller share does, no loss is called high, and it is told of those rows alone.",
        origin="ours: what most rows would say is not known",
    )
    period_told_from: float = share(
        0.01,
        "Share of the observed time from which on another period of a log is told.",
        origin="ours: the same as advice.min_share",
    )
    coarse_from_ns: int = time_ns(
        5 * NS_PER_S,
        "From this time between two samples on, they are too few for the pauses of a training.",
        origin="ours: a starved training pauses for a fraction of a second to a few seconds; the "
        "driver looks back for at most a second, so from here on four fifths of the time or more "
        "are seen by no sample",
    )
    held_from_bytes: int = amount_bytes(
        2 << 30,
        "Memory in use from which on a GPU is held for somebody.",
        origin="ours: a bare CUDA context takes 0.2 to 0.6 GiB, a desktop up to 1.5 GiB; "
        "gpu-usage-audit takes 100 MB, which any context exceeds",
    )
    released_share: float = share(
        0.10,
        "Memory in use that has fallen to this share of what a job held was given back: it ended.",
        origin="ours: a framework keeps its memory in a pause, and a context alone is more",
    )
    held_told_from_ns: int = time_ns(
        300 * NS_PER_S,
        "Time held without work, in stretches that end a job, that is worth a word.",
        origin="ours: nobody starts another job for less",
    )
    common_share: float = share(
        0.50,
        "Of what GPUs can pause in common beyond chance, the share from which they pause together.",
        origin="ours: most of it",
    )
    beside_peer_share: float = share(
        0.20,
        "Share of a GPU's time, idle while another one works, that is worth a word.",
        origin="ours: the same as high_share, for whoever starves beside a healthy peer has some",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TroubleSettings(Settings):
    """Thresholds of what is told of a GPU in trouble. Shares 0 to 1, times in nanoseconds.

    An error that the driver reports needs none: it is told.
    """

    recent_ns: int = time_ns(
        24 * 3600 * NS_PER_S,
        "An error that came last before that is told of the GPU, and not in the first line.",
        origin="ours: who is on call hears of it for a day; a daemon lives for months",
    )
    throttled_share: float = share(
        0.10,
        "From this share of the busy time on, heat, the board's protection or the power supply "
        "that hold its clocks down are a trouble.",
        origin="ours: a warm board steps down for moments, one that is badly cooled for long",
    )
    min_busy_ns: int = time_ns(
        10 * NS_PER_S,
        "Busy time that is looked at before a GPU is called throttled.",
        origin="ours: the same as min_in_use_ns; the board itself says so, and it is read every "
        "5 s",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorSettings(Settings):
    """All thresholds of verdicts, findings and advice. Shares 0 to 1, times in nanoseconds.

    ``gpumon doctor --rules`` lists them with the rules that read them.
    """

    active_above: float = share(
        0.05, "A sample above it shows work: it is active.", origin=_ON_WORLDS
    )
    burst_above: float = share(
        0.35,
        "A sample above it is a burst; a run of samples at or below it, between "
        "two bursts, is a pause.",
        origin=_ON_WORLDS,
    )
    level_samples: int = count(
        3,
        "... but a run of at least so many samples is a level that the GPU works at, and no pause, "
        "where fewer than half of those between its first and last are below low_below, unless "
        "tags explain most of its idle time.",
        origin="ours: all windows of a pause but the first and the last are idle all through",
    )
    low_below: float = share(
        0.10,
        "A sample below it counts as idle in the pattern.",
        origin=_ON_WORLDS + "; SageMaker Debugger's rule of fluctuating use takes the same 10 %",
    )
    high_above: float = share(
        0.90, "A sample above it counts as fully busy in the pattern.", origin=_ON_WORLDS
    )
    mostly_high_share: float = share(
        0.50,
        "More of the in-use time than that, fully busy, and a single loss is no pattern.",
        origin="ours: most of it",
    )
    min_pauses: int = count(
        3,
        "Pauses that make a pattern.",
        origin=_ON_WORLDS + "; one checkpoint, or a break between two jobs, is no pattern",
    )
    enough_pauses: int = count(
        10,
        "Fewer pauses than that, of which nothing proves the cause, are never a high loss.",
        origin="ours: below ten, how the readings fall into the pauses decides what they look "
        "like; a few checkpoints, or rounds of other machines, come in the same form",
    )
    blip_pause_samples: int = count(
        10,
        "A burst of one sample between two pauses of at least so many is a blip: it splits no "
        "pause, where pauses are counted for a verdict or a sentence.",
        origin="ours: beside pauses so long, one sample is a tenth and no work to speak of",
    )
    blip_burst_samples: int = count(
        5,
        "... but only where the job's median burst has at least so many samples.",
        origin="ours: where bursts are shorter, one sample may be one of them",
    )
    min_low_share: float = share(
        0.05,
        "Share of in-use samples below low_below that a bursty pattern must exceed.",
        origin=_ON_WORLDS,
    )
    min_cycles: int = count(
        8, "Bursts with their pauses that tell whether they come like a clock.", origin=_ON_WORLDS
    )
    remembered_cycles: int = count(
        64,
        "So many of a job's last ones are remembered: what its pauses look like is told of them.",
        origin="ours: enough for a median deviation within a tenth, and minutes of a loader",
    )
    suspected_from: float = share(
        0.50,
        "From this probability on that pauses wait for input, they are suspected to.",
        origin="ours: likelier than not",
    )
    unlikely_below: float = share(
        0.25,
        "Below this probability late input is not named among what pauses can be.",
        origin="ours: between what the model says of shapes that speak against late input, 20 %, "
        "and of those that decide nothing, 35 %",
    )
    requests_from: float = times(
        0.9,
        "Bursts that differ by more than that many times their median come when they like: "
        "requests to a server, or the cells of a notebook.",
        origin=_ON_WORLDS + "; so many steps of a training differ by less",
    )
    every_n_steps_from_ns: int = time_ns(
        60 * NS_PER_S,
        "Where bursts are alike, pauses between longer ones are likelier checkpoints or "
        "evaluations than rounds of other machines.",
        origin=_ON_WORLDS + "; nobody writes a checkpoint each few seconds",
    )
    copies_from: float = share(
        0.04,
        "... and so are pauses that are busy for more than that.",
        origin="ours: on an H200, copies of a checkpoint to the host read as 4 to 6 %",
    )
    steady_below: float = times(
        0.10,
        "Standard deviation of cycles, over their mean, below which they come like a clock.",
        origin="ours: a fixed number of steps varies by less, a loader by more",
    )
    clockwork_from_ns: int = time_ns(
        30 * NS_PER_S,
        "Only cycles at least so long are said to come like a clock.",
        origin="ours: what a training does every so many steps is seldom done more often, and a "
        "loader's waves are shorter",
    )
    lost_share: float = share(
        0.05,
        "Share of in-use time that is worth a verdict; also 'moderate'.",
        origin="XProf calls a program moderately input-bound from 5 % of the step on",
    )
    high_share: float = share(
        0.20,
        "Share of in-use time from which on the loss is 'high'.",
        origin="XProf calls a program highly input-bound from 20 % of the step on",
    )
    wide_range: float = share(
        0.03,
        "Where what a cause cost is known no better than to this share of the time in use, both "
        "of its bounds are printed.",
        origin="ours: a figure that is off by less still tells what to change",
    )
    min_in_use_ns: int = time_ns(
        10 * NS_PER_S, "Less in-use time than this is too short for a verdict.", origin=_ON_WORLDS
    )
    too_short_share: float = share(
        0.10,
        "Such a short use is none at all where it is no more than this share of what was observed.",
        origin="ours: a GPU that idles nine tenths of the time is idle, whatever it did in between",
    )
    min_coverage: float = share(
        0.90,
        "Where less of the in-use time is busy or has a known cause, the verdict says how much "
        "is not explained, and how to tag it.",
        origin="ours: from a tenth on, what is not known may be the greater part of a loss",
    )
    idle_job_ends_after_ns: int = time_ns(
        60 * NS_PER_S,
        "A job ends this long after its last active sample where no process list says better.",
        origin="ours: a pause of a minute may still be one, longer silence seldom is",
    )
    held_after_ns: int = time_ns(
        600 * NS_PER_S,
        "Where processes stay on the GPU, and no tag says what they do, a job ends this long after "
        "its last active sample: from then on the GPU is only held.",
        origin="ours: a pause of ten minutes may be one of a job that goes on, an evaluation or a "
        "slow checkpoint; a notebook that is left open lasts longer",
    )
    idle_job_ends_after_samples: int = count(
        12,
        "... but never before this many samples.",
        origin="ours: as many as a minute has at 5 s a sample; where there are fewer, that all of "
        "them fall into pauses is no more than chance (" + _ON_WORLDS.removeprefix("ours: ") + ")",
    )
    flag_window_ns: int = time_ns(
        60 * NS_PER_S,
        "In-use time over which 'starved now' looks back.",
        origin="ours: a minute is soon enough to act, and long enough for a rhythm of seconds",
    )
    flag_on_share: float = share(
        0.05,
        "Share of it, starved or suspected, at which 'starved now' rises.",
        origin="ours: the same as lost_share, and so XProf's",
    )
    flag_off_share: float = share(
        0.03,
        "Share below which 'starved now' falls again.",
        origin="ours: far enough below flag_on_share that it does not flicker",
    )
    now_window_ns: int = time_ns(
        600 * NS_PER_S,
        "In-use time of a job over which the verdict on now looks back.",
        origin="ours: long enough for a verdict on what comes every few minutes, short enough that "
        "a fix shows within a coffee break",
    )
    now_every_ns: int = time_ns(
        10 * NS_PER_S,
        "How often the verdict on now is renewed.",
        origin="ours: a sixtieth of what it looks back over",
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
