"""One GPU of a ``gpumon.report/1`` document, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from gpumon.core.accounting.intervals import Interval
from gpumon.core.accounting.now_verdict import NowVerdict
from gpumon.core.accounting.rank_wait import RankWait
from gpumon.core.accounting.suspicion import Suspicion
from gpumon.core.accounting.totals import GapTotals, GpuTotals
from gpumon.core.clock import seconds
from gpumon.core.codecs.board_codec import (
    decode_fill,
    decode_held,
    decode_in_job,
    decode_troubles,
    encode_fill,
    encode_held,
    encode_in_job,
    encode_troubles,
)
from gpumon.core.codecs.field_codec import (
    TOLD,
    FieldCodec,
    MalformedError,
    flag,
    in_order,
    items,
    mapping,
    row,
    shown,
    time_ns,
)
from gpumon.core.codecs.moments import Moments
from gpumon.core.device.troubles import error_of
from gpumon.core.log_summary.held_memory import HeldMemory
from gpumon.core.phase import CAUSES, IdleCause
from gpumon.core.report.report import GpuReport
from gpumon.core.verdict import Verdict, VerdictName

_GPU: Final = FieldCodec(
    GpuReport,
    TOLD,
    "index uuid name mig_enabled? parent_uuid? mig_index? listed? idle_beside_peer_seconds?"
    " idle_after_use_seconds? held_memory?",
    {HeldMemory: "idle_seconds longest_seconds peak_bytes"},
)
_ERROR: Final = shown(600)
"""Both ways of a sentence with a remedy, which is longer than a label."""
_TOTALS: Final = FieldCodec(
    GpuTotals,
    TOLD,
    "observed_seconds busy_seconds idle_by_cause=idle_ns pending_seconds in_use_seconds"
    " in_use_busy_seconds suspected_seconds resolved_seconds inferred_seconds"
    " input_wait_by_reason=input_wait_by_reason_ns hidden_input_wait_seconds? low_seconds?"
    " high_seconds? merged_intervals? episodes? starved_now? irregular_seconds? cycle_seconds?"
    " first_input_wait_seconds? validation_input_wait_seconds?"
    " within_step_by_reason=within_step_by_reason_ns? hanging_seconds?"
    " hanging_by_cause=hanging_idle_ns? hanging_now? epoch_input_wait_seconds? low_levels?"
    " samples? sample_distance_seconds? unusable_samples?",
)
_OF_NOW: Final = FieldCodec(
    GpuTotals,
    TOLD,
    "observed_seconds? busy_seconds? in_use_seconds? in_use_busy_seconds? pending_seconds?"
    " suspected_seconds? first_input_wait_seconds? validation_input_wait_seconds?"
    " epoch_input_wait_seconds? low_seconds? high_seconds? cycle_seconds? irregular_seconds?"
    " idle_by_cause=idle_ns? input_wait_by_reason=input_wait_by_reason_ns?"
    " within_step_by_reason=within_step_by_reason_ns? hanging_seconds?"
    " hanging_by_cause=hanging_idle_ns? rank_wait_low_seconds? rank_wait_high_seconds?",
)
"""Of the totals of a GPU's last minutes in use."""
_VERDICT: Final = FieldCodec(
    Verdict,
    TOLD,
    "verdict=name severity pattern main_cause? lost_ratio? starved_ratio coverage_ratio"
    " input_probability? likely_causes?",
)
_GAPS: Final = FieldCodec(
    GapTotals, TOLD, "count total_seconds p50_seconds p95_seconds longest_seconds"
)
_WAIT: Final = FieldCodec(RankWait, TOLD, "run rank cause")
_GPU_ORDER: Final = (
    "index", "label", "uuid", "name", "error", "observed_seconds", "busy_seconds", "idle_seconds",
    "pending_seconds", "in_use_seconds", "in_use_busy_seconds", "busy_ratio", "coverage_ratio",
    "pattern", "verdict", "severity", "main_cause", "lost_ratio", "starved_seconds",
    "first_input_wait_seconds", "validation_input_wait_seconds", "epoch_input_wait_seconds",
    "suspected_seconds",
    "irregular_seconds", "cycle_seconds", "starved_ratio", "input_probability", "likely_causes",
    "starved_now", "episodes", "resolved_seconds", "inferred_seconds",
    "hidden_input_wait_seconds", "low_seconds", "high_seconds", "gaps", "pauses",
    "starved_intervals", "merged_intervals", "idle_by_cause", "idle_bounds_by_cause",
    "input_wait_by_reason",
    "within_step_by_reason", "waits_for", "hanging_seconds", "hanging_by_cause", "hanging_now",
    "now",
    "fill", "mig_enabled", "parent_uuid", "mig_index", "listed",
    "idle_beside_peer_seconds", "idle_after_use_seconds", "held_memory", "held", "in_job",
    "low_levels",
    "samples", "sample_distance_seconds", "unusable_samples", "troubles",
)  # fmt: skip


