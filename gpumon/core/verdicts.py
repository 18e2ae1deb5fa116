"""The rules that turn a GPU's totals into one word, tried in the order of ``VerdictName``."""

from __future__ import annotations

from gpumon.core.phase import IdleCause
from gpumon.core.settings import DEFAULT_SETTINGS, DetectorSettings
from gpumon.core.totals import GpuTotals
from gpumon.core.verdict import Pattern, Severity, Verdict, VerdictName

_new = tuple.__new__
_TOO_SHORT = (VerdictName.NOT_IN_USE, Severity.NONE, Pattern.UNUSED)
_NOT_IN_USE = Verdict(*_TOO_SHORT, None, None, None, None)
_HEALTHY_BUSY = (VerdictName.HEALTHY, Severity.NONE, Pattern.BUSY)
_HEALTHY_BURSTY = (VerdictName.HEALTHY, Severity.NONE, Pattern.BURSTY)
_NOT_LOST = frozenset({IdleCause.NOT_IN_USE, IdleCause.START_UP})
_UNPROVED = frozenset({IdleCause.UNKNOWN, IdleCause.NOT_IN_USE, IdleCause.START_UP})


def judge(totals: GpuTotals, settings: DetectorSettings = DEFAULT_SETTINGS) -> Verdict:
    """The verdict on one GPU's time so far.

    Thresholds are inclusive where they say "at least" and exclusive where
    they say "more than"; ``docs/decisions`` has each rule in words.
    """
    in_use_ns = totals.in_use_ns
    if not in_use_ns:
        return _NOT_IN_USE
    idle_ns = totals.idle_ns
    lost_ns = in_use_ns - totals.in_use_busy_ns
    lost_ratio = lost_ns / in_use_ns
    starved_ns = idle_ns.get(IdleCause.INPUT_WAIT, 0) + totals.suspected_ns
    unknown_ns = idle_ns.get(IdleCause.UNKNOWN, 0)
    coverage = 1.0 - unknown_ns / in_use_ns if unknown_ns < in_use_ns else 0.0
    if in_use_ns < settings.min_in_use_ns:
        name, severity, pattern = _TOO_SHORT
        main_cause = None
    else:
        name, severity, pattern = _word(totals, settings, lost_ratio, coverage)
        main_cause = _main_cause(totals) if lost_ns else None
    return _new(  # in the order of its fields; its own constructor takes twice as long
        Verdict,
        (name, severity, pattern, main_cause, lost_ratio, starved_ns / in_use_ns, coverage),
    )


def _word(
    totals: GpuTotals, settings: DetectorSettings, lost_ratio: float, coverage: float
) -> tuple[VerdictName, Severity, Pattern]:
    """The verdict on a GPU that was in use for long enough."""
    in_use_ns = totals.in_use_ns
    bursty = (
        totals.gaps.count >= settings.min_pauses
        and totals.low_ns > settings.min_low_share * in_use_ns
    )
    if lost_ratio < settings.lost_share:
        return _HEALTHY_BURSTY if bursty else _HEALTHY_BUSY
    name = _name(totals, settings, coverage, bursty=bursty)
    severity = Severity.NONE
    if name is not VerdictName.HEALTHY:
        severity = Severity.HIGH if lost_ratio >= settings.high_share else Severity.MODERATE
    if bursty:
        return name, severity, Pattern.BURSTY
    mostly_high = totals.high_ns * 2 > in_use_ns
    return name, severity, Pattern.BUSY if mostly_high else Pattern.PARTIAL


def _name(
    totals: GpuTotals, settings: DetectorSettings, coverage: float, *, bursty: bool
) -> VerdictName:
    worth_ns = settings.lost_share * totals.in_use_ns
    proved_ns = sum([ns for cause, ns in totals.idle_ns.items() if cause not in _UNPROVED])
    if (
        proved_ns < worth_ns
        and totals.gaps.count < settings.min_pauses
        and totals.high_ns * 2 > totals.in_use_ns
    ):
        return VerdictName.HEALTHY  # one checkpoint, a break between two jobs: no pattern
    if coverage >= settings.min_coverage:
        if totals.starved_ns >= worth_ns:
            return VerdictName.STARVED
        if proved_ns >= worth_ns:
            return VerdictName.STALLED
    if bursty and totals.suspected_ns > 0:
        return VerdictName.STARVATION_SUSPECTED
    return VerdictName.PARTIAL


def _main_cause(totals: GpuTotals) -> IdleCause | None:
    main, most_ns = None, 0
    for cause, amount_ns in totals.idle_ns.items():
        if amount_ns > most_ns and cause not in _NOT_LOST:
            main, most_ns = cause, amount_ns
    return main
