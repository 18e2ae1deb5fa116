"""One GPU of a ``gpumon.report/1`` document, and the parts of it that the state has too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from gpumon.core.accounting.intervals import Interval
from gpumon.core.accounting.rank_wait import RankWait
from gpumon.core.accounting.suspicion import Suspicion
from gpumon.core.accounting.totals import GapTotals, GpuTotals, NowVerdict
from gpumon.core.clock import seconds
from gpumon.core.codecs.field_codec import (
    PUBLIC,
    FieldCodec,
    MalformedError,
    WallClock,
    flag,
    in_order,
    items,
    mapping,
    number,
    row,
    shown,
    time_ns,
)
from gpumon.core.codecs.stack_codec import ANYBODY, Viewer, decode_finding, encode_finding
from gpumon.core.device.idle_holder import HeldGpu
from gpumon.core.device.job_measurements import InJob, ProcessOnGpu
from gpumon.core.device.sm_utilisation import (
    NO_FILL,
    Evidence,
    GpuFill,
    Mean,
    are_clocks_reduced,
    is_under_filled,
    known_ratio,
)
from gpumon.core.device.troubles import Trouble, error_of
from gpumon.core.log_summary.held_memory import HeldMemory
from gpumon.core.phase import CAUSES, IdleCause
from gpumon.core.report.report import GpuReport
from gpumon.core.verdict import Verdict, VerdictName

_GPU: Final = FieldCodec(
    GpuReport,
    PUBLIC,
    "index uuid name mig_enabled? parent_uuid? mig_index? listed? idle_beside_peer_seconds?"
    " idle_after_use_seconds? held_memory?",
    {HeldMemory: "idle_seconds longest_seconds peak_bytes"},
)
_TOTALS: Final = FieldCodec(
    GpuTotals,
    PUBLIC,
    "observed_seconds busy_seconds idle_by_cause=idle_ns pending_seconds in_use_seconds"
    " in_use_busy_seconds suspected_seconds resolved_seconds inferred_seconds"
    " input_wait_by_reason=input_wait_by_reason_ns hidden_input_wait_seconds? low_seconds?"
    " high_seconds? merged_intervals? episodes? starved_now? irregular_seconds? cycle_seconds?"
    " first_input_wait_seconds? validation_input_wait_seconds?"
    " within_step_by_reason=within_step_by_reason_ns? hanging_seconds?"
    " hanging_by_cause=hanging_idle_ns? hanging_now? epoch_input_wait_seconds? low_levels?"
    " samples? sample_distance_seconds? unusable_samples? seen_by_cause=seen_ns? seen_samples?"
    " sampled_pauses? seen_input_pauses?",
)
_NOW_TOTALS: Final = FieldCodec(
    GpuTotals,
    PUBLIC,
    "observed_seconds? busy_seconds? in_use_seconds? in_use_busy_seconds? pending_seconds?"
    " suspected_seconds? first_input_wait_seconds? validation_input_wait_seconds?"
    " epoch_input_wait_seconds? low_seconds? high_seconds? cycle_seconds? irregular_seconds?"
    " idle_by_cause=idle_ns? input_wait_by_reason=input_wait_by_reason_ns?"
    " within_step_by_reason=within_step_by_reason_ns? hanging_seconds?"
    " hanging_by_cause=hanging_idle_ns? rank_wait_low_seconds? rank_wait_high_seconds?"
    " seen_by_cause=seen_ns? seen_samples? sampled_pauses? seen_input_pauses?",
)
_VERDICT: Final = FieldCodec(
    Verdict,
    PUBLIC,
    "verdict=name severity pattern main_cause? lost_ratio? starved_ratio coverage_ratio"
    " input_probability? likely_causes?",
)
_GAPS: Final = FieldCodec(
    GapTotals, PUBLIC, "count total_seconds p50_seconds p95_seconds longest_seconds"
)
_WAIT: Final = FieldCodec(RankWait, PUBLIC, "run rank cause")
_ERROR: Final = shown(600)
_TROUBLE: Final = FieldCodec(
    Trouble,
    PUBLIC._replace(text=_ERROR),
    "kind severity code reason count=times seconds=duration_ns last_seen_at@last_ns line?"
    " began_at@began_ns ended_at@ended_ns text advice",
)
_IN_JOB: Final = FieldCodec(
    InJob,
    PUBLIC,
    "jobs begun listed_seconds? tenants?",
    {ProcessOnGpu: "pid uid present_seconds computing_known_seconds computing_seconds"},
)
_HELD: Final = FieldCodec(
    HeldGpu, PUBLIC, "pid user command memory_bytes processes=process_count? since@since_ns"
)
_ORDER: Final = (
    "index label uuid name error observed_seconds busy_seconds idle_seconds pending_seconds"
    " in_use_seconds in_use_busy_seconds busy_ratio coverage_ratio pattern verdict severity"
    " main_cause lost_ratio starved_seconds first_input_wait_seconds"
    " validation_input_wait_seconds epoch_input_wait_seconds suspected_seconds"
    " irregular_seconds cycle_seconds starved_ratio input_probability likely_causes starved_now"
    " episodes resolved_seconds inferred_seconds hidden_input_wait_seconds low_seconds"
    " high_seconds gaps pauses starved_intervals merged_intervals idle_by_cause"
    " idle_bounds_by_cause input_wait_by_reason within_step_by_reason waits_for hanging_seconds"
    " hanging_by_cause hanging_now seen_seconds seen_by_cause seen_samples sampled_pauses"
    " seen_input_pauses stacks now fill mig_enabled parent_uuid mig_index listed"
    " idle_beside_peer_seconds idle_after_use_seconds held_memory held in_job low_levels samples"
    " sample_distance_seconds unusable_samples troubles"
)


def encode_gpu(gpu: GpuReport, clock: WallClock, viewer: Viewer = ANYBODY) -> dict[str, Any]:
    """One GPU of a report. Its intervals count from the clock's origin."""
    totals, verdict, origin_ns = gpu.totals, gpu.verdict, clock.origin_ns
    document = {
        **_GPU.encode(gpu),
        **_TOTALS.encode(totals),
        **_VERDICT.encode(verdict),
        "label": gpu.label,
        "error": None if gpu.error is None else _ERROR.write(error_of(gpu.troubles)),
        "idle_seconds": seconds(totals.idle_total_ns),
        "starved_seconds": seconds(totals.starved_ns),
        "seen_seconds": seconds(sum(totals.seen_ns.values())),
        # The schema promises numbers for these ratios, also where nothing was observed.
        "busy_ratio": totals.busy_ns / totals.observed_ns if totals.observed_ns else 0.0,
        "lost_ratio": verdict.lost_ratio or 0.0,
        "starved_ratio": verdict.starved_ratio or 0.0,
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
        "held": encode_held(gpu.held, clock),
        "fill": encode_fill(gpu.fill),
        "stacks": encode_finding(gpu.stacks, viewer),
        "in_job": _encode_in_job(gpu.in_job),
        "now": None if gpu.now is None else _encode_now(gpu.now, clock),
        "troubles": encode_troubles(gpu.troubles, clock),
    }
    return in_order(document, _ORDER)


