"""From the totals of a GPU to its verdict: the first of these rules that holds.

They are in the order in which they are tried: each may rely on those before it.
"""

from __future__ import annotations

from typing import Final

from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.phase import OUT_OF_USE, UNPROVED, IdleCause
from gpumon.core.settings.detector import DEFAULT_SETTINGS, DetectorSettings
from gpumon.core.settings.rule import RuleKind, rule, rule_of
from gpumon.core.verdict import Pattern, Severity, Verdict, VerdictName


@rule(
    "hanging",
    RuleKind.VERDICT,
    says="a run on the GPU hangs: it has counted no step for too long",
    evidence="Time since its last step, without time in which its process was stopped; in its "
    "first wait for input, since that began; in a validation, a prediction or a checkpoint, since "
    "that began. Never at start-up, while compiling, once the run is over, or while another "
    "run works on the GPU.",
    thresholds=(),
    measured_with=(
        "hang.min_ns",
        "hang.medians",
        "hang.longest_times",
        "hang.first_batch_ns",
        "hang.long_phase_ns",
    ),
)
def is_hanging(totals: GpuTotals, settings: DetectorSettings) -> bool:
    """Whether a run that uses it hangs now, and no other one works there."""
    return totals.hanging_now


@rule(
    "too_few_samples",
    RuleKind.VERDICT,
    says="a log has too few samples of the GPU for a verdict, or they are too far apart",
    evidence="The rows of a log that say how busy the GPU was, and the median time between two of "
    "them. Never of a GPU that is watched live.",
    thresholds=("log.min_samples", "log.longest_distance_ns"),
)
def has_too_few_samples(totals: GpuTotals, settings: DetectorSettings) -> bool:
    """Whether a log has too few samples of it for any other verdict."""
    if totals.samples is None:
        return False
    distance_ns = totals.sample_distance_ns or 0
    return (
        totals.samples < settings.log.min_samples or distance_ns > settings.log.longest_distance_ns
    )


@rule(
    "not_in_use",
    RuleKind.VERDICT,
    says="the GPU was not in use, or for a short part of a long time",
    evidence="Time from the first to the last active sample of each job, and on while a "
    "tagged run waits; here and below without its wait for the first batch.",
    thresholds=("min_in_use_ns", "too_short_share"),
    measured_with=(
        "active_above",
        "idle_job_ends_after_ns",
        "idle_job_ends_after_samples",
        "held_after_ns",
        "log.released_share",
    ),
)
def is_not_in_use(totals: GpuTotals, settings: DetectorSettings) -> bool:
    """Whether it worked for a short time at most, and for hardly any of the time observed."""
    is_short = totals.in_use_ns < settings.min_in_use_ns
    is_rare = totals.in_use_ns <= settings.too_short_share * totals.observed_ns
    return is_short and is_rare


@rule(
    "too_short_to_judge",
    RuleKind.VERDICT,
    says="the GPU was in use for too short a time for a verdict",
    evidence="The same time; what tags proved of it is reported besides.",
    thresholds=("min_in_use_ns",),
)
def is_too_short_to_judge(totals: GpuTotals, settings: DetectorSettings) -> bool:
    """Whether it worked for too short a time for a verdict."""
    return totals.in_use_ns < settings.min_in_use_ns


@rule(
    "healthy",
    RuleKind.VERDICT,
    says="hardly any time in use is lost, or once and in no pattern",
    evidence="Idle time in use, and time that may have been a wait for a late rank of the job; and "
    "where idle time is more: no tag proves it, there are too few pauses for a pattern, and most "
    "samples are fully busy.",
    thresholds=("lost_share", "min_pauses", "mostly_high_share"),
    measured_with=(
        "burst_above",
        "level_samples",
        "low_below",
        "high_above",
        "blip_pause_samples",
        "blip_burst_samples",
    ),
)
def is_healthy(totals: GpuTotals, settings: DetectorSettings) -> bool:
    """Whether it lost too little for a verdict, or once, unproved and in no pattern."""
    if totals.rank_wait_high_ns and may_wait_for_rank(totals, settings):
        return False
    if totals.lost_ns / totals.in_use_ns < settings.lost_share:
        return True
    # One checkpoint, a break between two jobs.
    return (
        totals.pauses.count + totals.low_levels < settings.min_pauses
        and _is_mostly_high(totals, settings)
        and proved_ns(totals) < settings.lost_share * totals.in_use_ns
    )


@rule(
    "starved",
    RuleKind.VERDICT,
    says="the GPU waits for input",
    evidence="Idle time that tags prove, or enough stack samples show, to be waits for input: the "
    "certain part, where the GPU works while the host waits; however much time nothing explains.",
    thresholds=("lost_share", "seen_least"),
)
def is_starved(totals: GpuTotals, settings: DetectorSettings) -> bool:
    """Whether it waited for input for a share worth a verdict, by tags or enough stack samples.

    However much is unknown: that is in use, too, and can make no proved loss smaller.
    """
    starved_ns = totals.starved_ns - hardly_seen_ns(totals, settings).get(IdleCause.INPUT_WAIT, 0)
    return starved_ns >= settings.lost_share * totals.in_use_ns


