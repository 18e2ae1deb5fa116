"""A report as the ``gpumon.report/1`` document, and back. Numbers are not rounded.

What a log tells beside its GPUs' own time, as parts of the ``gpumon.report/1`` document.

One training run of a report as an object of JSON, and back; and how numbers are read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from gpumon.core.clock import nanoseconds, seconds
from gpumon.core.documents.board_codec import (
    decode_fill,
    decode_troubles,
    encode_fill,
    encode_troubles,
)
from gpumon.core.judge.log_findings import log_findings
from gpumon.core.log.common_pauses import Together
from gpumon.core.log.held_memory import HeldMemory
from gpumon.core.log.resolution import Sampling
from gpumon.core.phase import CAUSES, IdleCause, phase_named
from gpumon.core.report.gpus_together import MachineTime, machine_time
from gpumon.core.report.job_balance import JobBalance, balances
from gpumon.core.report.report import (
    BESIDE_CAUSES,
    Advice,
    GpuReport,
    LogFinding,
    Report,
    RunReport,
)
from gpumon.core.time.intervals import Interval
from gpumon.core.time.totals import GapTotals, GpuTotals
from gpumon.core.verdict import Pattern, Severity, Verdict, VerdictName
from gpumon.core.wording import label_text
from gpumon.errors import UsageError


def encode_run(run: RunReport, balance: JobBalance | None) -> dict[str, Any]:
    """A run; ``balance`` is that of its job, where its GPUs could be compared."""
    return {
        "run": label_text(run.run),
        "job": label_text(run.job),
        "rank": run.rank,
        "pid": run.pid,
        "framework": label_text(run.framework),
        "steps": run.steps,
        "samples": run.samples,
        "gpus": [label_text(uuid) for uuid in run.gpu_uuids],
        "wall_seconds": seconds(run.wall_ns),
        "phase_seconds": {phase.value: seconds(ns) for phase, ns in run.phase_ns.items()},
        "loader": {label_text(name): _plain(fact) for name, fact in run.loader.items()},
        "callback_seconds": {label_text(name): seconds(ns) for name, ns in run.callback_ns.items()},
        "step_seconds": _seconds_or_none(run.step_ns),
        "first_input_wait_seconds": _seconds_or_none(run.first_input_wait_ns),
        "shares": _encode_ratios(run.shares),
        "ratio_changes": run.ratio_changes,
        "step_busy_ratios": _encode_ratios(run.step_busy_ratios),
        # Of all GPUs of its job, since the ratios last changed; not read back, for they follow.
        "skew_ratio": None if balance is None else balance.skew_ratio,
        "levelled_ratios": _encode_ratios(balance.levelled_ratios or {}) if balance else {},
        "alive": run.alive,
        "ended_before": run.ended_before,
        "owner_uid": run.owner_uid,
        "refused_gpus": [label_text(uuid) for uuid in run.refused_uuids],
    }


def _seconds_or_none(duration_ns: int | None) -> float | None:
    return None if duration_ns is None else seconds(duration_ns)


def _read_or_none(duration_s: object) -> int | None:
    return None if duration_s is None else read_ns(duration_s)


def _encode_ratios(ratios: Mapping[str, float]) -> dict[str, float]:
    return {label_text(uuid): ratio for uuid, ratio in ratios.items()}


def decode_run(run: Mapping[str, Any]) -> RunReport:
    """The run that an object describes.

    Raises:
        KeyError: A field is missing.
        TypeError: A value is of another kind.
        ValueError: It is out of range.
    """
    return RunReport(
        run=str(run["run"]),
        job=str(run["job"]),
        rank=int(run["rank"]),
        pid=int(run["pid"]),
        framework=str(run["framework"]),
        steps=int(run["steps"]),
        gpu_uuids=tuple(str(uuid) for uuid in run["gpus"]),
        wall_ns=read_ns(run["wall_seconds"]),
        phase_ns={
            phase_named(name): read_ns(value) for name, value in run["phase_seconds"].items()
        },
        loader=dict(run.get("loader", {})),
        callback_ns={
            str(name): read_ns(value) for name, value in run.get("callback_seconds", {}).items()
        },
        step_ns=_read_or_none(run.get("step_seconds")),
        first_input_wait_ns=_read_or_none(run.get("first_input_wait_seconds")),
        shares=_decode_ratios(run.get("shares", {})),
        ratio_changes=int(run.get("ratio_changes", 0)),
        step_busy_ratios=_decode_ratios(run.get("step_busy_ratios", {})),
        alive=None if run.get("alive") is None else bool(run["alive"]),
        ended_before=bool(run.get("ended_before", False)),
        samples=None if run.get("samples") is None else int(run["samples"]),
        owner_uid=None if run.get("owner_uid") is None else int(run["owner_uid"]),
        refused_uuids=tuple(str(uuid) for uuid in run.get("refused_gpus", ())),
    )


def _decode_ratios(ratios: Mapping[str, object]) -> dict[str, float]:
    return {str(uuid): read_ratio(ratio) for uuid, ratio in ratios.items()}


def read_ns(duration_s: object) -> int:
    """Seconds of a document in nanoseconds; ``TypeError`` where it is no number."""
    if isinstance(duration_s, bool) or not isinstance(duration_s, (int, float)):
        raise TypeError(f"{duration_s!r} is not a number of seconds")
    return nanoseconds(float(duration_s))


def read_ratio(raw: object) -> float:
    """A share of a document; ``ValueError`` where it is no finite number."""
    if isinstance(raw, bool) or not isinstance(raw, (int, float)) or not math.isfinite(raw):
        raise ValueError(f"{raw!r} is not a ratio")
    return float(raw)


def _plain(fact: object) -> str | int | float | bool | None:
    if isinstance(fact, float):
        return fact if math.isfinite(fact) else None
    return fact if isinstance(fact, (bool, int)) or fact is None else label_text(fact)


def encode_machine(machine: MachineTime, joined: Together | None) -> dict[str, Any]:
    """GPU-time over all GPUs, and what they did at the same time (``None``: nobody looked)."""
    return {
        "gpus": machine.gpus,
        "observed_seconds": seconds(machine.observed_ns),
        "busy_seconds": seconds(machine.busy_ns),
        "lost_seconds": seconds(machine.lost_ns),
        "not_in_use_seconds": seconds(machine.out_of_use_ns),
        "pending_seconds": seconds(machine.pending_ns),
        "busy_ratio": machine.share(machine.busy_ns),
        "lost_ratio": machine.share(machine.lost_ns),
        "not_in_use_ratio": machine.share(machine.out_of_use_ns),
        "all_paused_seconds": None if joined is None else seconds(joined.all_paused_ns),
        "together": None if joined is None else _encode_together(joined),
    }


def decode_together(machine: object, gpus: Sequence[Mapping[str, Any]]) -> Together | None:
    """What GPUs did at the same time; ``None`` where the document does not say.

    Args:
        machine: The document's ``machine``; older ones have none.
        gpus: Its GPUs.
    """
    if not isinstance(machine, Mapping) or machine.get("together") is None:
        return None
    joined = machine["together"]
    return Together(
        in_use_ns=read_ns(joined["in_use_seconds"]),
        all_paused_ns=read_ns(machine["all_paused_seconds"]),
        all_pauses=int(joined["all_pauses"]),
        in_use_gpu_ns=read_ns(joined["in_use_gpu_seconds"]),
        paused_gpu_ns=read_ns(joined["paused_gpu_seconds"]),
        by_chance_ns=read_ns(joined["by_chance_seconds"]),
        in_use=tuple(
            int(position) for position in joined["in_use"] if position in range(len(gpus))
        ),
        idle_beside_peer_ns=tuple(decode_optional_ns(gpu) or 0 for gpu in gpus),
    )


def decode_optional_ns(gpu: Mapping[str, Any]) -> int | None:
    """``idle_beside_peer_seconds`` of a GPU; ``None`` where nobody looked."""
    value = gpu.get("idle_beside_peer_seconds")
    return None if value is None else read_ns(value)


def encode_held(held: HeldMemory | None) -> dict[str, Any] | None:
    """Memory held without work; ``None`` where the log does not say what is in use."""
    if held is None:
        return None
    return {
        "idle_seconds": seconds(held.idle_ns),
        "longest_seconds": seconds(held.longest_ns),
        "peak_bytes": held.peak_bytes,
    }


def decode_held(held: Mapping[str, Any] | None) -> HeldMemory | None:
    """The same, back."""
    if held is None:
        return None
    return HeldMemory(
        read_ns(held["idle_seconds"]), read_ns(held["longest_seconds"]), int(held["peak_bytes"])
    )


def encode_sampling(sampling: Sampling | None) -> dict[str, Any] | None:
    """What the period of a log lets anybody see; ``None`` in a live report."""
    if sampling is None:
        return None
    return {
        "period_seconds": seconds(sampling.period_ns),
        "shortest_visible_pause_seconds": seconds(sampling.shortest_visible_pause_ns),
        "is_coarse": sampling.is_coarse,
    }


def decode_sampling(sampling: Mapping[str, Any] | None) -> Sampling | None:
    """The same, back."""
    if sampling is None:
        return None
    return Sampling(
        period_ns=read_ns(sampling["period_seconds"]),
        shortest_visible_pause_ns=read_ns(sampling["shortest_visible_pause_seconds"]),
        is_coarse=bool(sampling["is_coarse"]),
    )


def encode_finding(finding: LogFinding) -> dict[str, Any]:
    """A finding: the rule's id, the labels of the GPUs it is about, and what is so."""
    return {"rule": finding.rule, "gpus": list(finding.gpus), "text": finding.text}