def decode_gpu(gpu: Mapping[str, Any], clock: WallClock) -> GpuReport:
    """The GPU of a document; its intervals count from 0.

    Raises:
        MalformedError: It contradicts itself.
        KeyError: It lacks a field; so does ``MissingFieldError``.
        ValueError: A value is out of range.
    """
    waits_for, low_ns, high_ns = _decode_wait(gpu.get("waits_for"))
    totals = _TOTALS.decode(
        gpu,
        gaps=_decode_gaps(gpu["gaps"]),
        pauses=_decode_gaps(gpu.get("pauses", gpu["gaps"])),
        starved_intervals=tuple(
            Interval(*map(time_ns, row(span, 2))) for span in items(gpu["starved_intervals"])
        ),
        rank_wait_low_ns=low_ns,
        rank_wait_high_ns=high_ns,
    )
    verdict = _decode_verdict(gpu, totals)
    troubles = tuple(_TROUBLE.decode(one, clock) for one in items(gpu.get("troubles", [])))
    return _GPU.decode(
        gpu,
        error=None if gpu.get("error") is None else _ERROR.read(gpu["error"]),
        totals=_with_causes(totals, gpu)._replace(suspicion=_suspicion_of(verdict)),
        verdict=verdict,
        now=_decode_now(gpu.get("now"), clock),
        waits_for=waits_for,
        held=_decode_held(gpu.get("held"), clock),
        fill=_decode_fill(gpu.get("fill")),
        stacks=decode_finding(gpu.get("stacks")),
        in_job=_decode_in_job(gpu.get("in_job")),
        # The fill implies the troubles that have a duration.
        reported_troubles=tuple(trouble for trouble in troubles if trouble.duration_ns is None),
    )


