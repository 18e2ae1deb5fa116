"""Reports with the GPUs, host samples and SM utilisation that a test needs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from gpumon.core.accounting.intervals import Interval
from gpumon.core.accounting.totals import GapTotals, GpuTotals
from gpumon.core.clock import NS_PER_S
from gpumon.core.codecs.report_codec import encode_report
from gpumon.core.device.sm_utilisation import GpuFill, Mean
from gpumon.core.diagnosis.advice import advise
from gpumon.core.diagnosis.verdict_rules import diagnose
from gpumon.core.phase import IdleCause, InputWaitReason, TrainingPhase
from gpumon.core.report.job_balance import JobBalance, balances
from gpumon.core.report.report import GpuReport, Report, RunReport
from gpumon.core.sample import ActivitySample, BusySample, Device, GpuDetails, GpuSample
from gpumon.core.waits.evidence import HostEvidence, TaskSample
from gpumon.core.waits.reasons import WaitFigures, WaitReason
from gpumon.core.waits.wait_rules import LoaderPlace, ShortOf
from tests.builders.time import s

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
    """A GPU with these seconds; in use except for start-up and not_in_use."""
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
        index=index, uuid=f"GPU-{index}", name="NVIDIA A40", totals=totals, verdict=diagnose(totals)
    )


def with_totals(one: GpuReport, **changes: Any) -> GpuReport:
    """The GPU with these totals changed, and diagnosed by them."""
    totals = one.totals._replace(**changes)
    return replace(one, totals=totals, verdict=diagnose(totals))


MIG_PARENT = replace(gpu(0.0), uuid="GPU-a", mig_enabled=True)
"""A MIG-partitioned GPU."""


def mig_part(number: int, busy_s: float = 0.0, suspected_s: float = 0.0) -> GpuReport:
    """An instance of it, without utilisation data if it has no time."""
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
    """A run on several GPUs, with busy ratios within its steps."""
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
    """The balance of the only job."""
    (balance,) = balances(report.runs).values()
    return balance


def report(*gpus: GpuReport, runs: tuple[RunReport, ...] = ()) -> Report:
    """A report of these GPUs, with its advice."""
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


BEGAN_S = 1_000.0


def mean(ratio: float | None, seconds: float) -> Mean:
    """A mean over these seconds; of ``None``, over none."""
    return Mean() if ratio is None else Mean(s(seconds), round(ratio * s(seconds)))


def gpm_fill(
    sm_active: float, *, seconds: float = 120.0, memory: float | None = 0.2, held: float = 0.0
) -> GpuFill:
    """SM utilisation by GPM, with 180 of 700 W; ``held``: the share of time slowed by heat."""
    return GpuFill(
        sm_active=mean(sm_active, seconds),
        sm_occupancy=mean(sm_active / 2, seconds),
        tensor_active=mean(0.03, seconds),
        memory_bandwidth=mean(memory, seconds),
        power_ns=s(seconds),
        power_mw_ns=180_000 * s(seconds),
        power_limit_mw_ns=700_000 * s(seconds),
        sm_clock=mean(1.0, seconds),
        throttle_known_ns=s(seconds),
        throttled_ns=round(held * s(seconds)),
        throttled_by_ns={"hw_thermal_slowdown": round(held * s(seconds))} if held else {},
    )


def power_fill(watts: float, *, seconds: float = 120.0, held: float = 0.0) -> GpuFill:
    """An older board, which reports only power, of 700 W."""
    known_s = seconds * (1.0 - held)
    return gpm_fill(0.0, seconds=seconds, held=held)._replace(
        sm_active=Mean(),
        sm_occupancy=Mean(),
        tensor_active=Mean(),
        memory_bandwidth=Mean(),
        power_ns=s(known_s),
        power_mw_ns=round(1000 * watts) * s(known_s),
        power_limit_mw_ns=700_000 * s(known_s),
    )


def filled(fill: GpuFill | None, *, index: int = 0) -> GpuReport:
    """A healthy GPU, 97 % busy."""
    return replace(gpu(97, {IdleCause.WITHIN_STEP: 3}, index=index), fill=fill)


def seconds_of(
    count: int,
    *,
    busy: float = 0.97,
    sm_active: float | None = None,
    graphics: float | None = None,
    memory: float | None = None,
    watts: float | None = None,
    clock: float = 1.0,
    reasons: tuple[str, ...] | None = (),
    device: Device | None = None,
    from_s: float = 0.0,
) -> Iterator[GpuSample]:
    """Samples of a GPU, one a second; each activity covers five seconds and is repeated."""
    device = device or Device(uuid="GPU-0", index=0)
    details = GpuDetails(
        read_at_ns=s(BEGAN_S),
        power_limit_watts=700.0,
        sm_clock_max_hertz=1.98e9,
        throttle_reasons=reasons,
    )
    activity = None
    for second in range(1, count + 1):
        end_ns = s(BEGAN_S + from_s + second)
        if second % 5 == 0 and sm_active is not None:
            activity = ActivitySample(
                end_ns - s(5), end_ns, graphics, sm_active, sm_active / 2, 0.03, memory
            )
        yield GpuSample(
            device=device,
            busy=(BusySample(end_ns - s(1), end_ns, busy),),
            utilization_ratio=busy,
            power_watts=watts,
            sm_clock_hertz=clock * 1.98e9,
            details=details,
            activity=activity,
        )


QUEUE: Final = "futex_do_wait"
NAP: Final = "hrtimer_nanosleep"
NETWORK: Final = "wait_woken"
PIPE: Final = "anon_pipe_read"
MB: Final = 1e6


def task(
    wanted: float, queued: float = 0.0, switches: float | None = None, sleeps_in: str | None = None,
    state: str | None = None,
) -> TaskSample:  # fmt: skip
    """A task that wants ``wanted`` cores and waits for ``queued`` of them."""
    reported = state or ("R" if sleeps_in is None else "S")
    return TaskSample(wanted - queued, queued, switches, reported, sleeps_in)


WAITS: Final = task(0.01, sleeps_in=QUEUE)
"""The training thread, while others make its batches."""


def evidence(
    main: TaskSample = WAITS,
    *,
    threads: tuple[TaskSample, ...] = (),
    workers: tuple[TaskSample, ...] = (),
    at_s: float = 1.0,
    waiting: float = 0.8,
    **others: Any,
) -> HostEvidence:
    """Evidence of one second, until ``at_s``."""
    end_ns = round(at_s * NS_PER_S)
    usual: dict[str, Any] = {
        "read_bytes_per_second": 0.0, "major_faults_per_second": 0.0, "disk_busy_ratio": 0.05,
        "received_bytes_per_second": 30_000.0, "memory_stalled_ratio": 0.0, "usable_cores": 2.0,
    }  # fmt: skip
    return HostEvidence(
        start_ns=end_ns - NS_PER_S,
        end_ns=end_ns,
        waiting_ratio=waiting,
        main=main,
        threads=threads,
        workers=workers,
        **{**usual, **others},
    )


def gil_threads(count: int) -> tuple[TaskSample, ...]:
    """Threads that take turns with the GIL."""
    return tuple(task(1.2 / count, 0.1 / count, 204.0, QUEUE) for _ in range(count))


def wait(
    reason: InputWaitReason,
    *,
    tasks: float,
    wanted: float,
    given: float,
    waited_s: float = 20.0,
    cause: IdleCause = IdleCause.INPUT_WAIT,
    place: LoaderPlace = LoaderPlace.WORKERS,
    short_of: ShortOf = ShortOf.WORKERS,
    also: tuple[InputWaitReason, ...] = (),
    **others: float,
) -> WaitReason:
    """A reason and its loss; ``others``: figures, by the begin of their names.

    >>> wait(InputWaitReason.CPU_BOUND, tasks=1, wanted=1.0, given=1.0, usable=8).figures[3]
    8
    """
    named = {
        name: next((value for word, value in others.items() if name.startswith(word)), None)
        for name in WaitFigures._fields[3:]
    }
    is_cpu = reason is InputWaitReason.CPU_BOUND
    return WaitReason(
        cause=cause,
        reason=reason,
        waited_ns=round(waited_s * NS_PER_S),
        confidence=0.9,
        place=place,
        short_of=short_of if is_cpu else None,
        also=also,
        figures=WaitFigures(tasks, wanted, given, **named),
    )