def _encode_together(joined: Together) -> dict[str, Any]:
    return {
        "in_use_seconds": seconds(joined.in_use_ns),
        "all_pauses": joined.all_pauses,
        "in_use_gpu_seconds": seconds(joined.in_use_gpu_ns),
        "paused_gpu_seconds": seconds(joined.paused_gpu_ns),
        "by_chance_seconds": seconds(joined.by_chance_ns),
        "in_use": list(joined.in_use),
    }


REPORT_SCHEMA: Final = "gpumon.report/1"
_MAX_TEXT: Final = 2_000


def encode_report(report: Report) -> dict[str, Any]:
    """The report as plain dictionaries, lists, numbers and text.

    Fields may be added to the schema, never removed. Times are seconds;
    intervals count from ``started_at``.
    """
    job_balances = balances(report.runs)
    said = encode_said(report)
    return {
        "schema": REPORT_SCHEMA,
        "source": label_text(report.source, _MAX_TEXT),
        "simulated": report.simulated,
        "replayed": report.replayed,
        "started_at": report.started_at,
        "observed_seconds": seconds(report.observed_ns),
        "period_seconds": seconds(report.period_ns),
        "skipped_lines": report.skipped_lines,
        "notes": said["notes"],
        "gpus": [_encode_gpu(gpu, report) for gpu in report.gpus],
        "runs": [encode_run(run, job_balances.get(run.job_key)) for run in report.runs],
        "advice": said["advice"],
        "machine": encode_machine(machine_time(report.gpus), report.together),
        "sampling": encode_sampling(report.sampling),
        "findings": [encode_finding(finding) for finding in log_findings(report)],
    }


