"""The verdicts' rules, in the order in which they are tried: each may count on those before it.

From a GPU's totals to its verdict: the first of the rules that holds, and what it amounts to.
"""

from __future__ import annotations

from typing import Final

from gpumon.core.judge.rule import Rule, RuleKind
from gpumon.core.phase import IdleCause
from gpumon.core.settings.detector import DEFAULT_SETTINGS, DetectorSettings
from gpumon.core.time.totals import GpuTotals
from gpumon.core.verdict import Pattern, Severity, Verdict, VerdictName

_UNKNOWN, _NOT_IN_USE, _START_UP = IdleCause.UNKNOWN, IdleCause.NOT_IN_USE, IdleCause.START_UP


def is_not_in_use(totals: GpuTotals, settings: DetectorSettings) -> bool:
    """Whether it worked for a moment at most, and for hardly any of the time observed."""
    is_short = totals.in_use_ns < settings.min_in_use_ns
    is_rare = totals.in_use_ns <= settings.too_short_share * totals.observed_ns
    return is_short and is_rare


def is_too_short_to_judge(totals: GpuTotals, settings: DetectorSettings) -> bool:
    """Whether it worked for too short a time to say anything of it."""
    return totals.in_use_ns < settings.min_in_use_ns


def is_healthy(totals: GpuTotals, settings: DetectorSettings) -> bool:
    """Whether it lost too little for a verdict, or once, unproved and in no pattern."""
    in_use_ns = totals.in_use_ns
    if (in_use_ns - totals.in_use_busy_ns) / in_use_ns < settings.lost_share:
        return True
    # One checkpoint, a break between two jobs.
    return (
        totals.pauses.count < settings.min_pauses
        and is_mostly_high(totals, settings)
        and proved_ns(totals) < settings.lost_share * in_use_ns
    )


def is_starved(totals: GpuTotals, settings: DetectorSettings) -> bool:
    """Whether tags prove that it waited for input for a share worth a verdict.

    However much is unknown: that is in use, too, and can make no proved loss smaller.
    """
    return totals.starved_ns >= settings.lost_share * totals.in_use_ns


def is_stalled(totals: GpuTotals, settings: DetectorSettings) -> bool:
    """Whether tags prove a loss worth a verdict, of any cause: mostly others than input."""
    return proved_ns(totals) >= settings.lost_share * totals.in_use_ns


def is_starvation_suspected(totals: GpuTotals, settings: DetectorSettings) -> bool:
    """Whether pauses that nothing explains come often enough to be a pattern."""
    is_worth_it = totals.suspected_ns >= settings.lost_share * totals.in_use_ns
    return is_worth_it and has_rhythm(totals) and is_bursty(totals, settings)


def is_partial(totals: GpuTotals, settings: DetectorSettings) -> bool:
    """Always: what no rule before this one has a word for."""
    return True


# -- what totals amount to ---------------------------------------------------------


def is_bursty(totals: GpuTotals, settings: DetectorSettings) -> bool:
    """Whether bursts and pauses alternate: enough pauses, and low for enough of the time."""
    return (
        totals.pauses.count >= settings.min_pauses
        and totals.low_ns > settings.min_low_share * totals.in_use_ns
    )


def has_rhythm(totals: GpuTotals) -> bool:
    """Whether no more of its pauses' time is known to come without a rhythm than is suspected."""
    return totals.suspected_ns >= totals.irregular_ns


def is_mostly_in_pauses(totals: GpuTotals) -> bool:
    """Whether most of what it lost lies in pauses, and not in a level below full use."""
    return 2 * totals.pauses.total_ns > totals.lost_ns


def is_mostly_high(totals: GpuTotals, settings: DetectorSettings) -> bool:
    """Whether it was fully busy for most of its time in use."""
    return totals.high_ns > settings.mostly_high_share * totals.in_use_ns


def coverage_ratio(totals: GpuTotals) -> float:
    """Share, 0 to 1, of in-use time that is busy or has a cause other than ``unknown``."""
    unknown_ns, in_use_ns = totals.idle_ns.get(_UNKNOWN, 0), totals.in_use_ns
    return 1.0 - unknown_ns / in_use_ns if unknown_ns < in_use_ns else 0.0


def proved_ns(totals: GpuTotals) -> int:
    """Idle time in use that a tag explains."""
    total_ns = 0
    for cause, ns in totals.idle_ns.items():
        if cause is not _UNKNOWN and cause is not _NOT_IN_USE and cause is not _START_UP:
            total_ns += ns
    return total_ns


