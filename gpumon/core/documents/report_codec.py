"""A report as the ``gpumon.report/1`` document, and back. Numbers are not rounded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, TypeVar

from gpumon.core.clock import NS_PER_S, seconds
from gpumon.core.documents.board_codec import (
    decode_fill,
    decode_in_job,
    decode_troubles,
    encode_fill,
    encode_in_job,
    encode_troubles,
)
from gpumon.core.documents.field_codec import (
    KEPT,
    OURS,
    TOLD,
    FieldCodec,
    MalformedError,
    MissingFieldError,
    flag,
    in_order,
    items,
    mapping,
    row,
    shown,
    time_ns,
)
from gpumon.core.documents.moments import Moments, began_at
from gpumon.core.host.reasons import WaitReason
from gpumon.core.judge.imbalance import (
    JobImbalance,
    LowerClocks,
    MoreWork,
    OtherTenant,
    SlowCause,
    SlowerBoard,
    SlowGpu,
    UnseenWait,
    imbalances,
)
from gpumon.core.judge.input_texts import reason_sentence
from gpumon.core.judge.log_findings import log_findings
from gpumon.core.judge.run_pace import RunPace, RunPair
from gpumon.core.log.busy_lane import Lane
from gpumon.core.log.common_pauses import Together
from gpumon.core.phase import CAUSES, IdleCause
from gpumon.core.report.job_balance import JobBalance, balances
from gpumon.core.report.lanes import Lanes, ReportWithLanes, RunLane
from gpumon.core.report.report import (
    BESIDE_CAUSES,
    Advice,
    GpuReport,
    JobKey,
    LogFinding,
    MachineTime,
    Report,
    RunReport,
    Sampling,
    machine_time,
)
from gpumon.core.ring.silence import RunSilence
from gpumon.core.time.intervals import Interval
from gpumon.core.time.now_verdict import NowVerdict
from gpumon.core.time.rank_wait import RankWait
from gpumon.core.time.suspicion import Suspicion
from gpumon.core.time.totals import GapTotals, GpuTotals
from gpumon.core.verdict import Verdict, VerdictName
from gpumon.core.wording import label_text
from gpumon.errors import UsageError

REPORT_SCHEMA: Final = "gpumon.report/1"

_REPORT: Final = FieldCodec(
    Report,
    TOLD._replace(text=shown(2_000)),
    only=("source", "simulated", "replayed", "started_at", "observed_ns", "period_ns",
          "skipped_lines", "notes", "is_part"),
    names={"is_part": "part"},
)  # fmt: skip
_GPU: Final = FieldCodec(
    GpuReport,
    TOLD,
    without=(
        "totals",
        "verdict",
        "fill",
        "in_job",
        "told_troubles",
        "unsettled",
        "now",
        "waits_for",
    ),
)
_NAMES_OF_TOTALS: Final = {
    "idle_ns": "idle_by_cause",
    "input_wait_by_reason_ns": "input_wait_by_reason",
    "within_step_by_reason_ns": "within_step_by_reason",
    "hanging_idle_ns": "hanging_by_cause",
}
_TOTALS: Final = FieldCodec(
    GpuTotals,
    TOLD,
    without=("gaps", "pauses", "starved_intervals", "suspicion", "may_be_less_ns",
             "may_be_more_ns", "rank_wait_low_ns", "rank_wait_high_ns"),
    names=_NAMES_OF_TOTALS,
    later=("irregular_ns", "cycle_ns", "hidden_input_wait_ns", "first_input_wait_ns",
           "validation_input_wait_ns", "epoch_input_wait_ns", "low_ns", "high_ns",
           "merged_intervals", "episodes",
           "starved_now", "within_step_by_reason_ns", "hanging_ns", "hanging_idle_ns",
           "hanging_now"),
)  # fmt: skip
_OF_NOW: Final = FieldCodec(
    GpuTotals,
    TOLD,
    only=("observed_ns", "busy_ns", "in_use_ns", "in_use_busy_ns", "pending_ns", "suspected_ns",
          "first_input_wait_ns", "validation_input_wait_ns", "epoch_input_wait_ns", "low_ns",
          "high_ns", "cycle_ns",
          "irregular_ns", "idle_ns", "input_wait_by_reason_ns", "within_step_by_reason_ns",
          "hanging_ns", "hanging_idle_ns", "rank_wait_low_ns", "rank_wait_high_ns"),
    names=_NAMES_OF_TOTALS,
)  # fmt: skip
"""Of the totals of a GPU's last minutes in use."""
_VERDICT: Final = FieldCodec(
    Verdict,
    TOLD,
    names={"name": "verdict"},
    later=("main_cause", "lost_ratio", "input_probability", "likely_causes"),
)
_GAPS: Final = FieldCodec(
    GapTotals, TOLD, only=("count", "total_ns", "p50_ns", "p95_ns", "longest_ns"), later=()
)
_RUN: Final = FieldCodec(
    RunReport,
    TOLD,
    without=("suspended_since_ns", "silence"),
    names={"gpu_uuids": "gpus", "refused_uuids": "refused_gpus"},
)
_SILENCE: Final = FieldCodec(
    RunSilence,
    TOLD,
    without=("since_ns", "hanging_from_ns"),
    names={"is_first_batch": "first_batch"},
)
_WHY: Final = FieldCodec(WaitReason, TOLD)
_WAIT: Final = FieldCodec(RankWait, TOLD)
_ADVICE: Final = FieldCodec(Advice, OURS)
_FINDING: Final = FieldCodec(LogFinding, OURS, without=("remedy",))
_SAMPLING: Final = FieldCodec(Sampling, TOLD)
_MACHINE: Final = FieldCodec(MachineTime, TOLD, names={"out_of_use_ns": "not_in_use_seconds"})
_TOGETHER: Final = FieldCodec(Together, TOLD, without=("all_paused_ns", "idle_beside_peer_ns"))

