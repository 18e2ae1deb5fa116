"""A report as the ``gpumon.report/1`` document, and back. Numbers are not rounded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, TypeVar

from gpumon.core.clock import NS_PER_S, seconds
from gpumon.core.codecs.field_codec import (
    KEPT,
    OWN_SENTENCES,
    PUBLIC,
    FieldCodec,
    MalformedError,
    MissingFieldError,
    WallClock,
    in_order,
    items,
    mapping,
    shown,
    time_ns,
)
from gpumon.core.codecs.gpu_codec import decode_gpu, encode_gpu
from gpumon.core.codecs.stack_codec import ANYBODY, Viewer
from gpumon.core.diagnosis.imbalance import (
    JobImbalance,
    LowerClocks,
    MoreWork,
    OtherTenant,
    SlowCause,
    SlowerBoard,
    imbalances,
)
from gpumon.core.diagnosis.input_advice import reason_seen
from gpumon.core.diagnosis.log_findings import log_findings
from gpumon.core.diagnosis.report_differences import RunPace, RunPair
from gpumon.core.log_summary.busy_lane import Lane
from gpumon.core.log_summary.common_pauses import Together
from gpumon.core.phase import IdleCause
from gpumon.core.report.job_balance import JobBalance, balances
from gpumon.core.report.lanes import Lanes, ReportWithLanes, RunLane
from gpumon.core.report.report import (
    BESIDE_CAUSES,
    Advice,
    JobKey,
    LogFinding,
    MachineTime,
    Report,
    RunReport,
    Sampling,
    machine_time,
)
from gpumon.core.ring_format.silence import RunSilence
from gpumon.core.waits.reasons import WaitFigures, WaitReason
from gpumon.core.wording import label_text
from gpumon.errors import UsageError

REPORT_SCHEMA: Final = "gpumon.report/1"

_REPORT: Final = FieldCodec(
    Report,
    PUBLIC._replace(text=shown(2_000)),
    "source simulated replayed? started_at observed_seconds period_seconds skipped_lines notes?"
    " part=is_part? source_error? lost_elsewhere?",
)
_FIGURES: Final = (
    "tasks wanted_cores given_cores usable_cores read_bytes_per_second"
    " major_faults_per_second disk_busy_ratio received_bytes_per_second memory_stalled_ratio"
    " throttled_ratio locked_ratio"
)
_WAIT_REASON: Final = "cause reason waited_seconds confidence place short_of also figures"
_RUN: Final = FieldCodec(
    RunReport,
    PUBLIC,
    "run job rank pid framework steps samples? gpus=gpu_uuids wall_seconds phase_seconds loader?"
    " callback_seconds? step_seconds? first_input_wait_seconds? shares? ratio_changes?"
    " step_busy_ratios? alive? ended_before? owner_uid? refused_gpus=refused_uuids? reasons?"
    " world_size? on_cpu?",
    {WaitReason: _WAIT_REASON, WaitFigures: _FIGURES},
)
_STANDSTILL: Final = FieldCodec(RunReport, PUBLIC, "suspended_since@suspended_since_ns")
_SILENCE: Final = FieldCodec(
    RunSilence,
    PUBLIC,
    "since@since_ns hanging_since@hanging_from_ns phase silent_seconds first_batch=is_first_batch?"
    " sleeps_in?",
)
_WHY: Final = FieldCodec(WaitReason, PUBLIC, _WAIT_REASON, {WaitFigures: _FIGURES})
_ADVICE: Final = FieldCodec(
    Advice,
    OWN_SENTENCES,
    "cause lost_seconds speedup_upper_bound evidence text gpus? reason? may_be_more?",
)
_FINDING: Final = FieldCodec(LogFinding, OWN_SENTENCES, "rule gpus text")
_SAMPLING: Final = FieldCodec(
    Sampling, PUBLIC, "period_seconds shortest_visible_pause_seconds is_coarse"
)
_MACHINE: Final = FieldCodec(
    MachineTime,
    PUBLIC,
    "gpus observed_seconds busy_seconds lost_seconds not_in_use_seconds=out_of_use_ns"
    " pending_seconds",
)
_TOGETHER: Final = FieldCodec(
    Together,
    PUBLIC,
    "in_use_seconds all_pauses in_use_gpu_seconds paused_gpu_seconds by_chance_seconds in_use",
)

_PACE: Final = FieldCodec(RunPace, PUBLIC, "run steps samples? wall_seconds step_seconds?")
_SLOW_CAUSES: Final[Mapping[type[object], tuple[str, FieldCodec[Any]]]] = {
    kind: (reason, FieldCodec(kind, PUBLIC, names))
    for kind, reason, names in (
        (LowerClocks, "lower_clocks", "times clock_ratio peer_clock_ratio held_ratio held_by"),
        (OtherTenant, "other_tenant", "times pids uids computing_ratio present_ratio"),
        (MoreWork, "more_work", "times share peer_share"),
        (SlowerBoard, "slower_board", "times name peer_name"),
    )
}
_LANE: Final = FieldCodec(Lane, KEPT, "start_ns? end_ns? cell_ns? observed_ns? busy_ns? active_ns?")
_RUN_LANE: Final = FieldCodec(
    RunLane,
    KEPT._replace(text=PUBLIC.text),
    "run pid start_ns end_ns cell_ns phase_ns reason_ns?",
)

_RUN_ORDER: Final = (
    "run job rank pid framework steps samples gpus wall_seconds phase_seconds loader"
    " callback_seconds step_seconds first_input_wait_seconds shares ratio_changes"
    " step_busy_ratios reasons skew_ratio levelled_ratios"
)


def encode_report(report: Report, viewer: Viewer = ANYBODY) -> dict[str, Any]:
    """The report as dictionaries, lists, numbers and text, as the viewer may see it.

    Fields may be added to the schema, never removed. Times are seconds;
    intervals count from ``started_at``.
    """
    clock = WallClock.starting_at(report.started_at, report.origin_ns)
    job_balances = balances(report.runs)
    return {
        "schema": REPORT_SCHEMA,
        **_REPORT.encode(report),
        "gpus": [encode_gpu(gpu, clock, viewer) for gpu in report.gpus],
        "runs": [_encode_run(run, job_balances.get(run.job_key), clock) for run in report.runs],
        "advice": _encode_advice(report),
        "machine": _encode_machine(machine_time(report.gpus), report.together),
        "sampling": None if report.sampling is None else _SAMPLING.encode(report.sampling),
        "findings": [_FINDING.encode(finding) for finding in log_findings(report)],
        "imbalance": [
            _encode_imbalance(job, found)
            for job, found in imbalances(report.gpus, report.runs).items()
        ],
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
    with _as_usage_errors():
        return _decoded(document)


@contextmanager
def _as_usage_errors() -> Iterator[None]:
    try:
        yield
    except (KeyError, MissingFieldError) as error:
        raise UsageError(f"not a whole {REPORT_SCHEMA} document: {error} is missing") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"not a valid {REPORT_SCHEMA} document: {error}") from error


def _decoded(document: Mapping[str, Any]) -> Report:
    sampling, gpus = document.get("sampling"), items(document["gpus"])
    clock = WallClock.starting_at(document["started_at"])
    return _REPORT.decode(
        {"simulated": False, **document},
        origin_ns=0,
        gpus=tuple(decode_gpu(mapping(gpu), clock) for gpu in gpus),
        runs=tuple(_decode_run(mapping(run), clock) for run in items(document["runs"])),
        advice=tuple(_decode_advice(advice) for advice in items(document["advice"])),
        together=_decode_together(document.get("machine"), gpus),
        sampling=None if sampling is None else _SAMPLING.decode(sampling),
    )


# -- runs, advice, and all GPUs together -------------------------------------------


def _encode_run(run: RunReport, balance: JobBalance | None, clock: WallClock) -> dict[str, Any]:
    # The reader computes skew and ratios itself, from all runs of the job.
    levelled = {} if balance is None else balance.balanced_ratios or {}
    document = {
        **_RUN.encode(run),
        "reasons": encode_reasons(run),
        "skew_ratio": None if balance is None else balance.skew_ratio,
        "levelled_ratios": {label_text(uuid): ratio for uuid, ratio in levelled.items()},
        **encode_standstill(run, clock),
    }
    return in_order(document, _RUN_ORDER)


def encode_standstill(run: RunReport, clock: WallClock) -> dict[str, Any]:
    """Since when a run is suspended, or has counted no step; ``None``: it is not, or has."""
    silence = run.silence
    return {
        **_STANDSTILL.encode(run, clock),
        "silence": None
        if silence is None
        else in_order(
            {**_SILENCE.encode(silence, clock), "hanging": silence.is_hanging}, "since hanging"
        ),
    }


def _decode_run(run: Mapping[str, Any], clock: WallClock) -> RunReport:
    silence = run.get("silence")
    is_timed = silence is not None and clock.decode(mapping(silence)["since"]) is not None
    return _RUN.decode(
        run,
        suspended_since_ns=clock.decode(run.get("suspended_since")),
        silence=_SILENCE.decode(silence, clock) if is_timed else None,
    )


def encode_reasons(run: RunReport) -> list[dict[str, Any]]:
    """Why a run waited, and ``seen``: the same as a sentence, which is not read back."""
    return [{**_WHY.encode(why), "seen": reason_seen(why)} for why in run.reasons]


def _encode_imbalance(job: JobKey, found: JobImbalance) -> dict[str, Any]:
    """Who waits for whom in one job, and why; not read back, because the runs imply it."""
    return {
        "job": label_text(job[0]),
        "owner_uid": job[1],
        "runs": [label_text(run) for run in found.runs],
        "waiting": [
            {"gpu": label_text(uuid), "seconds": seconds(waited_ns)}
            for uuid, waited_ns in found.waits_ns.items()
        ],
        "slow": [
            {
                "gpu": label_text(slow.uuid),
                "held_against": label_text(found.peer),
                "times": slow.times,
                "causes": _encode_causes(slow.causes),
            }
            for slow in found.slow
        ],
        "unseen": None if found.may_wait_unseen else [],
        "missing_ranks": found.missing_ranks,
    }


def _encode_causes(causes: Sequence[SlowCause]) -> list[dict[str, Any]]:
    found = [(*_SLOW_CAUSES[type(cause)], cause) for cause in causes]
    return [{"reason": reason, **codec.encode(cause)} for reason, codec, cause in found]


def _encode_advice(report: Report) -> list[dict[str, Any]]:
    return [_ADVICE.encode(advice) for advice in report.advice]


def _decode_advice(document: object) -> Advice:
    advice = _ADVICE.decode(document)
    if advice.cause not in BESIDE_CAUSES:
        IdleCause(advice.cause)
    return replace(advice, gpus=tuple(map(label_text, advice.gpus)))


def _encode_machine(machine: MachineTime, joined: Together | None) -> dict[str, Any]:
    """GPU-time over all GPUs, and what they did at the same time (``None``: unknown)."""
    return {
        **_MACHINE.encode(machine),
        "busy_ratio": machine.share(machine.busy_ns),
        "lost_ratio": machine.share(machine.lost_ns),
        "not_in_use_ratio": machine.share(machine.out_of_use_ns),
        "all_paused_seconds": None if joined is None else seconds(joined.all_paused_ns),
        "together": None if joined is None else _TOGETHER.encode(joined),
    }


def _decode_together(machine: object, gpus: Sequence[Any]) -> Together | None:
    """``None`` where an older document lacks it."""
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


# -- lanes -------------------------------------------------------------------------


def encode_report_with_lanes(pair: ReportWithLanes, viewer: Viewer = ANYBODY) -> dict[str, Any]:
    """The report's document and its ``lanes``, in nanoseconds from ``started_at``."""
    report, lanes = pair
    document = encode_report(report, viewer)
    return {**document, "lanes": lanes and _encode_lanes(lanes, report.origin_ns)}