def encode_gpu(gpu: GpuReport, moments: Moments) -> dict[str, Any]:
    """One GPU of a report; its intervals count from the origin of ``moments``."""
    totals, verdict, origin_ns = gpu.totals, gpu.verdict, moments.origin_ns
    told = {
        **_GPU.encode(gpu),
        **_TOTALS.encode(totals),
        **_VERDICT.encode(verdict),
        "label": gpu.label,
        "error": None if gpu.error is None else _ERROR.write(error_of(gpu.troubles)),
        "idle_seconds": seconds(totals.idle_total_ns),
        "starved_seconds": seconds(totals.starved_ns),
        # The schema promises numbers: nothing of nothing was lost, and nothing is unexplained.
        "busy_ratio": totals.busy_ns / totals.observed_ns if totals.observed_ns else 0.0,
        "lost_ratio": verdict.lost_ratio or 0.0,
        "starved_ratio": verdict.starved_ratio or 0.0,
        # But of a GPU that is cut by MIG, and of a mute part of one, nothing is known.
        "coverage_ratio": _coverage(gpu),
        "gaps": _encode_gaps(totals.gaps),
        "pauses": _encode_gaps(totals.pauses),
        "starved_intervals": [
            [seconds(span.start_ns - origin_ns), seconds(span.end_ns - origin_ns)]
            for span in totals.starved_intervals
        ],
        "idle_by_cause": {cause.value: seconds(totals.idle_ns.get(cause, 0)) for cause in CAUSES},
        "idle_bounds_by_cause": _encode_bounds(totals),
        "waits_for": _encode_wait(gpu),
        "held": encode_held(gpu.held, moments),
        "fill": encode_fill(gpu.fill),
        "in_job": encode_in_job(gpu.in_job),
        "now": None if gpu.now is None else _encode_now(gpu.now, moments),
        "troubles": encode_troubles(gpu.troubles, moments),
    }
    return in_order(told, _GPU_ORDER)


def _encode_now(now: NowVerdict, moments: Moments) -> dict[str, Any]:
    """What a GPU does now, and where the time went that this rests on."""
    return {
        **_VERDICT.encode(now.verdict),
        "verdict": now.name.value,
        "since": moments.encode(now.since_ns),
        "window_seconds": seconds(now.window_ns),
        "job_ended": moments.encode(now.ended_ns),
        "suspended": now.is_suspended,
        "verdict_before": None if now.before is None else now.before.value,
        "verdict_of_window": now.verdict.name.value,
        **_OF_NOW.encode(now.totals),
        "idle_bounds_by_cause": _encode_bounds(now.totals),
        "pauses": _encode_gaps(now.totals.pauses),
    }


def _decode_now(document: object, moments: Moments) -> NowVerdict | None:
    if document is None:
        return None
    told = mapping(document)
    totals = _OF_NOW.decode(told, pauses=_decode_gaps(told["pauses"]))
    verdict = _VERDICT.decode({**told, "verdict": told["verdict_of_window"]})
    since_ns, before = moments.decode(told["since"]), told.get("verdict_before")
    if since_ns is None:
        return None
    return NowVerdict(
        VerdictName(told["verdict"]),
        since_ns,
        _with_causes(totals, told)._replace(suspicion=_suspicion_of(verdict)),
        verdict,
        moments.decode(told.get("job_ended")),
        is_suspended=flag(told.get("suspended", False)),
        before=None if before is None else VerdictName(before),
    )


def _encode_wait(gpu: GpuReport) -> dict[str, Any] | None:
    """The rank that it waited for last, and for how long it waited for ranks while it was busy."""
    totals = gpu.totals
    if gpu.waits_for is None:
        return None
    return {
        **_WAIT.encode(gpu.waits_for),
        "low_seconds": seconds(totals.rank_wait_low_ns),
        "high_seconds": seconds(totals.rank_wait_high_ns),
    }


def _decode_wait(document: object) -> tuple[RankWait | None, int, int]:
    if document is None:
        return None, 0, 0
    told = mapping(document)
    low_ns, high_ns = time_ns(told["low_seconds"]), time_ns(told["high_seconds"])
    if not 0 <= low_ns <= high_ns:
        raise MalformedError("a wait of less than nothing")
    return _WAIT.decode(told), low_ns, high_ns


def _encode_bounds(totals: GpuTotals) -> dict[str, list[float]]:
    """How much idle time is of each cause for certain, and how much at most."""
    return {cause.value: [*map(seconds, totals.bounds_ns(cause))] for cause in CAUSES}


