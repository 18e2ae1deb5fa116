"""Every threshold that decides what is said to a user, in one type, each with its origin."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.core.settings.groups import AdviceSettings, FillSettings, LogSettings, TroubleSettings
from gpumon.core.settings.threshold import Unit, check_thresholds, threshold
from gpumon.errors import UsageError

__all__ = [
    "DEFAULT_FILL_SETTINGS", "DEFAULT_SETTINGS", "DEFAULT_TROUBLE_SETTINGS", "GAP_BUCKETS_SECONDS",
    "MAX_INTERVALS",
    "AdviceSettings", "DetectorSettings", "FillSettings", "TroubleSettings",
]  # fmt: skip

GAP_BUCKETS_SECONDS: Final = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of ``gpumon_gpu_idle_gap_seconds``, in seconds."""

MAX_INTERVALS: Final = 1_000
"""Starved intervals kept for one GPU; then neighbours merge."""

_ON_WORLDS: Final = "ours: found on generated worlds whose truth is known"


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorSettings:
    """All thresholds of verdicts, findings and advice. Shares 0 to 1, times in nanoseconds.

    ``gpumon doctor --rules`` lists them with the rules that read them.

    Attributes:
        fill: Those of "busy, but under-filled".
        advice: Those of what is worth an advice.
        trouble: Those of a GPU in trouble.
    """

    active_above: float = threshold(
        0.05,
        Unit.SHARE,
        "A sample above it shows work: it is active.",
        origin=_ON_WORLDS,
    )
    burst_above: float = threshold(
        0.35,
        Unit.SHARE,
        "A sample above it is a burst; a run of samples at or below it, between "
        "two bursts, is a pause.",
        origin=_ON_WORLDS,
    )
    low_below: float = threshold(
        0.10,
        Unit.SHARE,
        "A sample below it counts as idle in the pattern.",
        origin=_ON_WORLDS + "; SageMaker Debugger's rule of fluctuating use takes the same 10 %",
    )
    high_above: float = threshold(
        0.90,
        Unit.SHARE,
        "A sample above it counts as fully busy in the pattern.",
        origin=_ON_WORLDS,
    )
    mostly_high_share: float = threshold(
        0.50,
        Unit.SHARE,
        "More of the in-use time than that, fully busy, and a single loss is no pattern.",
        origin="ours: most of it",
    )
    min_pauses: int = threshold(
        3,
        Unit.COUNT,
        "Pauses that make a pattern.",
        origin=_ON_WORLDS + "; one checkpoint, or a break between two jobs, is no pattern",
    )
    enough_pauses: int = threshold(
        8,
        Unit.COUNT,
        "Fewer pauses than that, of which nothing proves the cause, are never a high loss, and "
        "no speed-up is promised for ending them.",
        origin="ours: the same as min_cycles, for as many tell a rhythm; a few checkpoints, or "
        "rounds of other machines, come in the same form",
    )
    blip_pause_samples: int = threshold(
        10,
        Unit.COUNT,
        "A burst of one sample between two pauses of at least so many is a blip: it splits no "
        "pause, where pauses are counted for a verdict or a sentence.",
        origin="ours: beside pauses so long, one sample is a tenth and no work to speak of",
    )
    blip_burst_samples: int = threshold(
        5,
        Unit.COUNT,
        "... but only where the job's median burst has at least so many samples.",
        origin="ours: where bursts are shorter, one sample may be one of them",
    )
    min_low_share: float = threshold(
        0.05,
        Unit.SHARE,
        "Share of in-use samples below low_below that a bursty pattern must exceed.",
        origin=_ON_WORLDS,
    )
    min_cycles: int = threshold(
        8,
        Unit.COUNT,
        "Bursts with their pauses that tell whether there is a rhythm.",
        origin=_ON_WORLDS,
    )
    rhythm_cycles: int = threshold(
        32,
        Unit.COUNT,
        "About so many of them are remembered.",
        origin="ours: enough for a standard deviation within an eighth, and minutes of a loader",
    )
    cycle_pause_from_ns: int = threshold(
        NS_PER_S,
        Unit.NANOSECONDS,
        "Pauses that end a cycle; shorter ones are a part of its burst.",
        origin="ours: the longest of NVML's windows, so that the rhythm of a training is the same "
        "however finely it is seen",
    )
    irregular_from: float = threshold(
        0.90,
        Unit.TIMES,
        "Standard deviation of their lengths, over the mean, above which there is none.",
        origin=_ON_WORLDS + "; requests that come at random have 1",
    )
    steady_below: float = threshold(
        0.10,
        Unit.TIMES,
        "Standard deviation of cycles, over their mean, below which they come like a clock.",
        origin="ours: a fixed number of steps varies by less, a loader by more",
    )
    clockwork_from_ns: int = threshold(
        30 * NS_PER_S,
        Unit.NANOSECONDS,
        "Only cycles at least so long are said to come like a clock.",
        origin="ours: what a training does every so many steps is seldom done more often, and a "
        "loader's waves are shorter",
    )
    irregular_busy_below: float = threshold(
        0.50,
        Unit.SHARE,
        "Only a job that is busy for less of its time in use is held to have no rhythm.",
        origin=_ON_WORLDS,
    )
    lost_share: float = threshold(
        0.05,
        Unit.SHARE,
        "Share of in-use time that is worth a verdict; also 'moderate'.",
        origin="XProf calls a program moderately input-bound from 5 % of the step on",
    )
    high_share: float = threshold(
        0.20,
        Unit.SHARE,
        "Share of in-use time from which on the loss is 'high'.",
        origin="XProf calls a program highly input-bound from 20 % of the step on",
    )
    min_in_use_ns: int = threshold(
        10 * NS_PER_S,
        Unit.NANOSECONDS,
        "Less in-use time than this is too short for a verdict.",
        origin=_ON_WORLDS,
    )
    too_short_share: float = threshold(
        0.10,
        Unit.SHARE,
        "Such a short use is none at all where it is no more than this share of what was observed.",
        origin="ours: a GPU that idles nine tenths of the time is idle, whatever it did in between",
    )
    min_coverage: float = threshold(
        0.90,
        Unit.SHARE,
        "Where less of the in-use time is busy or has a known cause, the verdict says how much "
        "is not explained, and how to tag it.",
        origin="ours: from a tenth on, what is not known may be the greater part of a loss",
    )
    idle_job_ends_after_ns: int = threshold(
        60 * NS_PER_S,
        Unit.NANOSECONDS,
        "A job ends this long after its last active sample where no process list says better.",
        origin="ours: a pause of a minute may still be one, longer silence seldom is",
    )
    idle_job_ends_after_samples: int = threshold(
        12,
        Unit.COUNT,
        "... but never before this many samples.",
        origin="ours: as many as a minute has at 5 s a sample; where there are fewer, that all of "
        "them fall into pauses is no more than chance (" + _ON_WORLDS.removeprefix("ours: ") + ")",
    )
    flag_window_ns: int = threshold(
        60 * NS_PER_S,
        Unit.NANOSECONDS,
        "In-use time over which 'starved now' looks back.",
        origin="ours: a minute is soon enough to act, and long enough for a rhythm of seconds",
    )
    flag_on_share: float = threshold(
        0.05,
        Unit.SHARE,
        "Share of it, starved or suspected, at which 'starved now' rises.",
        origin="ours: the same as lost_share, and so XProf's",
    )
    flag_off_share: float = threshold(
        0.03,
        Unit.SHARE,
        "Share below which 'starved now' falls again.",
        origin="ours: far enough below flag_on_share that it does not flicker",
    )
    fill: FillSettings = field(default_factory=FillSettings)
    advice: AdviceSettings = field(default_factory=AdviceSettings)
    log: LogSettings = field(default_factory=LogSettings)
    trouble: TroubleSettings = field(default_factory=TroubleSettings)

    def __post_init__(self) -> None:
        check_thresholds(self)
        if self.active_above > self.burst_above:
            raise UsageError("active_above must not exceed burst_above")


DEFAULT_SETTINGS: Final = DetectorSettings()
DEFAULT_FILL_SETTINGS: Final = DEFAULT_SETTINGS.fill
DEFAULT_TROUBLE_SETTINGS: Final = DEFAULT_SETTINGS.trouble
