"""What GPUs said in one tick. Pure data: no I/O, no clock.

All times are CLOCK_MONOTONIC nanoseconds of one boot of one host (or, for a
finished log, nanoseconds on a clock of the log's own). Durations are kept as
whole nanoseconds, so that sums close exactly. ``None`` always means *no
answer*, never zero.

Named tuples, because many are made in each tick, and a frozen dataclass takes
several times as long to make.
"""

from __future__ import annotations

from typing import NamedTuple

from gpumon.core.device import Device
from gpumon.errors import InvalidSampleError


class BusySample(NamedTuple):
    """One utilisation sample of one GPU: how busy it was over a stretch of time.

    NVML looks back over its last sample period, so a sample speaks for the
    time that *ends* at its stamp.

    Attributes:
        start_ns: Where the covered time begins.
        end_ns: Where it ends: the sample's stamp.
        busy_ratio: Share of it, 0 to 1, in which at least one kernel ran
            (NVML ``utilization.gpu`` / 100).
    """

    start_ns: int
    end_ns: int
    busy_ratio: float


def checked_busy_sample(start_ns: int, end_ns: int, busy_ratio: float) -> BusySample:
    """A sample from a source that may say anything.

    Raises:
        InvalidSampleError: The ratio is outside 0 to 1 or not a number, or
            the sample does not span any time.
    """
    if not 0.0 <= busy_ratio <= 1.0:
        raise InvalidSampleError(
            f"busy_ratio must be within 0..1, got {busy_ratio!r}; "
            "divide NVML percent by 100 at the source"
        )
    if end_ns <= start_ns:
        raise InvalidSampleError(f"a sample must span time, got {start_ns!r}..{end_ns!r} ns")
    return BusySample(start_ns, end_ns, busy_ratio)


class ProcessSample(NamedTuple):
    """One process that holds memory on a GPU.

    Attributes:
        pid: Process id as this host sees it.
        memory_used_bytes: Device memory the process holds, in bytes.
    """

    pid: int
    memory_used_bytes: int | None


class GpuSample(NamedTuple):
    """What one GPU reported in one tick.

    Attributes:
        device: Who spoke.
        busy: Utilisation samples that are new since the tick before, oldest
            first, disjoint. Empty: the time was not observed.
        utilization_ratio: The latest utilisation, 0 to 1.
        memory_used_bytes: Device memory in use, in bytes.
        power_watts: Board power draw, in watts.
        temperature_celsius: Core temperature.
        sm_clock_hertz: Clock of the streaming multiprocessors.
        energy_joules: Energy since the driver was loaded, in joules.
        processes: Who holds memory on the GPU; ``None`` where the list is
            not to be had, empty where nobody does.
        error: Why the GPU could not be read in this tick, as a sentence;
            ``None`` where it could.
    """

    device: Device
    busy: tuple[BusySample, ...] = ()
    utilization_ratio: float | None = None
    memory_used_bytes: int | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None
    sm_clock_hertz: float | None = None
    energy_joules: float | None = None
    processes: tuple[ProcessSample, ...] | None = None
    error: str | None = None


class Frame(NamedTuple):
    """All that a source said in one tick.

    Attributes:
        taken_at_ns: CLOCK_MONOTONIC when the read finished.
        gpus: One sample for each GPU the source knows, in index order.
        rejected: Values the source refused in this tick because no device
            can have meant them (over 100 %, not a number, time running back).
        call_seconds: Cumulative seconds spent inside each driver function.
        trouble: What its user should know although it was read, as a
            sentence; ``None``: nothing.
    """

    taken_at_ns: int
    gpus: tuple[GpuSample, ...] = ()
    rejected: int = 0
    call_seconds: tuple[tuple[str, float], ...] = ()
    trouble: str | None = None
