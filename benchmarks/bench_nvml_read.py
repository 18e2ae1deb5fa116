"""What does reading eight GPUs cost, next to the least possible with pynvml?

    python -m benchmarks.bench_nvml_read

Both run on the fake libnvidia-ml.so.1 in this process, in turns. A driver call is nearly free
there, so this compares the caller's own work. ``hot`` reads in a loop; ``spaced`` sleeps 50 ms
between two reads, as a sampler does, and pays for cold caches. The fake's clock moves on by a
second before each of gpumon's reads.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pynvml

from benchmarks.cpu_spent import cpu_us, spaced_cpu_us
from gpumon.sources.nvml.source import NvmlSource
from tests.builders.nvml import DriverClock
from tests.fakenvml.build import build_fake
from tests.fakenvml.control import FakeNvml

GPUS = 8
ROUNDS = 5
HOT_READS = 3_000
SPACED_READS = 60
SPACING_S = 0.05
BUDGET_US = 4_000
"""0.4 % of a core at one reading a second: what the whole daemon may take."""


def bare_pynvml() -> Callable[[], None]:
    """Utilisation, memory, power, temperature and clock of every GPU: five calls each."""
    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(GPUS)]

    def read() -> None:
        for handle in handles:
            pynvml.nvmlDeviceGetUtilizationRates(handle)
            pynvml.nvmlDeviceGetMemoryInfo(handle)
            pynvml.nvmlDeviceGetPowerUsage(handle)
            pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)
            pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)

    return read


def gpumon_read(fake: FakeNvml) -> Callable[[], int]:
    """A frame; returns how many samples of utilisation it brought."""
    clock = DriverClock(fake)
    source = NvmlSource(clock, read_clock_ns=clock.read_clock_ns)
    return lambda: sum([len(gpu.busy) for gpu in source.read().gpus])


def hot_us(read: Callable[[], object]) -> float:
    """CPU microseconds of one read in a loop."""
    return cpu_us(read, times=HOT_READS)


def spaced_us(read: Callable[[], object]) -> float:
    """CPU microseconds of one read, as a sampler does it."""
    return spaced_cpu_us(read, times=SPACED_READS, spacing_s=SPACING_S)


def compare(name: str, fake: FakeNvml, measure: Callable[[Callable[[], object]], float]) -> float:
    """Print one row and return gpumon's CPU of a read, in microseconds."""
    bare, ours = bare_pynvml(), gpumon_read(fake)
    brought: list[int] = []

    def counted() -> None:
        fake.advance(1.0)
        brought.append(ours())

    rounds = [(measure(bare), measure(counted)) for _ in range(ROUNDS)]
    bare_us = statistics.median(row[0] for row in rounds)
    ours_us = statistics.median(row[1] for row in rounds)
    print(
        f"{name:<8}{bare_us:>12.1f}{ours_us:>12.1f}{ours_us / bare_us:>9.2f}"
        f"{statistics.mean(brought) / GPUS:>14.1f}"
    )
    return ours_us


def main() -> int:
    """Run both comparisons; fail where gpumon's read alone exceeds the tick's whole budget."""
    with tempfile.TemporaryDirectory() as folder:
        library = build_fake(Path(folder))
        ctypes.CDLL(str(library))
        with FakeNvml(Path(folder) / "control", gpus=GPUS) as fake:
            for slot in range(GPUS):
                fake.wave(slot, period_s=1.0, busy_ratio=0.7)
                fake.run(slot, 4000 + slot)
            os.environ["FAKENVML_CTL"] = str(fake.path)
            print(f"{'8 GPUs':<8}{'bare us':>12}{'gpumon us':>12}{'ratio':>9}{'samples/GPU':>14}")
            costs_us = [
                compare("hot", fake, hot_us),
                compare("spaced", fake, spaced_us),
            ]
    return 0 if max(costs_us) < BUDGET_US else 1


if __name__ == "__main__":
    sys.exit(main())
