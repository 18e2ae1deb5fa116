"""The rules that turn a GPU's totals into one word, tried in the order of ``VerdictName``."""

from __future__ import annotations

from gpumon.core.phase import IdleCause
from gpumon.core.settings import DEFAULT_SETTINGS, DetectorSettings
from gpumon.core.totals import GpuTotals
from gpumon.core.verdict import Pattern, Severity, Verdict, VerdictName

_new = tuple.__new__
_NOT_LOST = frozenset({IdleCause.NOT_IN_USE, IdleCause.START_UP})
_UNPROVED = frozenset({IdleCause.UNKNOWN, IdleCause.NOT_IN_USE, IdleCause.START_UP})


def judge(totals: GpuTotals, settings: DetectorSettings = DEFAULT_SETTINGS) -> Verdict:
    """The verdict on one GPU's time so far.

    Thresholds are inclusive where they say "at least" and exclusive where
    they say "more than"; ``docs/decisions`` has each rule in words.
    """
    in_use_ns = totals.in_use_ns
    if in_use_ns < settings.min_in_use_ns:
        return Verdict(
            name=VerdictName.NOT_IN_USE,
            severity=Severity.NONE,
            pattern=Pattern.UNUSED,
            main_cause=None,
            lost_ratio=totals.lost_ns / in_use_ns if in_use_ns else None,
            starved_ratio=_starved_ns(totals) / in_use_ns if in_use_ns else None,
            coverage_ratio=_coverage(totals) if in_use_ns else None,
        )
    lost_ns = in_use_ns - totals.in_use_busy_ns
    lost_ratio = lost_ns / in_use_ns
    bursty = (
        totals.gaps.count >= settings.min_pauses
        and totals.low_ns > settings.min_low_share * in_use_ns
    )
    if lost_ratio < settings.lost_share:
        name, severity = VerdictName.HEALTHY, Severity.NONE
        pattern = Pattern.BURSTY if bursty else Pattern.BUSY
    else:
        name = _name(totals, settings, bursty=bursty)
        healthy = name is VerdictName.HEALTHY
        severity = Severity.NONE if healthy else _severity(lost_ratio, settings)
        pattern = _pattern(totals, bursty=bursty)
    return _new(  # in the order of its fields; its own constructor takes twice as long
        Verdict,
        (
            name,
            severity,
            pattern,
            _main_cause(totals) if lost_ns else None,
            lost_ratio,
            _starved_ns(totals) / in_use_ns,
            _coverage(totals),
        ),
    )


def _name(totals: GpuTotals, settings: DetectorSettings, *, bursty: bool) -> VerdictName:
    worth_ns = settings.lost_share * totals.in_use_ns
    proved_ns = sum([ns for cause, ns in totals.idle_ns.items() if cause not in _UNPROVED])
    if (
        proved_ns < worth_ns
        and totals.gaps.count < settings.min_pauses
        and totals.high_ns * 2 > totals.in_use_ns
    ):
        return VerdictName.HEALTHY  # one checkpoint, a break between two jobs: no pattern
    if _coverage(totals) >= settings.min_coverage:
        if totals.starved_ns >= worth_ns:
            return VerdictName.STARVED
        if proved_ns >= worth_ns:
            return VerdictName.STALLED
    if bursty and totals.suspected_ns > 0:
        return VerdictName.STARVATION_SUSPECTED
    return VerdictName.PARTIAL


def _pattern(totals: GpuTotals, *, bursty: bool) -> Pattern:
    if bursty:
        return Pattern.BURSTY
    return Pattern.BUSY if totals.high_ns * 2 > totals.in_use_ns else Pattern.PARTIAL


def _severity(lost_ratio: float, settings: DetectorSettings) -> Severity:
    if lost_ratio >= settings.high_share:
        return Severity.HIGH
    return Severity.MODERATE if lost_ratio >= settings.lost_share else Severity.NONE


def _main_cause(totals: GpuTotals) -> IdleCause | None:
    main, most_ns = None, 0
    for cause, amount_ns in totals.idle_ns.items():
        if amount_ns > most_ns and cause not in _NOT_LOST:
            main, most_ns = cause, amount_ns
    return main


def _starved_ns(totals: GpuTotals) -> int:
    return totals.starved_ns + totals.suspected_ns


def _coverage(totals: GpuTotals) -> float:
    unknown_ns = totals.idle_ns.get(IdleCause.UNKNOWN, 0)
    return max(0.0, 1.0 - unknown_ns / totals.in_use_ns)