# -- its time and its verdicts ---------------------------------------------------------


def _encode_now(now: NowVerdict, clock: WallClock) -> dict[str, Any]:
    return {
        **_VERDICT.encode(now.verdict),
        "verdict": now.name.value,
        "since": clock.encode(now.since_ns),
        "window_seconds": seconds(now.window_ns),
        "job_ended": clock.encode(now.ended_ns),
        "suspended": now.is_suspended,
        "verdict_before": None if now.before is None else now.before.value,
        "verdict_of_window": now.verdict.name.value,
        **_NOW_TOTALS.encode(now.totals),
        "idle_bounds_by_cause": _encode_bounds(now.totals),
        "pauses": _encode_gaps(now.totals.pauses),
    }


def _decode_now(document: object, clock: WallClock) -> NowVerdict | None:
    if document is None:
        return None
    fields: Mapping[str, Any] = mapping(document)
    totals = _NOW_TOTALS.decode(fields, pauses=_decode_gaps(fields["pauses"]))
    verdict = _VERDICT.decode({**fields, "verdict": fields["verdict_of_window"]})
    since_ns, before = clock.decode(fields["since"]), fields.get("verdict_before")
    if since_ns is None:
        return None
    return NowVerdict(
        VerdictName(fields["verdict"]),
        since_ns,
        _with_causes(totals, fields)._replace(suspicion=_suspicion_of(verdict)),
        verdict,
        clock.decode(fields.get("job_ended")),
        is_suspended=flag(fields.get("suspended", False)),
        before=None if before is None else VerdictName(before),
    )


def _encode_wait(gpu: GpuReport) -> dict[str, Any] | None:
    """The rank that the GPU last waited for, and how long it waited for ranks while busy."""
    if gpu.waits_for is None:
        return None
    return {
        **_WAIT.encode(gpu.waits_for),
        "low_seconds": seconds(gpu.totals.rank_wait_low_ns),
        "high_seconds": seconds(gpu.totals.rank_wait_high_ns),
    }


def _decode_wait(document: object) -> tuple[RankWait | None, int, int]:
    if document is None:
        return None, 0, 0
    fields = mapping(document)
    low_ns, high_ns = time_ns(fields["low_seconds"]), time_ns(fields["high_seconds"])
    if not 0 <= low_ns <= high_ns:
        raise MalformedError("waits_for: bounds in the wrong order")
    return _WAIT.decode(fields), low_ns, high_ns


def _encode_bounds(totals: GpuTotals) -> dict[str, list[float]]:
    """The least and the most idle time of each cause."""
    return {cause.value: [*map(seconds, totals.bounds_ns(cause))] for cause in CAUSES}