VERDICT_RULES: Final = (
    Rule(
        id="not_in_use",
        kind=RuleKind.VERDICT,
        says="the GPU was not in use, or for a moment of a long time",
        evidence="Time from the first to the last active sample of each job, and on while a "
        "tagged training waits; here and below without its wait for the very first batch.",
        thresholds=("min_in_use_ns", "too_short_share"),
        measured_with=(
            "active_above",
            "idle_job_ends_after_ns",
            "idle_job_ends_after_samples",
            "log.released_share",
        ),
        holds=is_not_in_use,
    ),
    Rule(
        id="too_short_to_judge",
        kind=RuleKind.VERDICT,
        says="the GPU was in use for too short a time for a verdict",
        evidence="The same time; what tags proved of it is told beside this.",
        thresholds=("min_in_use_ns",),
        holds=is_too_short_to_judge,
    ),
    Rule(
        id="healthy",
        kind=RuleKind.VERDICT,
        says="hardly any time in use is lost, or once and in no pattern",
        evidence="Idle time in use; and where that is more: no tag proves it, there are too few "
        "pauses for a pattern, and most samples are fully busy.",
        thresholds=("lost_share", "min_pauses", "mostly_high_share"),
        measured_with=("burst_above", "high_above", "blip_pause_samples", "blip_burst_samples"),
        holds=is_healthy,
    ),
    Rule(
        id="starved",
        kind=RuleKind.VERDICT,
        says="the GPU waits for input",
        evidence="Idle time that a training's own tags prove to be waits for input, however much "
        "of its time nothing explains.",
        thresholds=("lost_share",),
        holds=is_starved,
    ),
    Rule(
        id="stalled",
        kind=RuleKind.VERDICT,
        says="the GPU waits mainly for something else, which is named",
        evidence="Idle time that tags prove to be of any cause, where waits for input alone are "
        "not worth a verdict.",
        thresholds=("lost_share",),
        holds=is_stalled,
    ),
    Rule(
        id="starvation_suspected",
        kind=RuleKind.VERDICT,
        says="bursts and pauses alternate, as they do where batches come too late",
        evidence="Pauses in utilisation that no tag explains, and the share of samples that are "
        "nearly idle.",
        thresholds=("min_pauses", "min_low_share", "lost_share"),
        measured_with=(
            "burst_above",
            "blip_pause_samples",
            "blip_burst_samples",
            "low_below",
            "min_cycles",
            "rhythm_cycles",
            "cycle_pause_from_ns",
            "irregular_from",
            "irregular_busy_below",
        ),
        holds=is_starvation_suspected,
    ),
    Rule(
        id="partial",
        kind=RuleKind.VERDICT,
        says="the GPU is busy in part, and utilisation alone cannot tell why",
        evidence="Time in use is lost, and no rule before this one holds: a flat level, or pauses "
        "too few for a pattern.",
        thresholds=(),
        holds=is_partial,
    ),
)
"""In the order of ``VerdictName``."""


_IN_ORDER = tuple((VerdictName(rule.id), rule.holds) for rule in VERDICT_RULES)
_NOT_USED, _HEALTHY = VerdictName.NOT_IN_USE, VerdictName.HEALTHY
_SUSPECTED, _PARTLY_BUSY = VerdictName.STARVATION_SUSPECTED, VerdictName.PARTIAL
_NONE, _MODERATE, _HIGH = Severity
_UNUSED, _BUSY, _BURSTY, _PARTIAL = Pattern
_NEVER_USED = Verdict(_NOT_USED, _NONE, _UNUSED, None, None, None, None)
_BEFORE_USE, _AFTER_USE = IdleCause.START_UP, IdleCause.NOT_IN_USE


def judge(totals: GpuTotals, settings: DetectorSettings = DEFAULT_SETTINGS) -> Verdict:
    """The verdict on one GPU's time so far.

    Thresholds are inclusive where they say "at least" and exclusive where
    they say "more than"; ``gpumon doctor --rules`` has each rule in words.
    The wait for the very first batch is in the ratios, and in nothing else.
    """
    all_totals, totals = totals, totals.after_first_batch
    in_use_ns = totals.in_use_ns
    if not in_use_ns:
        return _NEVER_USED
    for name, holds in _IN_ORDER:  # noqa: B007 - the last one always holds
        if holds(totals, settings):
            break
    idle_ns = totals.idle_ns
    lost_ns = in_use_ns - totals.in_use_busy_ns
    severity, pattern, main_cause = _NONE, _UNUSED, None
    if name is not _NOT_USED:
        if name.is_of_a_loss:
            is_much = lost_ns >= settings.high_share * in_use_ns
            is_high = is_much and not _is_doubtful(name, totals, settings)
            severity = _HIGH if is_high else _MODERATE
        if is_bursty(totals, settings):
            pattern = _BURSTY
        else:
            pattern = _BUSY if name is _HEALTHY or is_mostly_high(totals, settings) else _PARTIAL
        if lost_ns:
            most_ns = 0
            for cause, ns in idle_ns.items():
                if ns > most_ns and cause is not _BEFORE_USE and cause is not _AFTER_USE:
                    main_cause, most_ns = cause, ns
    in_use_ns = all_totals.in_use_ns
    lost_ratio = all_totals.lost_ns / in_use_ns
    starved_ratio = (totals.starved_ns + totals.suspected_ns) / in_use_ns
    coverage = coverage_ratio(all_totals)
    return Verdict(
        name=name,
        severity=severity,
        pattern=pattern,
        main_cause=main_cause,
        lost_ratio=lost_ratio,
        starved_ratio=starved_ratio,
        coverage_ratio=coverage,
    )


def _is_doubtful(name: VerdictName, totals: GpuTotals, settings: DetectorSettings) -> bool:
    """Whether a loss that nothing proves lies in so few pauses that it cannot be called high."""
    in_pauses = name is _SUSPECTED or (name is _PARTLY_BUSY and is_mostly_in_pauses(totals))
    return in_pauses and totals.pauses.count < settings.enough_pauses