def decode_report_with_lanes(document: object) -> ReportWithLanes:
    """The report of a document, and its lanes if it has them.

    Raises:
        UsageError: As ``decode_report``.
    """
    report = decode_report(document)
    with _as_usage_errors():
        lanes = mapping(document).get("lanes")
        return ReportWithLanes(report, None if lanes is None else _decode_lanes(lanes, report))


def _encode_lanes(lanes: Lanes, origin_ns: int) -> dict[str, Any]:
    return {
        "gpus": [_LANE.encode(_moved(lane, -origin_ns)) for lane in lanes.gpus],
        "runs": [_RUN_LANE.encode(_moved(lane, -origin_ns)) for lane in lanes.runs],
    }


def _decode_lanes(document: object, report: Report) -> Lanes:
    fields = mapping(document)
    gpus = tuple(_LANE.decode(lane) for lane in items(fields["gpus"]))
    runs = tuple(_RUN_LANE.decode(lane) for lane in items(fields["runs"]))
    if len(gpus) != len(report.gpus):
        raise MalformedError("GPUs without a lane")
    for gpu in gpus:
        _check_cells(gpu, gpu.observed_ns, gpu.busy_ns, gpu.active_ns)
    for run in runs:
        _check_cells(run, *run.phase_ns.values(), *run.reason_ns.values())
    return Lanes(gpus, runs)