def _with_causes(totals: GpuTotals, fields: Mapping[str, Any]) -> GpuTotals:
    """Drop causes that lost nothing, and add the bounds of the others.

    An older version wrote no bounds: then each cause has exactly its share.
    """
    idle_ns = {cause: ns for cause, ns in totals.idle_ns.items() if ns}
    less_ns, more_ns = {}, {}
    for name, bounds in mapping(fields.get("idle_bounds_by_cause", {})).items():
        cause = IdleCause(name)
        low_ns, high_ns = map(time_ns, row(bounds, 2))
        best_ns = idle_ns.get(cause, 0)
        if not low_ns <= best_ns <= high_ns:
            raise MalformedError(f"bounds of {name} exclude its idle time")
        less_ns[cause], more_ns[cause] = best_ns - low_ns, high_ns - best_ns
    return totals._replace(
        idle_ns=idle_ns,
        may_be_less_ns={cause: ns for cause, ns in less_ns.items() if ns},
        may_be_more_ns={cause: ns for cause, ns in more_ns.items() if ns},
    )


def _coverage(gpu: GpuReport) -> float:
    """0 for a GPU without utilisation data."""
    if gpu.verdict.coverage_ratio is not None:
        return gpu.verdict.coverage_ratio
    return 1.0 if gpu.is_diagnosable else 0.0


def _decode_verdict(gpu: Mapping[str, Any], totals: GpuTotals) -> Verdict:
    verdict, in_use_ns = _VERDICT.decode(gpu), totals.in_use_ns
    if verdict.name.is_conclusive and totals.diagnosed.in_use_ns <= 0:
        raise MalformedError("a verdict without time in use")
    if not in_use_ns:
        return verdict._replace(lost_ratio=None, starved_ratio=None, coverage_ratio=None)
    if None in (verdict.starved_ratio, verdict.coverage_ratio, gpu.get("lost_ratio", 0.0)):
        raise MalformedError("time in use without its ratios")
    if "lost_ratio" not in gpu:  # as older versions wrote
        return verdict._replace(lost_ratio=totals.lost_ns / in_use_ns)
    return verdict


def _suspicion_of(verdict: Verdict) -> Suspicion | None:
    if verdict.input_probability is None or verdict.likely_causes is None:
        return None
    return Suspicion(verdict.input_probability, verdict.likely_causes)


def _encode_gaps(gaps: GapTotals) -> dict[str, Any]:
    document = _GAPS.encode(gaps)
    for name in ("p50_seconds", "p95_seconds"):
        document[name] = document[name] or 0.0
    return document


def _decode_gaps(document: object) -> GapTotals:
    gaps = _GAPS.decode(document)
    if not gaps.count:
        return replace(gaps, p50_ns=None, p95_ns=None)
    if gaps.p50_ns is None or gaps.p95_ns is None:
        raise MalformedError("pauses without a length")
    return gaps


# -- its board -------------------------------------------------------------------------


def encode_troubles(troubles: Sequence[Trouble], clock: WallClock) -> list[dict[str, Any]]:
    """The troubles, in their order."""
    return [_TROUBLE.encode(trouble, clock) for trouble in troubles]


def encode_held(held: HeldGpu | None, clock: WallClock) -> dict[str, Any] | None:
    """Who holds a GPU without using it, and since when."""
    return None if held is None else _HELD.encode(held, clock)


def _decode_held(document: object, clock: WallClock) -> HeldGpu | None:
    """``None`` also where the time since when is unknown."""
    if document is None or clock.decode(mapping(document).get("since")) is None:
        return None
    held = _HELD.decode(document, clock)
    if held.pid < 1 or held.process_count < 1:
        raise MalformedError("held by no process")
    return held


def _encode_in_job(in_job: InJob | None) -> dict[str, Any] | None:
    return None if in_job is None else {**_IN_JOB.encode(in_job), "fill": encode_fill(in_job.fill)}


