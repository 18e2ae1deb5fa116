"""States of a daemon."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from gpumon.core.accounting.totals import GapTotals, GpuTotals
from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.sample import ActivitySample, Device, GpuDetails, GpuSample
from gpumon.core.state import CollectorState, GpuState, MonitorState, RunState
from gpumon.core.verdict import Pattern, Severity, Verdict, VerdictName
from gpumon.sources.follow import FollowSource
from tests.builders.monitor import monitor, reading
from tests.builders.time import HandClock

S = 1_000_000_000
GIB = 1 << 30
STARVED_UUID = "GPU-11111111-aaaa"
HEALTHY_UUID = "GPU-22222222-bbbb"
BOOT_ID = "3f0c2a4e-0000-4000-8000-00000000b007"


def device(index: int = 0, uuid: str = STARVED_UUID, **changes: Any) -> Device:
    """An H200 on the bus."""
    known = Device(
        uuid=uuid,
        index=index,
        name="NVIDIA H200",
        pci_bus_id=f"00000000:{0x3B + index:02X}:00.0",
        driver_version="580.95.05",
        memory_capacity_bytes=141 * GIB,
    )
    return replace(known, **changes)


def starved_gpu(**changes: Any) -> GpuState:
    """GPU 0: 100 s observed, 90 in use, 40 busy; 30 s starved, 6 suspected, 2 pending."""
    me = device(0, STARVED_UUID)
    totals = GpuTotals(
        observed_ns=100 * S,
        busy_ns=40 * S,
        idle_ns={
            IdleCause.INPUT_WAIT: 30 * S,
            IdleCause.CHECKPOINT: 8 * S,
            IdleCause.UNKNOWN: 10 * S,
            IdleCause.NOT_IN_USE: 10 * S,
        },
        pending_ns=2 * S,
        in_use_ns=90 * S,
        in_use_busy_ns=40 * S,
        suspected_ns=6 * S,
        resolved_ns=34 * S,
        inferred_ns=4 * S,
        input_wait_by_reason_ns={"cpu_bound": 20 * S, "disk_bound": 10 * S},
        hidden_input_wait_ns=3 * S,
        gaps=GapTotals(
            count=21,
            total_ns=44_500_000_000,
            longest_ns=8 * S,
            p50_ns=1_500_000_000,
            p95_ns=3 * S,
            bucket_counts=(0, 0, 0, 0, 0, 0, 18, 18, 20, 20, 21, 21, 21, 21, 21),
        ),
        episodes=2,
        starved_now=True,
    )
    verdict = Verdict(
        name=VerdictName.STARVED,
        severity=Severity.HIGH,
        pattern=Pattern.BURSTY,
        main_cause=IdleCause.INPUT_WAIT,
        lost_ratio=50 / 90,
        starved_ratio=36 / 90,
        coverage_ratio=0.91,
    )
    latest = GpuSample(
        device=me,
        utilization_ratio=0.12,
        memory_used_bytes=20 * GIB,
        power_watts=212.5,
        temperature_celsius=44.0,
        sm_clock_hertz=1.98e9,
        energy_joules=18_250.75,
    )
    known = GpuState(
        device=me,
        totals=totals,
        verdict=verdict,
        latest=latest,
        last_sample_at_ns=999_900_000_000,
        resolution_ns=S // 6,
    )
    return known._replace(**changes)


def detailed_gpu(**changes: Any) -> GpuState:
    """GPU 0 as above with every field, and XID 79 once and 31 twice."""
    gpu = starved_gpu()
    assert gpu.latest is not None
    details = GpuDetails(
        read_at_ns=999_000_000_000,
        power_limit_watts=700.0,
        sm_clock_max_hertz=1.98e9,
        memory_clock_hertz=2.619e9,
        performance_state=0,
        throttle_reasons=("sw_power_cap",),
        ecc_corrected_errors=7,
        ecc_uncorrected_errors=0,
        persistence_mode=True,
        fan_speed_ratio=0.3,
        encoder_ratio=0.0,
        decoder_ratio=0.125,
        pcie_transmitted_bytes_per_second=1_048_576.0,
        pcie_received_bytes_per_second=2_097_152.0,
        nvlink_transmitted_bytes_per_second=3.5e9,
        nvlink_received_bytes_per_second=4.5e9,
    )
    activity = ActivitySample(
        start_ns=995_000_000_000,
        end_ns=999_000_000_000,
        graphics_ratio=0.95,
        sm_active_ratio=0.5,
        sm_occupancy_ratio=0.25,
        tensor_active_ratio=0.125,
        memory_bandwidth_ratio=0.375,
    )
    latest = gpu.latest._replace(details=details, activity=activity)
    return gpu._replace(latest=latest, xid_errors=((31, 2), (79, 1)))._replace(**changes)


def healthy_gpu(**changes: Any) -> GpuState:
    """GPU 1: 100 s observed, 98.5 busy; without power and energy."""
    me = device(1, HEALTHY_UUID)
    totals = GpuTotals(
        observed_ns=100 * S,
        busy_ns=98_500_000_000,
        idle_ns={IdleCause.WITHIN_STEP: S, IdleCause.NOT_IN_USE: S // 2},
        in_use_ns=99_500_000_000,
        in_use_busy_ns=98_500_000_000,
    )
    verdict = Verdict(
        name=VerdictName.HEALTHY,
        severity=Severity.NONE,
        pattern=Pattern.BUSY,
        main_cause=IdleCause.WITHIN_STEP,
        lost_ratio=1 / 99.5,
        starved_ratio=0.0,
        coverage_ratio=1.0,
    )
    latest = GpuSample(
        device=me,
        utilization_ratio=0.99,
        memory_used_bytes=70 * GIB,
        temperature_celsius=61.0,
        sm_clock_hertz=1.98e9,
    )
    known = GpuState(
        device=me,
        totals=totals,
        verdict=verdict,
        latest=latest,
        last_sample_at_ns=999_950_000_000,
        resolution_ns=S // 6,
    )
    return known._replace(**changes)


def run(name: str = "resnet", **changes: Any) -> RunState:
    """A living Keras run on GPU 0, in its 3rd epoch."""
    known = RunState(
        run=name,
        job="slurm-4711.0",
        rank=0,
        pid=4242,
        framework="keras/jax",
        alive=True,
        phase=TrainingPhase.INPUT_WAIT,
        phase_ns={
            TrainingPhase.INPUT_WAIT: 33 * S,
            TrainingPhase.TRAIN_STEP: 45 * S,
            TrainingPhase.CHECKPOINT: 8 * S,
        },
        steps=1234,
        samples=78_976,
        first_input_wait_ns=1_500_000_000,
        epoch=2,
        gpu_uuids=(STARVED_UUID,),
        wall_ns=90 * S,
    )
    return replace(known, **changes)


def monitor_state(**changes: Any) -> MonitorState:
    """A starved and a healthy GPU, one run, two collectors without errors."""
    known = MonitorState(
        taken_at_ns=1_000_000_000_000,
        wall_time_s=1_700_000_000.25,
        started_wall_time_s=1_699_999_900.25,
        period_ns=S,
        source="simulated:input-bound",
        simulated=True,
        boot_id=BOOT_ID,
        gpus=(starved_gpu(), healthy_gpu()),
        runs=(run(),),
        collectors=(
            CollectorState(name="nvml", success=True, duration_seconds=0.002, errors_total=0),
            CollectorState(
                name="phase_rings",
                success=True,
                duration_seconds=0.0005,
                errors_total=1,
                message="1-2.ring: the ring is of another version",
            ),
        ),
        samples_total=100,
        missed_total=2,
        call_seconds=(("nvmlDeviceGetSamples", 0.125), ("nvmlDeviceGetMemoryInfo", 0.03125)),
        call_counts=(("nvmlDeviceGetSamples", 200), ("nvmlDeviceGetMemoryInfo", 40)),
        call_errors=(("nvmlDeviceGetMemoryInfo", 999, 3),),
    )
    return known._replace(**changes)


class StoppedClock(HandClock):
    """Stopped at a nanosecond, always at the same time of day."""

    def __init__(self, now_ns: int = 1_000_000_000_000) -> None:
        super().__init__()
        self.now_ns = now_ns

    def wall_time_s(self) -> float:
        return 1_700_000_000.25


class RunningClock(StoppedClock):
    """The machine's clock, for pages with true ages."""

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()


