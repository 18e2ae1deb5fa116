"""A running daemon's state as a report."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone

from gpumon.core.advice import advise
from gpumon.core.report import GpuReport, Report, RunReport
from gpumon.core.state import MonitorState, refusal_note
from gpumon.core.units import nanoseconds


def report_of(state: MonitorState) -> Report:
    """Where the time went since the daemon began.

    Pending time is in the report as such: its cause is not decided yet.
    """
    gpus = tuple(
        GpuReport(
            index=gpu.device.index,
            uuid=gpu.device.uuid,
            name=gpu.device.name,
            totals=gpu.totals,
            verdict=gpu.verdict,
            error=gpu.error,
        )
        for gpu in state.gpus
    )
    runs = tuple(
        RunReport(
            run=run.run,
            job=run.job,
            rank=run.rank,
            pid=run.pid,
            framework=run.framework,
            steps=run.steps,
            gpu_uuids=run.gpu_uuids,
            wall_ns=run.wall_ns,
            phase_ns=run.phase_ns,
            loader=run.loader,
            callback_ns=run.callback_ns,
        )
        for run in state.runs
    )
    started = datetime.fromtimestamp(state.started_wall_time_s, tz=timezone.utc)
    return Report(
        source=state.source,
        simulated=state.simulated,
        started_at=started.isoformat(),
        origin_ns=state.taken_at_ns
        - nanoseconds(max(0.0, state.wall_time_s - state.started_wall_time_s)),
        observed_ns=max((gpu.totals.observed_ns for gpu in gpus), default=0),
        period_ns=state.period_ns,
        skipped_lines=0,
        gpus=gpus,
        runs=runs,
        advice=advise(gpus, runs),
        notes=tuple(_notes(state)),
    )


def _notes(state: MonitorState) -> Iterator[str]:
    for gpu in state.gpus:
        if gpu.error is not None:
            yield f"GPU {gpu.device.index}: {gpu.error}"
    for collector in state.collectors:
        note = refusal_note(collector)
        if note is None and not state.gpus and not collector.success and collector.message:
            note = f"{collector.name}: {collector.message}"
        if note is not None:
            yield note
