"""GPUs that do not exist, busy by a script: for a first look, for tests and for benchmarks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpumon.core.clock import Clock
from gpumon.core.device import Device
from gpumon.core.sample import BusySample, Frame, GpuSample
from gpumon.core.units import NS_PER_S
from gpumon.errors import UsageError
from gpumon.sources.driver_window import sample_of, windows_between

_MEMORY_BYTES = 16 * 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """A GPU that works and pauses in turn, beginning with work.

    Attributes:
        busy_seconds: Length of each burst.
        idle_seconds: Length of each pause.
        lost_after_seconds: When it falls off the bus; ``None``: never.
    """

    busy_seconds: float
    idle_seconds: float
    lost_after_seconds: float | None = None

    def busy_ns_before(self, elapsed_ns: int) -> int:
        """Busy time since the start."""
        busy_ns = round(self.busy_seconds * NS_PER_S)
        period_ns = busy_ns + round(self.idle_seconds * NS_PER_S)
        if period_ns == 0:
            return 0
        rounds, rest_ns = divmod(elapsed_ns, period_ns)
        return rounds * busy_ns + min(rest_ns, busy_ns)

    def is_lost(self, elapsed_ns: int) -> bool:
        """Whether it has fallen off the bus by then."""
        return (
            self.lost_after_seconds is not None and elapsed_ns >= self.lost_after_seconds * NS_PER_S
        )


_HEALTHY = Rhythm(busy_seconds=0.980, idle_seconds=0.020)

SCRIPTS: dict[str, tuple[Rhythm, ...]] = {
    "input-bound": (Rhythm(busy_seconds=1.5, idle_seconds=1.5), _HEALTHY),
    "healthy": (_HEALTHY, _HEALTHY),
    "checkpointing": (Rhythm(busy_seconds=20.0, idle_seconds=4.0), _HEALTHY),
    "imbalanced": (_HEALTHY, Rhythm(busy_seconds=0.060, idle_seconds=0.040)),
    "flat": (Rhythm(busy_seconds=0.030, idle_seconds=0.030),),
    "idle": (Rhythm(busy_seconds=0.0, idle_seconds=1.0),),
    "falls-off": (_HEALTHY, Rhythm(busy_seconds=1.0, idle_seconds=0.0, lost_after_seconds=10.0)),
    "eight": (Rhythm(busy_seconds=1.5, idle_seconds=1.5),) * 4 + (_HEALTHY,) * 4,
}
"""What ``--source simulated:SCRIPT`` knows; one rhythm for each GPU."""


class SimulatedSource:
    """Says what a driver would say of GPUs that follow a script."""

    def __init__(self, script: str, clock: Clock) -> None:
        """Start the script now.

        Raises:
            UsageError: There is no script of that name.
        """
        if script not in SCRIPTS:
            raise UsageError(
                f"no simulated script called {script!r}: choose one of {', '.join(sorted(SCRIPTS))}"
            )
        self._rhythms = SCRIPTS[script]
        self._clock = clock
        self._started_ns = clock.monotonic_ns()
        self._sampled_until_ns = self._started_ns
        self._devices = tuple(
            Device(
                uuid=f"GPU-simulated-{index}",
                index=index,
                name=f"Simulated GPU ({script})",
                memory_capacity_bytes=_MEMORY_BYTES,
            )
            for index in range(len(self._rhythms))
        )

    @property
    def simulated(self) -> bool:
        """These GPUs are made up."""
        return True

    def read(self) -> Frame:
        """The windows that have ended since the last call."""
        now_ns = self._clock.monotonic_ns()
        windows = list(windows_between(self._sampled_until_ns, now_ns))
        if windows:
            self._sampled_until_ns = windows[-1][1]
        return Frame(
            taken_at_ns=now_ns,
            gpus=tuple(
                self._sample(device, rhythm, windows)
                for device, rhythm in zip(self._devices, self._rhythms, strict=True)
            ),
        )

    def close(self) -> None:
        """Nothing to let go of."""

    def _sample(self, device: Device, rhythm: Rhythm, windows: list[tuple[int, int]]) -> GpuSample:
        elapsed_ns = self._sampled_until_ns - self._started_ns
        if rhythm.is_lost(elapsed_ns):
            return GpuSample(device=device, error="GPU is lost: it has fallen off the bus")
        busy = tuple(self._window(rhythm, *window) for window in windows)
        level = busy[-1].busy_ratio if busy else None
        return GpuSample(
            device=device,
            busy=busy,
            utilization_ratio=level,
            memory_used_bytes=_MEMORY_BYTES // 2,
            power_watts=None if level is None else 60.0 + 240.0 * level,
            temperature_celsius=45.0 + math.floor(20.0 * (level or 0.0)),
        )

    def _window(self, rhythm: Rhythm, start_ns: int, end_ns: int) -> BusySample:
        before_ns = rhythm.busy_ns_before(start_ns - self._started_ns)
        after_ns = rhythm.busy_ns_before(end_ns - self._started_ns)
        return sample_of(start_ns, end_ns, after_ns - before_ns)