_PACE: Final = FieldCodec(RunPace, TOLD)
_UNSEEN: Final = FieldCodec(UnseenWait, TOLD, without=("causes",), names={"uuid": "gpu"})
_SLOW_CAUSES: Final[Mapping[type[object], tuple[str, FieldCodec[Any]]]] = {
    kind: (reason, FieldCodec(kind, TOLD))
    for kind, reason in (
        (LowerClocks, "lower_clocks"),
        (OtherTenant, "other_tenant"),
        (MoreWork, "more_work"),
        (SlowerBoard, "slower_board"),
    )
}
"""What each cause is called, and how its figures are told."""
_LANE: Final = FieldCodec(Lane, KEPT)
_RUN_LANE: Final = FieldCodec(RunLane, KEPT._replace(text=TOLD.text))

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
    "idle_beside_peer_seconds", "held_memory", "in_job", "troubles",
)  # fmt: skip
_ENDS_A_RUN: Final = ("alive", "ended_before", "owner_uid", "refused_gpus", "world_size")


def encode_report(report: Report) -> dict[str, Any]:
    """The report as plain dictionaries, lists, numbers and text.

    Fields may be added to the schema, never removed. Times are seconds;
    intervals count from ``started_at``.
    """
    job_balances, moments = balances(report.runs), _moments(report)
    return {
        "schema": REPORT_SCHEMA,
        **_REPORT.encode(report),
        "gpus": [_encode_gpu(gpu, report) for gpu in report.gpus],
        "runs": [_encode_run(run, job_balances.get(run.job_key), moments) for run in report.runs],
        "advice": [_ADVICE.encode(advice) for advice in report.advice],
        "machine": _encode_machine(machine_time(report.gpus), report.together),
        "sampling": None if report.sampling is None else _SAMPLING.encode(report.sampling),
        "findings": [_FINDING.encode(finding) for finding in log_findings(report)],
        "imbalance": [
            _encode_imbalance(job, found)
            for job, found in imbalances(report.gpus, report.runs).items()
        ],
    }


def encode_said(report: Report) -> dict[str, Any]:
    """What a report says in words: its ``notes`` and its ``advice``, as in the whole document."""
    return {
        "notes": _REPORT.encode(report)["notes"],
        "advice": [_ADVICE.encode(advice) for advice in report.advice],
    }


def decode_report(document: object) -> Report:
    """The report that a document describes; its intervals count from 0.

    Raises:
        UsageError: It has another schema, or is damaged.
    """
    if not isinstance(document, Mapping):
        raise UsageError(f"not a report: a {REPORT_SCHEMA} document is one JSON object")
    schema = document.get("schema")
    if schema != REPORT_SCHEMA:
        raise UsageError(f"schema {schema!r} is not {REPORT_SCHEMA!r}")
    with _faults_told():
        return _decoded(document)


@contextmanager
def _faults_told() -> Iterator[None]:
    try:
        yield
    except (KeyError, MissingFieldError) as error:
        raise UsageError(f"not a whole {REPORT_SCHEMA} document: {error} is missing") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"not a valid {REPORT_SCHEMA} document: {error}") from error


def _decoded(document: Mapping[str, Any]) -> Report:
    sampling, gpus = document.get("sampling"), items(document["gpus"])
    moments = Moments(began_at(document["started_at"]))
    return _REPORT.decode(
        {"simulated": False, **document},
        origin_ns=0,
        gpus=tuple(_decode_gpu(mapping(gpu), moments) for gpu in gpus),
        runs=tuple(_decode_run(mapping(run), moments) for run in items(document["runs"])),
        advice=tuple(_decode_advice(advice) for advice in items(document["advice"])),
        together=_decode_together(document.get("machine"), gpus),
        sampling=None if sampling is None else _SAMPLING.decode(sampling),
    )