_STARTED_NS: Final = 1_000 * S
_LATE: Final = 0.15
"""Share of a period by which a tick may be late."""


def jittered_states(folder: Path, seconds: float, period_s: float) -> Iterator[MonitorState]:
    """States of a GPU that is busy 0.7 s of each second.

    The driver's windows last 1/6 s, so no two ticks observe the same length of time.
    """
    period_ns = round(period_s * S)
    clock, chance = StoppedClock(_STARTED_NS), random.Random(7)
    spans = folder / "spans"
    source = FollowSource(spans, clock)
    watching = monitor("follow:spans", simulated=True, period_ns=period_ns)
    written = 0
    with spans.open("w") as lines:
        for number in range(1, round(seconds / period_s) + 1):
            late_ns = round(chance.uniform(0.0, _LATE) * period_ns)
            clock.now_ns = _STARTED_NS + number * period_ns + late_ns
            while (end_ns := _STARTED_NS + written * S + 7 * S // 10) <= clock.now_ns:
                span = {"gpu": 0, "start_ns": end_ns - 7 * S // 10, "end_ns": end_ns}
                lines.write(json.dumps(span) + "\n")
                written += 1
            lines.flush()
            now_ns = clock.now_ns
            yield watching.ingest(reading(now_ns, source.read(), wall_time_s=now_ns / S))