@rule(
    "stalled",
    RuleKind.VERDICT,
    says="the GPU waits mainly for something else, which is named",
    evidence="Idle time that tags prove, or enough stack samples show, to be of any cause, where "
    "waits for input alone are for certain not worth a verdict; or time that certainly was a wait "
    "for a late rank, and read as busy.",
    thresholds=("lost_share", "seen_least"),
)
def is_stalled(totals: GpuTotals, settings: DetectorSettings) -> bool:
    """Whether a loss worth a verdict has causes, by tags or enough stack samples: mostly others."""
    min_ns = settings.lost_share * totals.in_use_ns
    known_ns = proved_ns(totals) - sum(hardly_seen_ns(totals, settings).values())
    return known_ns >= min_ns or totals.rank_wait_low_ns >= min_ns


@rule(
    "starvation_suspected",
    RuleKind.VERDICT,
    says="bursts and pauses alternate, as they do where batches come too late",
    evidence="Pauses in utilisation that no tag explains, the share of samples that are nearly "
    "idle, and the probability that such pauses wait for input, by their shape "
    "(docs/how-sure.md); or stack samples that show waits for input, but too few.",
    thresholds=("min_pauses", "min_low_share", "lost_share", "suspected_from", "seen_least"),
    measured_with=(
        "shape_weight",
        "burst_above",
        "level_samples",
        "blip_pause_samples",
        "blip_burst_samples",
        "low_below",
        "remembered_cycles",
    ),
)
def is_starvation_suspected(totals: GpuTotals, settings: DetectorSettings) -> bool:
    """Whether pauses that nothing explains are likelier than not to wait for input."""
    seen_ns = hardly_seen_ns(totals, settings).get(IdleCause.INPUT_WAIT, 0)
    is_worth_it = totals.suspected_ns + seen_ns >= settings.lost_share * totals.in_use_ns
    return is_worth_it and _is_likely(totals, settings) and _is_bursty(totals, settings)


@rule(
    "partial",
    RuleKind.VERDICT,
    says="the GPU is busy in part, and utilisation alone cannot show why",
    evidence="Time in use is lost, and no rule before this one holds: a flat level, pauses too few "
    "for a pattern, or a rank that is late and may hold it up.",
    thresholds=(),
)
def is_partial(totals: GpuTotals, settings: DetectorSettings) -> bool:
    """Always: no rule before this one holds."""
    return True


VERDICT_RULES: Final = (
    rule_of(is_hanging),
    rule_of(has_too_few_samples),
    rule_of(is_not_in_use),
    rule_of(is_too_short_to_judge),
    rule_of(is_healthy),
    rule_of(is_starved),
    rule_of(is_stalled),
    rule_of(is_starvation_suspected),
    rule_of(is_partial),
)
"""In the order of ``VerdictName``."""
_IN_ORDER: Final = tuple((VerdictName(one.id), one.holds) for one in VERDICT_RULES)


def diagnose(totals: GpuTotals, settings: DetectorSettings = DEFAULT_SETTINGS) -> Verdict:
    """The verdict on one GPU's time so far.

    Thresholds are inclusive where they say "at least" and exclusive where
    they say "more than"; ``gpumon doctor --rules`` has each rule in words.
    The wait for the first batch counts in the ratios alone.
    """
    rest, in_use_ns = totals.diagnosed, totals.in_use_ns
    name = _first_that_holds(rest, settings)
    if not rest.in_use_ns or name is VerdictName.TOO_FEW_SAMPLES:
        severity = Severity.HIGH if name is VerdictName.HANGING else Severity.NONE
        pattern = Pattern.PARTIAL if rest.in_use_ns else Pattern.UNUSED
        return Verdict(name, severity, pattern, None, None, None, None)
    was_used, suspicion = name is not VerdictName.NOT_IN_USE, totals.suspicion
    return Verdict(
        name=name,
        severity=_severity(name, rest, settings),
        pattern=_pattern(name, rest, settings),
        main_cause=main_cause(rest) if was_used and rest.lost_ns else None,
        lost_ratio=totals.lost_ns / in_use_ns,
        starved_ratio=(rest.starved_ns + rest.suspected_ns) / in_use_ns,
        coverage_ratio=_coverage_ratio(totals),
        input_probability=suspicion.input_probability if suspicion else None,
        likely_causes=suspicion.likely_causes if suspicion else None,
    )


def _first_that_holds(totals: GpuTotals, settings: DetectorSettings) -> VerdictName:
    for name, holds in _IN_ORDER:
        if holds(totals, settings):
            return name
    return VerdictName.PARTIAL


