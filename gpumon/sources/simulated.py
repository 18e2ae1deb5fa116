"""Simulated GPUs that follow a script, for a first try, tests and benchmarks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpumon.core.clock import NS_PER_S, Clock, nanoseconds
from gpumon.core.sample import ActivitySample, BusySample, Device, Frame, GpuDetails, GpuSample
from gpumon.errors import UsageError
from gpumon.sources.gpu_source import ReadNow

WINDOW_NS = 166_666_667
"""Length of a sample: the shortest that NVML documents, 1/6 s."""


def windows_between(from_ns: int, until_ns: int) -> Iterable[tuple[int, int]]:
    """Complete windows, counted from ``from_ns``, that have ended by ``until_ns``."""
    return zip(
        range(from_ns, until_ns - WINDOW_NS + 1, WINDOW_NS),
        range(from_ns + WINDOW_NS, until_ns + 1, WINDOW_NS),
        strict=False,
    )


def sample_of(start_ns: int, end_ns: int, busy_ns: int) -> BusySample:
    """A sample, rounded to percent as by NVML."""
    percent = round(100 * min(busy_ns, end_ns - start_ns) / (end_ns - start_ns))
    return BusySample(start_ns, end_ns, percent / 100)


_MEMORY_BYTES = 16 * 2**30
_LOST = "the GPU has fallen off the bus, as its script says: a real one needs a reset or a reboot"
_POWER_LIMIT_WATTS = 300.0
_SM_CLOCK_HERTZ = 1.98e9
_ACTIVITY_NS = 5 * NS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """SM activity while the GPU is busy, as by GPM. Ratios 0 to 1."""

    sm_active_ratio: float
    tensor_active_ratio: float
    memory_bandwidth_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DutyCycle:
    """A GPU that alternates between work and pauses, beginning with work.

    Attributes:
        busy_seconds: Length of each burst, or the mean of three.
        idle_seconds: Length of each pause.
        lost_after_seconds: When it falls off the bus; ``None``: never.
        swing: By what part the second of three bursts is shorter, and the third longer.
        filling: Its SM activity while it is busy; ``None``: it reports none.
        mig_index: Which instance of GPU 0 it is; ``None``: a complete GPU.
        mig_enabled: Whether it is MIG-partitioned, and has no utilisation of its own.
    """

    busy_seconds: float
    idle_seconds: float
    lost_after_seconds: float | None = None
    swing: float = 0.0
    filling: Filling | None = None
    mig_index: int | None = None
    mig_enabled: bool = False

    def busy_ns_before(self, elapsed_ns: int) -> int:
        busy_ns, idle_ns = nanoseconds(self.busy_seconds), nanoseconds(self.idle_seconds)
        if busy_ns + idle_ns == 0:
            return 0
        rounds, rest_ns = divmod(elapsed_ns, 3 * (busy_ns + idle_ns))
        before_ns = 3 * rounds * busy_ns
        swing_ns = round(self.swing * busy_ns)
        for burst_ns in (busy_ns, busy_ns - swing_ns, busy_ns + swing_ns):
            before_ns += min(rest_ns, burst_ns)
            rest_ns = max(0, rest_ns - burst_ns - idle_ns)
        return before_ns

    def is_lost(self, elapsed_ns: int) -> bool:
        lost_after_s = self.lost_after_seconds
        return lost_after_s is not None and elapsed_ns >= nanoseconds(lost_after_s)


_HEALTHY = DutyCycle(busy_seconds=0.980, idle_seconds=0.020)
_LATE = DutyCycle(busy_seconds=1.5, idle_seconds=1.5, swing=0.4)
"""A prefetch queue that runs empty after bursts of varying length."""
_FULL = Filling(sm_active_ratio=0.94, tensor_active_ratio=0.46, memory_bandwidth_ratio=0.38)
_QUARTER = Filling(sm_active_ratio=0.25, tensor_active_ratio=0.03, memory_bandwidth_ratio=0.12)
_BUSY_AND_FULL = DutyCycle(busy_seconds=0.097, idle_seconds=0.003, filling=_FULL)

SCRIPTS: dict[str, tuple[DutyCycle, ...]] = {
    "input-bound": (_LATE, _HEALTHY),
    "healthy": (_HEALTHY, _HEALTHY),
    "checkpointing": (DutyCycle(busy_seconds=20.0, idle_seconds=4.0), _HEALTHY),
    "imbalanced": (_HEALTHY, DutyCycle(busy_seconds=0.060, idle_seconds=0.040)),
    "flat": (DutyCycle(busy_seconds=0.030, idle_seconds=0.030),),
    "idle": (DutyCycle(busy_seconds=0.0, idle_seconds=1.0),),
    "falls-off": (_HEALTHY, DutyCycle(busy_seconds=1.0, idle_seconds=0.0, lost_after_seconds=10.0)),
    "under-filled": (replace(_BUSY_AND_FULL, filling=_QUARTER), _BUSY_AND_FULL),
    "mig": (
        DutyCycle(busy_seconds=0.0, idle_seconds=1.0, mig_enabled=True),
        replace(_BUSY_AND_FULL, mig_index=0),
        replace(_LATE, filling=_FULL, mig_index=1),
    ),
    "eight": (_LATE,) * 4 + (_HEALTHY,) * 4,
}
"""Scripts of ``--source simulated:SCRIPT``: one cycle for each GPU."""


def script_called(name: str) -> tuple[DutyCycle, ...]:
    """The script of that name.

    Raises:
        UsageError: There is none; names the existing ones.
    """
    if name not in SCRIPTS:
        raise UsageError(
            f"no simulated script called {name!r}: choose one of {', '.join(sorted(SCRIPTS))}"
        )
    return SCRIPTS[name]


class SimulatedSource:
    """GPUs that follow a script."""

    def __init__(self, script: str, clock: Clock) -> None:
        """Start the script now.

        Raises:
            UsageError: There is no script of that name.
        """
        self._cycles = script_called(script)
        self._clock = clock
        self._started_ns = clock.monotonic_ns()
        self._sampled_until_ns = self._started_ns
        self._devices = tuple(
            _device(script, place, cycle) for place, cycle in enumerate(self._cycles)
        )
        self._activities: list[ActivitySample | None] = [None] * len(self._cycles)
        self._active_until_ns = self._started_ns

    def read(self, now: ReadNow = ReadNow.SAMPLES) -> Frame:
        now_ns = self._clock.monotonic_ns()
        windows = list(windows_between(self._sampled_until_ns, now_ns))
        if windows:
            self._sampled_until_ns = windows[-1][1]
        if now_ns - self._active_until_ns >= _ACTIVITY_NS:
            stretch = self._active_until_ns, now_ns
            self._activities = [self._activity(cycle, *stretch) for cycle in self._cycles]
            self._active_until_ns = now_ns
        return Frame(
            taken_at_ns=now_ns,
            gpus=tuple(
                self._sample(device, cycle, windows)._replace(activity=activity)
                for device, cycle, activity in zip(
                    self._devices, self._cycles, self._activities, strict=True
                )
            ),
        )

    def close(self) -> None:
        """Nothing is open."""

    def _sample(
        self, device: Device, cycle: DutyCycle, windows: list[tuple[int, int]]
    ) -> GpuSample:
        elapsed_ns = self._sampled_until_ns - self._started_ns
        if cycle.is_lost(elapsed_ns):
            return GpuSample(device=device, error=_LOST)
        if device.mig_enabled:
            return GpuSample(device=device, memory_used_bytes=_MEMORY_BYTES // 2)
        busy = tuple(sample_of(*window, self._busy_ns(cycle, *window)) for window in windows)
        utilization_ratio = busy[-1].busy_ratio if busy else None
        return GpuSample(
            device=device,
            busy=busy,
            utilization_ratio=utilization_ratio,
            memory_used_bytes=(device.memory_capacity_bytes or 0) // 2,
            power_watts=_power_watts(device, cycle, utilization_ratio),
            temperature_celsius=45.0 + math.floor(20.0 * (utilization_ratio or 0.0)),
            sm_clock_hertz=None if cycle.filling is None else _SM_CLOCK_HERTZ,
            details=None if cycle.filling is None else _DETAILS,
        )

    def _activity(self, cycle: DutyCycle, start_ns: int, end_ns: int) -> ActivitySample | None:
        filling = cycle.filling
        if filling is None:
            return None
        busy_ratio = self._busy_ns(cycle, start_ns, end_ns) / (end_ns - start_ns)
        return ActivitySample(
            start_ns=start_ns,
            end_ns=end_ns,
            graphics_ratio=busy_ratio,
            sm_active_ratio=busy_ratio * filling.sm_active_ratio,
            sm_occupancy_ratio=busy_ratio * filling.sm_active_ratio / 2,
            tensor_active_ratio=busy_ratio * filling.tensor_active_ratio,
            memory_bandwidth_ratio=busy_ratio * filling.memory_bandwidth_ratio,
        )

    def _busy_ns(self, cycle: DutyCycle, start_ns: int, end_ns: int) -> int:
        before_ns = cycle.busy_ns_before(start_ns - self._started_ns)
        return cycle.busy_ns_before(end_ns - self._started_ns) - before_ns


_DETAILS = GpuDetails(
    read_at_ns=0,
    power_limit_watts=_POWER_LIMIT_WATTS,
    sm_clock_max_hertz=_SM_CLOCK_HERTZ,
    throttle_reasons=(),
)


def _device(script: str, place: int, cycle: DutyCycle) -> Device:
    is_part = cycle.mig_index is not None
    return Device(
        uuid=f"MIG-simulated-{cycle.mig_index}" if is_part else f"GPU-simulated-{place}",
        index=0 if is_part else place,
        name=f"Simulated {'MIG instance' if is_part else 'GPU'} ({script})",
        memory_capacity_bytes=_MEMORY_BYTES // 2 if is_part else _MEMORY_BYTES,
        mig_enabled=cycle.mig_enabled,
        parent_uuid="GPU-simulated-0" if is_part else None,
        mig_index=cycle.mig_index,
    )


def _power_watts(device: Device, cycle: DutyCycle, utilization_ratio: float | None) -> float | None:
    if utilization_ratio is None or device.mig_index is not None:
        return None  # power is known for the board, not for an instance
    full = 1.0 if cycle.filling is None else cycle.filling.sm_active_ratio
    return 60.0 + 240.0 * utilization_ratio * full