def _check_cells(lane: Lane | RunLane, *cells: tuple[int, ...]) -> None:
    """Refuse cells that do not cover exactly the time from the lane's start to its end."""
    if not lane.cell_ns:
        raise MalformedError("lane cells without a width")
    count = -(-(lane.end_ns - lane.start_ns) // lane.cell_ns)
    if any(len(one) != count for one in cells):
        raise MalformedError("a lane whose cells do not match its time")


_AnyLane = TypeVar("_AnyLane", Lane, RunLane)


def _moved(lane: _AnyLane, by_ns: int) -> _AnyLane:
    return replace(lane, start_ns=lane.start_ns + by_ns, end_ns=lane.end_ns + by_ns)


# -- one run of two reports --------------------------------------------------------


def encode_pair(before: RunPace | None, after: RunPace | None) -> dict[str, Any]:
    """A run in a comparison; ``None``: that report does not have it."""
    pair = None if before is None or after is None else RunPair(before=before, after=after)
    one = after or before
    return {
        "run": "" if one is None else label_text(one.run),
        "before": None if before is None else _encode_pace(before),
        "after": None if after is None else _encode_pace(after),
        "speedup": None if pair is None else pair.speedup,
    }


def _encode_pace(pace: RunPace) -> dict[str, Any]:
    step_ns = pace.step_wall_ns
    document = {
        **_PACE.encode(pace),
        "wall_seconds_per_step": None if step_ns is None else step_ns / NS_PER_S,
        "samples_per_second": pace.samples_per_second,
    }
    return in_order(document, "run steps samples wall_seconds wall_seconds_per_step")
