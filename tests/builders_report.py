"""Short ways to write down reports: only the numbers that matter."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpumon.core.accounting.intervals import Interval
from gpumon.core.accounting.totals import GapTotals, GpuTotals
from gpumon.core.codecs.report_codec import encode_report
from gpumon.core.diagnosis.advice import advise
from gpumon.core.diagnosis.verdict_rules import judge
from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.report.job_balance import JobBalance, balances
from gpumon.core.report.report import GpuReport, Report, RunReport
from tests.builders_time import s

NO_IDLE: Mapping[IdleCause, float] = {}
_OUT_OF_USE = (IdleCause.NOT_IN_USE, IdleCause.START_UP)


def gpu(
    busy_s: float,
    idle_s: Mapping[IdleCause, float] = NO_IDLE,
    *,
    index: int = 0,
    suspected_s: float = 0.0,
    hidden_s: float = 0.0,
    pauses: int = 0,
) -> GpuReport:
    """A GPU with that much time in seconds; in use but for start-up and not_in_use."""
    lost_s = sum(idle_s[cause] for cause in idle_s if cause not in _OUT_OF_USE)
    gaps = GapTotals()
    if pauses:
        gaps = GapTotals(
            count=pauses,
            total_ns=s(lost_s),
            longest_ns=s(2 * lost_s / pauses),
            p50_ns=s(lost_s / pauses),
            p95_ns=s(2 * lost_s / pauses),
        )
    totals = GpuTotals(
        observed_ns=s(busy_s) + sum(s(seconds) for seconds in idle_s.values()),
        busy_ns=s(busy_s),
        idle_ns={cause: s(seconds) for cause, seconds in idle_s.items()},
        in_use_ns=s(busy_s) + s(lost_s),
        in_use_busy_ns=s(busy_s),
        suspected_ns=s(suspected_s),
        hidden_input_wait_ns=s(hidden_s),
        low_ns=s(lost_s),
        high_ns=s(busy_s),
        gaps=gaps,
        pauses=gaps,
    )
    return GpuReport(
        index=index, uuid=f"GPU-{index}", name="NVIDIA A40", totals=totals, verdict=judge(totals)
    )


def with_totals(one: GpuReport, **changes: Any) -> GpuReport:
    """The GPU with these totals changed, and judged by them."""
    totals = one.totals._replace(**changes)
    return replace(one, totals=totals, verdict=judge(totals))


MIG_PARENT = replace(gpu(0.0), uuid="GPU-a", mig_enabled=True)
"""A GPU that is cut by MIG, and was before it worked."""


def mig_part(number: int, busy_s: float = 0.0, suspected_s: float = 0.0) -> GpuReport:
    """An instance of it; of no time, it does not tell how busy it is."""
    idle = {IdleCause.UNKNOWN: suspected_s} if suspected_s else {}
    one = gpu(busy_s, idle, pauses=9 if suspected_s else 0, suspected_s=suspected_s)
    return replace(one, uuid=f"MIG-{number}", parent_uuid="GPU-a", mig_index=number)


def run(steps: int = 500, wall_s: float = 60.0, **loader: str | int | bool | None) -> RunReport:
    """A training run on GPU 0."""
    return RunReport(
        run="train",
        job="j1",
        rank=0,
        pid=4711,
        framework="keras/jax",
        steps=steps,
        gpu_uuids=("GPU-0",),
        wall_ns=s(wall_s),
        phase_ns={TrainingPhase.TRAIN_STEP: s(wall_s / 2), TrainingPhase.INPUT_WAIT: s(wall_s / 2)},
        loader=dict(loader),
        step_ns=s(0.0452),
    )


def shared_run(
    busy: Sequence[float],
    shares: Sequence[float] = (),
    *,
    framework: str = "keras/tensorflow",
) -> RunReport:
    """A run on several GPUs, each so busy in its training steps."""
    uuids = tuple(f"GPU-{at}" for at in range(len(busy)))
    return replace(
        run(),
        framework=framework,
        gpu_uuids=uuids,
        step_busy_ratios=dict(zip(uuids, busy, strict=True)),
        shares=dict(zip(uuids, shares, strict=True)) if shares else {},
    )


def rank_of(
    rank: int, busy: float, *, framework: str = "loop", share: float | None = None
) -> RunReport:
    """One rank of a job, on the GPU of its number."""
    uuid = f"GPU-{rank}"
    return replace(
        run(),
        run=f"train-r{rank}",
        rank=rank,
        pid=4711 + rank,
        framework=framework,
        gpu_uuids=(uuid,),
        step_busy_ratios={uuid: busy},
        shares={} if share is None else {uuid: share},
    )


def one_balance(report: Report) -> JobBalance:
    """Of the only job in a report."""
    (balance,) = balances(report.runs).values()
    return balance


def report(*gpus: GpuReport, runs: tuple[RunReport, ...] = ()) -> Report:
    """A report of these GPUs with the advice that follows."""
    return Report(
        source="simulated:input-bound",
        simulated=True,
        started_at="2025-06-13T00:00:00.000+00:00",
        origin_ns=s(7),
        observed_ns=max((one.totals.observed_ns for one in gpus), default=0),
        period_ns=s(1),
        skipped_lines=0,
        gpus=gpus,
        runs=runs,
        advice=advise(gpus, runs),
    )


def with_intervals(one: GpuReport, *spans_s: tuple[float, float]) -> GpuReport:
    """The GPU with these starved intervals, in seconds on the report's clock."""
    spans = tuple(Interval(s(start), s(end)) for start, end in spans_s)
    return replace(one, totals=one.totals._replace(starved_intervals=spans))


def saved(folder: Path, name: str, one: Report) -> str:
    """A file with the report as `gpumon report --json` prints it; gives its path."""
    path = folder / name
    path.write_text(json.dumps(encode_report(one)))
    return str(path)
