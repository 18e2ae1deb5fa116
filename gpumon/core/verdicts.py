"""From a GPU's totals to its verdict: the first of the rules that holds, and what it amounts to."""

from __future__ import annotations

from gpumon.core.phase import IdleCause
from gpumon.core.rules.verdict_rules import (
    VERDICT_RULES,
    coverage_ratio,
    is_bursty,
    is_mostly_high,
    is_mostly_in_pauses,
)
from gpumon.core.settings import DEFAULT_SETTINGS, DetectorSettings
from gpumon.core.totals import GpuTotals
from gpumon.core.verdict import Pattern, Severity, Verdict, VerdictName

_new = tuple.__new__
_IN_ORDER = tuple((VerdictName(rule.id), rule.holds) for rule in VERDICT_RULES)
_NOT_IN_USE, _HEALTHY = VerdictName.NOT_IN_USE, VerdictName.HEALTHY
_SUSPECTED, _PARTLY_BUSY = VerdictName.STARVATION_SUSPECTED, VerdictName.PARTIAL
_NONE, _MODERATE, _HIGH = Severity
_UNUSED, _BUSY, _BURSTY, _PARTIAL = Pattern
_NEVER_USED = Verdict(_NOT_IN_USE, _NONE, _UNUSED, None, None, None, None)
_BEFORE_USE, _AFTER_USE = IdleCause.START_UP, IdleCause.NOT_IN_USE


def judge(  # noqa: C901 - once a GPU and tick: calls would cost more than the work
    totals: GpuTotals, settings: DetectorSettings = DEFAULT_SETTINGS
) -> Verdict:
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
    if name is not _NOT_IN_USE:
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
    return _new(  # in the order of its fields; its own constructor takes twice as long
        Verdict,
        (name, severity, pattern, main_cause, lost_ratio, starved_ratio, coverage, None, None),
    )


def _is_doubtful(name: VerdictName, totals: GpuTotals, settings: DetectorSettings) -> bool:
    """Whether a loss that nothing proves lies in so few pauses that it cannot be called high."""
    in_pauses = name is _SUSPECTED or (name is _PARTLY_BUSY and is_mostly_in_pauses(totals))
    return in_pauses and totals.pauses.count < settings.enough_pauses