def _with_causes(totals: GpuTotals, told: Mapping[str, Any]) -> GpuTotals:
    """These totals without causes that lost nothing, and with the bounds of the others.

    An older version wrote no bounds: then each cause has just its share.
    """
    idle_ns = {cause: ns for cause, ns in totals.idle_ns.items() if ns}
    less_ns, more_ns = {}, {}
    for name, bounds in mapping(told.get("idle_bounds_by_cause", {})).items():
        cause = IdleCause(name)
        low_ns, high_ns = map(time_ns, row(bounds, 2))
        best_ns = idle_ns.get(cause, 0)
        if not low_ns <= best_ns <= high_ns:
            raise MalformedError(f"bounds of {name} that do not hold what it lost")
        less_ns[cause], more_ns[cause] = best_ns - low_ns, high_ns - best_ns
    return totals._replace(
        idle_ns=idle_ns,
        may_be_less_ns={cause: ns for cause, ns in less_ns.items() if ns},
        may_be_more_ns={cause: ns for cause, ns in more_ns.items() if ns},
    )


def _coverage(gpu: GpuReport) -> float:
    if gpu.verdict.coverage_ratio is not None:
        return gpu.verdict.coverage_ratio
    return 1.0 if gpu.is_judgeable else 0.0


def _encode_gaps(gaps: GapTotals) -> dict[str, Any]:
    """Pauses; where there was none, the length of any is 0."""
    told = _GAPS.encode(gaps)
    return {
        **told,
        "p50_seconds": told["p50_seconds"] or 0.0,
        "p95_seconds": told["p95_seconds"] or 0.0,
    }


def decode_gpu(gpu: Mapping[str, Any], moments: Moments) -> GpuReport:
    """The GPU of a document; its intervals count from 0.

    Raises:
        MalformedError: It contradicts itself.
        MissingFieldError: It lacks a field.
        KeyError: As ``MissingFieldError``.
        ValueError: A value is none that the field can have.
    """
    totals = _TOTALS.decode(
        gpu,
        gaps=_decode_gaps(gpu["gaps"]),
        pauses=_decode_gaps(gpu.get("pauses", gpu["gaps"])),
        starved_intervals=tuple(
            Interval(*map(time_ns, items(span))) for span in items(gpu["starved_intervals"])
        ),
    )
    waits_for, low_ns, high_ns = _decode_wait(gpu.get("waits_for"))
    totals = totals._replace(rank_wait_low_ns=low_ns, rank_wait_high_ns=high_ns)
    verdict = _decode_verdict(gpu, totals)
    totals = _with_causes(totals, gpu)._replace(suspicion=_suspicion_of(verdict))
    troubles = decode_troubles(gpu.get("troubles", []), moments)
    return _GPU.decode(
        gpu,
        error=None if gpu.get("error") is None else _ERROR.read(gpu["error"]),
        totals=totals,
        verdict=verdict,
        now=_decode_now(gpu.get("now"), moments),
        waits_for=waits_for,
        held=decode_held(gpu.get("held"), moments),
        fill=decode_fill(gpu.get("fill")),
        in_job=decode_in_job(gpu.get("in_job")),
        # What lasts for a time follows from its fill.
        told_troubles=tuple(trouble for trouble in troubles if trouble.duration_ns is None),
    )


def _decode_verdict(gpu: Mapping[str, Any], totals: GpuTotals) -> Verdict:
    verdict, in_use_ns = _VERDICT.decode(gpu), totals.in_use_ns
    if verdict.name.is_judged and totals.judged.in_use_ns <= 0:
        raise MalformedError("a verdict on no time in use")
    if not in_use_ns:
        return verdict._replace(lost_ratio=None, starved_ratio=None, coverage_ratio=None)
    if None in (verdict.starved_ratio, verdict.coverage_ratio, gpu.get("lost_ratio", 0.0)):
        raise MalformedError("no share of the time in use")
    # An older version did not write it: then it is what follows, and never nothing.
    if "lost_ratio" not in gpu:
        return verdict._replace(lost_ratio=totals.lost_ns / in_use_ns)
    return verdict


def _suspicion_of(verdict: Verdict) -> Suspicion | None:
    if verdict.input_probability is None or verdict.likely_causes is None:
        return None
    return Suspicion(verdict.input_probability, verdict.likely_causes)


def _decode_gaps(gaps: object) -> GapTotals:
    told = _GAPS.decode(gaps)
    if not told.count:
        return replace(told, p50_ns=None, p95_ns=None)
    if told.p50_ns is None or told.p95_ns is None:
        raise MalformedError("pauses of no length")
    return told
