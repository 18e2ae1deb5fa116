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
"""Share of a logger's rows that are late."""
_NS_PER_MS: Final = 1_000_000


class SeenLog(NamedTuple):
    """The rows of a log for one GPU.

    Attributes:
        stamps_ns: Time of each row since the workload's begin, rising; shape (n,).
        percents: Utilisation of the newest complete window, in whole percent; shape (n,).
        window_ms: The length of the driver's windows.
    """

    stamps_ns: NDArray[np.int64]
    percents: NDArray[np.uint8]
    window_ms: float


@dataclass(frozen=True)
class Driver:
    """Averages over consecutive windows; each is reported some time after its end.

    Attributes:
        window_ms: How long a window is, 1/6 s to 1 s.
        phase_ms: When one of them begins.
        delay_ms: How long after its end it is reported, up to a window.
    """

    window_ms: float
    phase_ms: float
    delay_ms: float

    def percents(self, gpu: GpuTruth, at_ms: NDArray[np.float64]) -> NDArray[np.uint8]:
        """Its answers at these times; shape as ``at_ms``."""
        ended = np.floor((at_ms - self.delay_ms - self.phase_ms) / self.window_ms)
        ends_ms = self.phase_ms + ended * self.window_ms
        busy_ms = covered_ms(gpu.busy, ends_ms) - covered_ms(gpu.busy, ends_ms - self.window_ms)
        return np.rint(100.0 * busy_ms / self.window_ms).astype(np.uint8)


def seen_all(workload: Workload, period_s: float, rng: np.random.Generator) -> tuple[SeenLog, ...]:
    """The log of each GPU of a workload, with a row every ``period_s``.

    The boards have windows of one length with different offsets; the rows of a tick are some
    milliseconds apart. The driver's window, phase and delay are drawn, and the logger's start,
    jitter and late rows.
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
    """When a logger reads, with some drift; in ms, shape (n,), rising, before ``duration_ms``."""
    period_ms = period_s * 1_000
    most = int(duration_ms / period_ms) + 1
    lengths_ms = period_ms * (1.0 + 0.04 * rng.random(most))
    is_late = rng.random(most) < _LATE_SHARE
    lengths_ms += is_late * period_ms * rng.uniform(0.3, 3.0, most)
    lengths_ms[0] = period_ms * rng.random()
    ticks_ms = np.cumsum(lengths_ms)
    return np.asarray(ticks_ms[ticks_ms < duration_ms])
