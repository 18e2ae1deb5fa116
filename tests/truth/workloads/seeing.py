"""How a workload is observed: a driver that averages over windows, and a logger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.truth.workloads.spans import covered_ms
from tests.truth.workloads.truth import GpuTruth, Workload

SHORTEST_WINDOW_MS: Final = 1_000 / 6
LONGEST_WINDOW_MS: Final = 1_000.0
_LATE_SHARE: Final = 0.002
"""So many rows of a logger come late, because the machine has something else to do."""
_NS_PER_MS: Final = 1_000_000


class SeenLog(NamedTuple):
    """What a log says of one GPU.

    Attributes:
        stamps_ns: When each row was written, ns since the workload's begin, rising; shape (n,).
        percents: Whole percents of its newest ended window in which the GPU worked; shape (n,).
        window_ms: The length of the driver's windows.
    """

    stamps_ns: NDArray[np.int64]
    percents: NDArray[np.uint8]
    window_ms: float


@dataclass(frozen=True)
class Driver:
    """Averages over windows, one after the other; each is reported some time after its end.

    Attributes:
        window_ms: How long a window is, 1/6 s to 1 s.
        phase_ms: When one of them begins.
        delay_ms: How long after its end it is reported, up to a window.
    """

    window_ms: float
    phase_ms: float
    delay_ms: float

    def percents(self, gpu: GpuTruth, at_ms: NDArray[np.float64]) -> NDArray[np.uint8]:
        """What it answers at these times; shape as ``at_ms``."""
        ended = np.floor((at_ms - self.delay_ms - self.phase_ms) / self.window_ms)
        ends_ms = self.phase_ms + ended * self.window_ms
        busy_ms = covered_ms(gpu.busy, ends_ms) - covered_ms(gpu.busy, ends_ms - self.window_ms)
        return np.rint(100.0 * busy_ms / self.window_ms).astype(np.uint8)


def seen_all(workload: Workload, period_s: float, rng: np.random.Generator) -> tuple[SeenLog, ...]:
    """What one log says of all GPUs of a workload, in their order.

    The boards are alike (one length of window), their windows begin when they
    like, and the rows of a tick are written some milliseconds apart. Window,
    phase and delay of the drivers and the start, the jitter and the late rows
    of the logger are drawn.

    Args:
        workload: The truth.
        period_s: Seconds between two rows of a GPU, above 0.
        rng: Where chance comes from.
    """
    ticks_ms = logger_ticks_ms(workload.duration_ms, period_s, rng)
    window_ms = float(rng.uniform(SHORTEST_WINDOW_MS, LONGEST_WINDOW_MS))
    logs = []
    for gpu in workload.gpus:
        driver = Driver(window_ms, *(rng.random(2) * window_ms).tolist())
        stamps_ns = np.rint(ticks_ms * _NS_PER_MS).astype(np.int64)
        logs.append(SeenLog(stamps_ns, driver.percents(gpu, ticks_ms), window_ms))
        ticks_ms = ticks_ms + rng.uniform(0.5, min(4.0, period_s * 50), ticks_ms.size)
    return tuple(logs)


def logger_ticks_ms(
    duration_ms: int, period_s: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """When a logger reads: it sleeps for its period after each row, so that it drifts a little.

    A row takes 0 to 4 % of a period longer than the period; one in 500 comes
    0.3 to 3 periods late. Shape (n,), in ms, rising, before ``duration_ms``.
    """
    period_ms = period_s * 1_000
    most = int(duration_ms / period_ms) + 1
    lengths_ms = period_ms * (1.0 + 0.04 * rng.random(most))
    is_late = rng.random(most) < _LATE_SHARE
    lengths_ms += is_late * period_ms * rng.uniform(0.3, 3.0, most)
    lengths_ms[0] = period_ms * rng.random()
    ticks_ms = np.cumsum(lengths_ms)
    return np.asarray(ticks_ms[ticks_ms < duration_ms])