def _decode_in_job(document: object) -> InJob | None:
    if document is None:
        return None
    fields = mapping(document)
    return _IN_JOB.decode(fields, fill=_decode_fill(fields.get("fill")))


def encode_fill(fill: GpuFill | None) -> dict[str, Any]:
    """How much of a GPU works while it is busy: ratios over busy time; ``None``: unknown.

    ``observed_seconds`` is the busy time that the evidence covers, ``power_seconds`` that of power
    at full clock, ``drawn_seconds`` that of power at any clock.
    """
    fill = NO_FILL if fill is None else fill
    evidence = fill.evidence
    return {
        "evidence": None if evidence is None else evidence.value,
        "observed_seconds": seconds(fill.observed_ns),
        "sm_active_ratio": fill.sm_active.ratio,
        "sm_occupancy_ratio": fill.sm_occupancy.ratio,
        "tensor_active_ratio": fill.tensor_active.ratio,
        "memory_bandwidth_ratio": fill.memory_bandwidth.ratio,
        "power_ratio": fill.power_ratio,
        "power_watts": fill.power_watts,
        "power_limit_watts": fill.power_limit_watts,
        "power_seconds": seconds(fill.power_ns),
        "drawn_watts": fill.drawn_watts,
        "drawn_seconds": seconds(fill.drawn_ns),
        "sm_clock_ratio": fill.sm_clock.ratio,
        "held_ratio": fill.throttled_ratio,
        "held_known_seconds": seconds(fill.throttle_known_ns),
        "held_seconds_by_reason": {name: seconds(ns) for name, ns in fill.throttled_by_ns.items()},
        "under_filled": is_under_filled(fill),
        "held_down": are_clocks_reduced(fill),
    }


def _decode_fill(document: object) -> GpuFill | None:
    """The sums behind the ratios. Every activity ratio is assumed to cover ``observed_seconds``."""
    if not document:
        return None
    fields = mapping(document)

    def time_of(name: str) -> int:
        value = fields.get(name)
        return 0 if value is None else time_ns(value)

    def number_of(name: str) -> float | None:
        value = fields.get(name)
        return None if value is None else number(value)

    def mean(name: str, known_ns: int) -> Mean:
        ratio = known_ratio(number_of(name))
        return Mean() if ratio is None or not known_ns else Mean(known_ns, round(ratio * known_ns))

    def energy(name: str, duration_ns: int) -> int:
        return round(1000 * (number_of(name) or 0.0)) * duration_ns

    power_ns, drawn_ns = time_of("power_seconds"), time_of("drawn_seconds")
    throttle_known_ns = time_of("held_known_seconds")
    activity_ns = time_of("observed_seconds") if fields["evidence"] == Evidence.GPM else 0
    fill = GpuFill(
        sm_active=mean("sm_active_ratio", activity_ns),
        sm_occupancy=mean("sm_occupancy_ratio", activity_ns),
        tensor_active=mean("tensor_active_ratio", activity_ns),
        memory_bandwidth=mean("memory_bandwidth_ratio", activity_ns),
        power_ns=power_ns,
        power_mw_ns=energy("power_watts", power_ns),
        power_limit_mw_ns=energy("power_limit_watts", power_ns),
        drawn_ns=drawn_ns,
        drawn_mw_ns=energy("drawn_watts", drawn_ns),
        # The document does not say what the clock's mean covers: any time gives the same mean.
        sm_clock=mean("sm_clock_ratio", max(activity_ns, drawn_ns, power_ns, throttle_known_ns)),
        throttle_known_ns=throttle_known_ns,
        throttled_ns=round((number_of("held_ratio") or 0.0) * throttle_known_ns),
        throttled_by_ns={
            name: time_ns(value)
            for name, value in mapping(fields.get("held_seconds_by_reason") or {}).items()
        },
    )
    return None if fill._replace(throttled_by_ns=NO_FILL.throttled_by_ns) == NO_FILL else fill