def encode_said(report: Report) -> dict[str, Any]:
    """What a report says in words: its ``notes`` and its ``advice``, as in the whole document."""
    return {
        "notes": [label_text(note, _MAX_TEXT) for note in report.notes],
        "advice": [_encode_advice(advice) for advice in report.advice],
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
    try:
        return _decoded(document)
    except KeyError as error:
        raise UsageError(f"not a whole {REPORT_SCHEMA} document: {error} is missing") from error
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UsageError(f"not a valid {REPORT_SCHEMA} document: {error}") from error


def _encode_gpu(gpu: GpuReport, report: Report) -> dict[str, Any]:
    totals, verdict, origin_ns = gpu.totals, gpu.verdict, report.origin_ns
    return {
        "index": gpu.index,
        "label": gpu.label,
        "uuid": _text_or_none(gpu.uuid),
        "name": _text_or_none(gpu.name),
        "error": _text_or_none(gpu.error),
        "observed_seconds": seconds(totals.observed_ns),
        "busy_seconds": seconds(totals.busy_ns),
        "idle_seconds": seconds(totals.idle_total_ns),
        "pending_seconds": seconds(totals.pending_ns),
        "in_use_seconds": seconds(totals.in_use_ns),
        "in_use_busy_seconds": seconds(totals.in_use_busy_ns),
        # The schema promises numbers: nothing of nothing was lost, and nothing is unexplained.
        "busy_ratio": totals.busy_ns / totals.observed_ns if totals.observed_ns else 0.0,
        # But of a GPU that is cut by MIG, and of a mute part of one, nothing is known.
        "coverage_ratio": _coverage(gpu),
        "pattern": verdict.pattern.value,
        "verdict": verdict.name.value,
        "severity": verdict.severity.value,
        "main_cause": None if verdict.main_cause is None else verdict.main_cause.value,
        "lost_ratio": verdict.lost_ratio or 0.0,
        "starved_seconds": seconds(totals.starved_ns),
        "first_input_wait_seconds": seconds(totals.first_input_wait_ns),
        "validation_input_wait_seconds": seconds(totals.validation_input_wait_ns),
        "suspected_seconds": seconds(totals.suspected_ns),
        "irregular_seconds": seconds(totals.irregular_ns),
        "cycle_seconds": None if totals.cycle_ns is None else seconds(totals.cycle_ns),
        "starved_ratio": verdict.starved_ratio or 0.0,
        "input_probability": verdict.input_probability,
        "likely_causes": None if verdict.likely_causes is None else [*verdict.likely_causes],
        "starved_now": totals.starved_now,
        "episodes": totals.episodes,
        "resolved_seconds": seconds(totals.resolved_ns),
        "inferred_seconds": seconds(totals.inferred_ns),
        "hidden_input_wait_seconds": seconds(totals.hidden_input_wait_ns),
        "low_seconds": seconds(totals.low_ns),
        "high_seconds": seconds(totals.high_ns),
        "gaps": _encode_gaps(totals.gaps),
        "pauses": _encode_gaps(totals.pauses),
        "starved_intervals": [
            [seconds(span.start_ns - origin_ns), seconds(span.end_ns - origin_ns)]
            for span in totals.starved_intervals
        ],
        "merged_intervals": totals.merged_intervals,
        "idle_by_cause": {cause.value: seconds(totals.idle_ns.get(cause, 0)) for cause in CAUSES},
        "input_wait_by_reason": {
            reason: seconds(ns) for reason, ns in totals.input_wait_by_reason_ns.items()
        },
        "fill": encode_fill(gpu.fill),
        "mig_enabled": gpu.mig_enabled,
        "parent_uuid": _text_or_none(gpu.parent_uuid),
        "mig_index": gpu.mig_index,
        "listed": gpu.listed,
        "idle_beside_peer_seconds": (
            None if gpu.idle_beside_peer_ns is None else seconds(gpu.idle_beside_peer_ns)
        ),
        "held_memory": encode_held(gpu.held_memory),
        "troubles": encode_troubles(gpu.troubles, _moment(report.started_at), origin_ns),
    }


def _moment(started_at: str | None) -> datetime | None:
    return None if started_at is None else datetime.fromisoformat(started_at)


def _coverage(gpu: GpuReport) -> float:
    if gpu.verdict.coverage_ratio is not None:
        return gpu.verdict.coverage_ratio
    return 0.0 if gpu.is_cut or gpu.is_mute else 1.0


def _encode_gaps(gaps: GapTotals) -> dict[str, Any]:
    return {
        "count": gaps.count,
        "total_seconds": seconds(gaps.total_ns),
        "p50_seconds": seconds(gaps.p50_ns or 0),  # like longest_seconds: 0 where count is 0
        "p95_seconds": seconds(gaps.p95_ns or 0),
        "longest_seconds": seconds(gaps.longest_ns),
    }


def _encode_advice(advice: Advice) -> dict[str, Any]:
    return {
        "cause": advice.cause,
        "lost_seconds": advice.lost_seconds,
        "speedup_upper_bound": advice.speedup_upper_bound,
        "evidence": advice.evidence,
        "text": advice.text,
        "gpus": [*advice.gpus],
    }


def _decoded(document: Mapping[str, Any]) -> Report:
    started_at = document["started_at"]
    return Report(
        source=str(document["source"]),
        simulated=bool(document.get("simulated", False)),
        replayed=bool(document.get("replayed", False)),
        started_at=None if started_at is None else str(started_at),
        origin_ns=0,
        observed_ns=read_ns(document["observed_seconds"]),
        period_ns=read_ns(document["period_seconds"]),
        skipped_lines=int(document["skipped_lines"]),
        gpus=tuple(_decode_gpu(gpu, started_at) for gpu in document["gpus"]),
        runs=tuple(decode_run(run) for run in document["runs"]),
        advice=tuple(_decode_advice(advice) for advice in document["advice"]),
        notes=tuple(str(note) for note in document.get("notes", ())),
        together=decode_together(document.get("machine"), document["gpus"]),
        sampling=decode_sampling(document.get("sampling")),
    )


def _decode_gpu(gpu: Mapping[str, Any], started_at: str | None) -> GpuReport:
    causes = {IdleCause(name): read_ns(value) for name, value in gpu["idle_by_cause"].items()}
    totals = GpuTotals(
        observed_ns=read_ns(gpu["observed_seconds"]),
        busy_ns=read_ns(gpu["busy_seconds"]),
        idle_ns={cause: idle_ns for cause, idle_ns in causes.items() if idle_ns},
        pending_ns=read_ns(gpu["pending_seconds"]),
        in_use_ns=read_ns(gpu["in_use_seconds"]),
        in_use_busy_ns=read_ns(gpu["in_use_busy_seconds"]),
        suspected_ns=read_ns(gpu["suspected_seconds"]),
        irregular_ns=read_ns(gpu.get("irregular_seconds", 0.0)),
        cycle_ns=None if gpu.get("cycle_seconds") is None else read_ns(gpu["cycle_seconds"]),
        resolved_ns=read_ns(gpu["resolved_seconds"]),
        inferred_ns=read_ns(gpu["inferred_seconds"]),
        input_wait_by_reason_ns={
            str(reason): read_ns(value) for reason, value in gpu["input_wait_by_reason"].items()
        },
        hidden_input_wait_ns=read_ns(gpu.get("hidden_input_wait_seconds", 0.0)),
        first_input_wait_ns=read_ns(gpu.get("first_input_wait_seconds", 0.0)),
        validation_input_wait_ns=read_ns(gpu.get("validation_input_wait_seconds", 0.0)),
        low_ns=read_ns(gpu.get("low_seconds", 0.0)),
        high_ns=read_ns(gpu.get("high_seconds", 0.0)),
        gaps=_decode_gaps(gpu["gaps"]),
        pauses=_decode_gaps(gpu.get("pauses", gpu["gaps"])),
        starved_intervals=tuple(
            Interval(read_ns(start), read_ns(end)) for start, end in gpu["starved_intervals"]
        ),
        merged_intervals=int(gpu.get("merged_intervals", 0)),
        episodes=int(gpu.get("episodes", 0)),
        starved_now=bool(gpu.get("starved_now", False)),
    )
    return GpuReport(
        index=int(gpu["index"]),
        uuid=None if gpu["uuid"] is None else str(gpu["uuid"]),
        name=None if gpu["name"] is None else str(gpu["name"]),
        totals=totals,
        verdict=_decode_verdict(gpu, totals),
        error=_text_or_none(gpu.get("error")),
        fill=decode_fill(gpu.get("fill")),
        mig_enabled=bool(gpu.get("mig_enabled", False)),
        parent_uuid=_text_or_none(gpu.get("parent_uuid")),
        mig_index=None if gpu.get("mig_index") is None else int(gpu["mig_index"]),
        listed=bool(gpu.get("listed", True)),
        idle_beside_peer_ns=decode_optional_ns(gpu),
        held_memory=decode_held(gpu.get("held_memory")),
        told_troubles=tuple(
            trouble
            for trouble in decode_troubles(gpu.get("troubles", ()), _moment(started_at))
            if trouble.duration_ns is None  # what has one follows from its fill
        ),
    )


def _decode_verdict(gpu: Mapping[str, Any], totals: GpuTotals) -> Verdict:
    main_cause, in_use = gpu.get("main_cause"), totals.in_use_ns
    # An older version did not write it: then it is what follows, and never nothing.
    lost_ratio = gpu.get("lost_ratio", totals.lost_ns / in_use if in_use else 0.0)
    probability, causes = gpu.get("input_probability"), gpu.get("likely_causes")
    return Verdict(
        name=VerdictName(gpu["verdict"]),
        severity=Severity(gpu["severity"]),
        pattern=Pattern(gpu["pattern"]),
        main_cause=None if main_cause is None else IdleCause(main_cause),
        lost_ratio=read_ratio(lost_ratio) if in_use else None,
        starved_ratio=read_ratio(gpu["starved_ratio"]) if in_use else None,
        coverage_ratio=read_ratio(gpu["coverage_ratio"]) if in_use else None,
        input_probability=None if probability is None else read_ratio(probability),
        likely_causes=None if causes is None else tuple(label_text(cause) for cause in causes),
    )


def _decode_gaps(gaps: Mapping[str, Any]) -> GapTotals:
    count = int(gaps["count"])
    return GapTotals(
        count=count,
        total_ns=read_ns(gaps["total_seconds"]),
        longest_ns=read_ns(gaps["longest_seconds"]),
        p50_ns=read_ns(gaps["p50_seconds"]) if count else None,
        p95_ns=read_ns(gaps["p95_seconds"]) if count else None,
    )


def _decode_advice(advice: Mapping[str, Any]) -> Advice:
    bound = advice["speedup_upper_bound"]
    return Advice(
        cause=_advice_cause(advice["cause"]),
        lost_seconds=float(advice["lost_seconds"]),
        speedup_upper_bound=None if bound is None else float(bound),
        evidence=str(advice["evidence"]),
        text=str(advice["text"]),
        gpus=tuple(label_text(str(label)) for label in advice.get("gpus", ())),
    )


def _advice_cause(name: object) -> str:
    return str(name) if name in BESIDE_CAUSES else IdleCause(name).value


def _text_or_none(raw: str | None) -> str | None:
    return None if raw is None else label_text(raw)