def main_cause(totals: GpuTotals) -> IdleCause | None:
    """What most of the idle time in use went to; ``None``: there is none, or that is open."""
    greatest, max_ns, idle_ns = None, 0, totals.idle_ns
    for cause, cause_ns in idle_ns.items():
        if cause_ns > max_ns and cause not in OUT_OF_USE:
            greatest, max_ns = cause, cause_ns
    if greatest is None or not totals.may_be_more_ns:
        return greatest
    low_ns, more_ns = totals.bounds_ns(greatest)[0], totals.may_be_more_ns
    for other in {**idle_ns, **more_ns}:
        high_ns = idle_ns.get(other, 0) + more_ns.get(other, 0)
        if high_ns > low_ns and other is not greatest and other not in OUT_OF_USE:
            return None
    return greatest


def hardly_seen_ns(
    totals: GpuTotals, settings: DetectorSettings = DEFAULT_SETTINGS
) -> dict[IdleCause, int]:
    """Idle time, by cause, that has its cause from too few stack samples for a verdict."""
    least, samples = settings.seen_least, totals.seen_samples
    return {c: seen_ns for c, seen_ns in totals.seen_ns.items() if samples.get(c, 0) < least}


def proved_ns(totals: GpuTotals) -> int:
    """Idle time in use that tags or stack samples explain for certain, whichever of them."""
    idle_ns = totals.idle_ns
    unproved_ns = sum([idle_ns.get(cause, 0) for cause in UNPROVED])
    more_ns = totals.may_be_more_ns.get(IdleCause.UNKNOWN, 0)
    return max(0, totals.idle_total_ns - unproved_ns - more_ns)


def may_wait_for_rank(totals: GpuTotals, settings: DetectorSettings = DEFAULT_SETTINGS) -> bool:
    """Whether it may have waited for a late rank for a share worth a verdict."""
    return totals.rank_wait_high_ns >= settings.lost_share * totals.in_use_ns


def is_mostly_in_pauses(totals: GpuTotals) -> bool:
    """Whether most of what it lost lies in pauses, and not in a level below full use."""
    return 2 * totals.pauses.total_ns > totals.lost_ns


def certain_lost_ns(totals: GpuTotals) -> int:
    """The part of its loss that is certainly idle: proved by tags, or in pauses.

    A level below full use is a mean: it may be many small kernels.
    """
    return min(totals.lost_ns, max(proved_ns(totals), totals.pauses.total_ns))


def _is_likely(totals: GpuTotals, settings: DetectorSettings) -> bool:
    """Whether it still is; what was counted elsewhere is believed."""
    suspicion = totals.suspicion
    return suspicion is None or suspicion.input_probability >= settings.suspected_from


def _is_bursty(totals: GpuTotals, settings: DetectorSettings) -> bool:
    return (
        totals.pauses.count >= settings.min_pauses
        and totals.low_ns > settings.min_low_share * totals.in_use_ns
    )


def _is_mostly_high(totals: GpuTotals, settings: DetectorSettings) -> bool:
    return totals.high_ns > settings.mostly_high_share * totals.in_use_ns


def _severity(name: VerdictName, totals: GpuTotals, settings: DetectorSettings) -> Severity:
    if name is VerdictName.HANGING:
        return Severity.HIGH
    if not name.is_of_a_loss:
        return Severity.NONE
    lost_ns = totals.lost_ns + totals.rank_wait_low_ns
    is_much = lost_ns >= settings.high_share * totals.in_use_ns
    # A loss that nothing proves, in so few pauses, cannot be called high.
    in_pauses = name is VerdictName.STARVATION_SUSPECTED or (
        name is VerdictName.PARTIAL and is_mostly_in_pauses(totals)
    )
    is_doubtful = in_pauses and totals.pauses.count < settings.enough_pauses
    is_seen = totals.usable_share >= settings.log.usable_least
    return Severity.HIGH if is_much and is_seen and not is_doubtful else Severity.MODERATE


def _pattern(name: VerdictName, totals: GpuTotals, settings: DetectorSettings) -> Pattern:
    if name is VerdictName.NOT_IN_USE:
        return Pattern.UNUSED
    if _is_bursty(totals, settings):
        return Pattern.BURSTY
    is_busy = name is VerdictName.HEALTHY or _is_mostly_high(totals, settings)
    return Pattern.BUSY if is_busy else Pattern.PARTIAL


def _coverage_ratio(totals: GpuTotals) -> float:
    """Share, 0 to 1, of in-use time that is busy or has a cause other than ``unknown``."""
    unknown_ns, in_use_ns = totals.idle_ns.get(IdleCause.UNKNOWN, 0), totals.in_use_ns
    return 1.0 - unknown_ns / in_use_ns if unknown_ns < in_use_ns else 0.0
