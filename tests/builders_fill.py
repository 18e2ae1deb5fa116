"""GPUs that are busy and more or less full, in a few words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpumon.core.device.fill import GpuFill, Mean
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import GpuReport
from gpumon.core.sample import ActivitySample, BusySample, Device, GpuDetails, GpuSample
from tests.builders_report import gpu
from tests.builders_time import s

BEGAN_S = 1_000.0


def mean(ratio: float | None, seconds: float) -> Mean:
    """A mean over so many seconds; of ``None``, over none."""
    return Mean() if ratio is None else Mean(s(seconds), round(ratio * s(seconds)))


def gpm_fill(
    sm_active: float, *, seconds: float = 120.0, memory: float | None = 0.2, held: float = 0.0
) -> GpuFill:
    """What GPM tells of a GPU, with 180 of 700 W and so much of the time held down by heat."""
    return GpuFill(
        sm_active=mean(sm_active, seconds),
        sm_occupancy=mean(sm_active / 2, seconds),
        tensor_active=mean(0.03, seconds),
        memory_bandwidth=mean(memory, seconds),
        power_ns=s(seconds),
        power_mw_ns=180_000 * s(seconds),
        power_limit_mw_ns=700_000 * s(seconds),
        sm_clock=mean(1.0, seconds),
        held_known_ns=s(seconds),
        held_ns=round(held * s(seconds)),
        held_by_ns={"hw_thermal_slowdown": round(held * s(seconds))} if held else {},
    )


def power_fill(watts: float, *, seconds: float = 120.0, held: float = 0.0) -> GpuFill:
    """What an older board tells of itself, of 700 W."""
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
    """What one GPU says, once a second; each activity covers five seconds and is repeated."""
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