def _moments(report: Report) -> Moments:
    return Moments(began_at(report.started_at), report.origin_ns)


# -- one GPU -----------------------------------------------------------------------


def _encode_gpu(gpu: GpuReport, report: Report) -> dict[str, Any]:
    totals, verdict, origin_ns = gpu.totals, gpu.verdict, report.origin_ns
    told = {
        **_GPU.encode(gpu),
        **_TOTALS.encode(totals),
        **_VERDICT.encode(verdict),
        "label": gpu.label,
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
        "fill": encode_fill(gpu.fill),
        "in_job": encode_in_job(gpu.in_job),
        "now": None if gpu.now is None else _encode_now(gpu.now, _moments(report)),
        "troubles": encode_troubles(gpu.troubles, _moments(report)),
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


def _decode_gpu(gpu: Mapping[str, Any], moments: Moments) -> GpuReport:
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
        totals=totals,
        verdict=verdict,
        now=_decode_now(gpu.get("now"), moments),
        waits_for=waits_for,
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


# -- runs, advice, and all GPUs together -------------------------------------------


def _encode_run(run: RunReport, balance: JobBalance | None, moments: Moments) -> dict[str, Any]:
    """A run; ``balance`` is that of its job, where its GPUs could be compared."""
    told = {**_RUN.encode(run), "reasons": encode_reasons(run)}
    end = {name: told.pop(name) for name in _ENDS_A_RUN}
    # Of all GPUs of its job, since the ratios last changed; not read back, for they follow.
    levelled = {} if balance is None else balance.levelled_ratios or {}
    told["skew_ratio"] = None if balance is None else balance.skew_ratio
    told["levelled_ratios"] = {label_text(uuid): ratio for uuid, ratio in levelled.items()}
    return {**told, **end, **encode_standstill(run, moments)}


def encode_standstill(run: RunReport, moments: Moments) -> dict[str, Any]:
    """Since when a run cannot go on, or counts no step; ``None``: that is not so."""
    silence = None
    if run.silence is not None:
        silence = {
            "since": moments.encode(run.silence.since_ns),
            "hanging": run.silence.is_hanging,
            "hanging_since": moments.encode(run.silence.hanging_from_ns),
            **_SILENCE.encode(run.silence),
        }
    return {"suspended_since": moments.encode(run.suspended_since_ns), "silence": silence}


def _decode_run(run: Mapping[str, Any], moments: Moments) -> RunReport:
    told, silence = run.get("silence"), None
    if told is not None:
        since_ns = moments.decode(mapping(told)["since"])
        if since_ns is not None:
            silence = _SILENCE.decode(
                told,
                since_ns=since_ns,
                hanging_from_ns=moments.decode(mapping(told)["hanging_since"]),
            )
    suspended_since_ns = moments.decode(run.get("suspended_since"))
    return _RUN.decode(run, suspended_since_ns=suspended_since_ns, silence=silence)


def encode_reasons(run: RunReport) -> list[dict[str, Any]]:
    """Why a run waited, and what was seen of it in words; these are not read back."""
    return [{**_WHY.encode(why), "seen": reason_sentence(why)} for why in run.reasons]


def _encode_imbalance(job: JobKey, found: JobImbalance) -> dict[str, Any]:
    """Who waits for whom in one job, and why; not read back, for it follows."""
    return {
        "job": label_text(job[0]),
        "owner_uid": job[1],
        "runs": [label_text(run) for run in found.runs],
        "waiting": [
            {"gpu": label_text(uuid), "seconds": seconds(waited_ns)}
            for uuid, waited_ns in found.waits_ns.items()
        ],
        "slow": [_encode_slow(slow, found) for slow in found.slow],
        "unseen": None
        if found.unseen is None
        else [
            {**_UNSEEN.encode(wait), "causes": _encode_causes(wait.causes)} for wait in found.unseen
        ],
        "missing_ranks": found.missing_ranks,
    }


def _encode_slow(slow: SlowGpu, found: JobImbalance) -> dict[str, Any]:
    return {
        "gpu": label_text(slow.uuid),
        "held_against": label_text(found.peer),
        "times": slow.times,
        "causes": _encode_causes(slow.causes),
    }


def _encode_causes(causes: Sequence[SlowCause]) -> list[dict[str, Any]]:
    told = [(*_SLOW_CAUSES[type(cause)], cause) for cause in causes]
    return [{"reason": reason, **codec.encode(cause)} for reason, codec, cause in told]


def _decode_advice(document: object) -> Advice:
    advice = _ADVICE.decode(document)
    if advice.cause not in BESIDE_CAUSES:
        IdleCause(advice.cause)
    return replace(advice, gpus=tuple(map(label_text, advice.gpus)))


def _encode_machine(machine: MachineTime, joined: Together | None) -> dict[str, Any]:
    """GPU-time over all GPUs, and what they did at the same time (``None``: nobody looked)."""
    return {
        **_MACHINE.encode(machine),
        "busy_ratio": machine.share(machine.busy_ns),
        "lost_ratio": machine.share(machine.lost_ns),
        "not_in_use_ratio": machine.share(machine.out_of_use_ns),
        "all_paused_seconds": None if joined is None else seconds(joined.all_paused_ns),
        "together": None if joined is None else _TOGETHER.encode(joined),
    }


def _decode_together(machine: object, gpus: Sequence[Any]) -> Together | None:
    """What GPUs did at the same time; ``None`` where an older document does not say."""
    if not isinstance(machine, Mapping) or machine.get("together") is None:
        return None
    joined = _TOGETHER.decode(
        machine["together"],
        all_paused_ns=time_ns(machine["all_paused_seconds"]),
        idle_beside_peer_ns=tuple(
            time_ns(gpu.get("idle_beside_peer_seconds") or 0) for gpu in gpus
        ),
    )
    return replace(joined, in_use=tuple(at for at in joined.in_use if at < len(gpus)))


# -- what happened when ------------------------------------------------------------


def encode_report_with_lanes(told: ReportWithLanes) -> dict[str, Any]:
    """The report's document with one field more: its lanes, in nanoseconds from ``started_at``."""
    report, lanes = told
    return {**encode_report(report), "lanes": lanes and _encode_lanes(lanes, report.origin_ns)}


def decode_report_with_lanes(document: object) -> ReportWithLanes:
    """The report of a document, and its lanes if they are in it.

    Raises:
        UsageError: As ``decode_report``.
    """
    report = decode_report(document)
    with _faults_told():
        lanes = mapping(document).get("lanes")
        return ReportWithLanes(report, None if lanes is None else _decode_lanes(lanes, report))


def _encode_lanes(lanes: Lanes, origin_ns: int) -> dict[str, Any]:
    return {
        "gpus": [_LANE.encode(_moved(lane, -origin_ns)) for lane in lanes.gpus],
        "runs": [_RUN_LANE.encode(_moved(lane, -origin_ns)) for lane in lanes.runs],
    }


def _decode_lanes(document: object, report: Report) -> Lanes:
    told = mapping(document)
    gpus = tuple(_LANE.decode(lane) for lane in items(told["gpus"]))
    runs = tuple(_RUN_LANE.decode(lane) for lane in items(told["runs"]))
    if len(gpus) != len(report.gpus):
        raise MalformedError("not a lane for each GPU")
    for gpu in gpus:
        _check_cells(gpu, gpu.observed_ns, gpu.busy_ns, gpu.active_ns)
    for run in runs:
        _check_cells(run, *run.phase_ns.values(), *run.reason_ns.values())
    return Lanes(gpus, runs)


def _check_cells(lane: Lane | RunLane, *cells: tuple[int, ...]) -> None:
    """Whether the cells are as many as cover the time from the lane's start to its end."""
    if not lane.cell_ns:
        raise MalformedError("cells of no width")
    count = -(-(lane.end_ns - lane.start_ns) // lane.cell_ns)
    if any(len(one) != count for one in cells):
        raise MalformedError("a lane of more cells than its time, or of fewer")


_AnyLane = TypeVar("_AnyLane", Lane, RunLane)


def _moved(lane: _AnyLane, by_ns: int) -> _AnyLane:
    return replace(lane, start_ns=lane.start_ns + by_ns, end_ns=lane.end_ns + by_ns)


# -- one training of two reports ---------------------------------------------------


def encode_pair(before: RunPace | None, after: RunPace | None) -> dict[str, Any]:
    """A training of a comparison; ``None``: that report has it not."""
    pair = None if before is None or after is None else RunPair(before=before, after=after)
    one = after or before
    return {
        "run": "" if one is None else label_text(one.run),
        "before": None if before is None else _encode_pace(before),
        "after": None if after is None else _encode_pace(after),
        "speedup": None if pair is None else pair.speedup,
    }


def _encode_pace(pace: RunPace) -> dict[str, Any]:
    told, step_ns = _PACE.encode(pace), pace.step_wall_ns
    step_seconds = told.pop("step_seconds")
    told["wall_seconds_per_step"] = None if step_ns is None else step_ns / NS_PER_S
    return {**told, "step_seconds": step_seconds, "samples_per_second": pace.samples_per_second}
