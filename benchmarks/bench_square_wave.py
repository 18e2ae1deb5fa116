"""What does one reading a second recover of a known square wave, drained and polled?

    python -m benchmarks.bench_square_wave [SECONDS]

The fake GPU works in a rhythm of exactly one second, the worst case for a reading a second.
``drain`` is gpumon's own source and ledger; ``poll`` calls nvmlDeviceGetUtilizationRates once a
second, as most tools do. Both observe the same GPU at the same time; the truth is computed from the
wave.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pynvml

from gpumon.core.accounting.ledger import GpuLedger
from gpumon.core.clock import Clock
from gpumon.sources.nvml.source import NvmlSource
from gpumon.sources.system_clock import SystemClock
from tests.fakenvml.build import build_fake
from tests.fakenvml.control import FakeNvml

CASES = ((1.0, 0.7), (1.0, 0.3), (3.0, 0.8), (0.4, 0.5))


class Recovered(NamedTuple):
    """What was seen of one GPU.

    Attributes:
        true_ratio: Busy share of the time observed, from the wave.
        drained_ratio: The same, as gpumon saw it.
        polled_ratio: Mean of the polls.
        true_gaps: Pauses that ended within the time observed.
        drained_gaps: The same, as gpumon counted them.
        polled_gaps: Runs of polls at or below 35 % between two above.
    """

    true_ratio: float
    drained_ratio: float
    polled_ratio: float
    true_gaps: int
    drained_gaps: int
    polled_gaps: int


def watch(
    fake: FakeNvml,
    cases: tuple[tuple[float, float], ...],
    seconds: int,
    clock: Clock,
    source: NvmlSource,
) -> list[Recovered]:
    """Watch one GPU a case for so many seconds, once a second, and close the source."""
    for slot, (period_s, busy) in enumerate(cases):
        fake.wave(slot, period_s=period_s, busy_ratio=busy)
    source.read()  # only sets the position
    handles = [pynvml.nvmlDeviceGetHandleByIndex(slot) for slot in range(len(cases))]
    ledgers = [GpuLedger() for _ in cases]
    polls: list[list[float]] = [[] for _ in cases]
    spans: list[list[int]] = [[] for _ in cases]
    began_ns = clock.monotonic_ns()
    for second in range(1, seconds + 1):
        clock.sleep_until_ns(began_ns + second * 1_000_000_000)
        for slot, gpu in enumerate(source.read().gpus):
            ledgers[slot].observe(gpu.busy)
            polls[slot].append(pynvml.nvmlDeviceGetUtilizationRates(handles[slot]).gpu / 100)
            spans[slot] += [stamp for sample in gpu.busy for stamp in sample[:2]]
    source.close()
    return [
        _recovered(fake, slot, ledgers[slot], polls[slot], (min(spans[slot]), max(spans[slot])))
        for slot in range(len(cases))
    ]


def _recovered(
    fake: FakeNvml, slot: int, ledger: GpuLedger, polls: list[float], span_ns: tuple[int, int]
) -> Recovered:
    totals = ledger.snapshot()
    true_busy_ns = fake.busy_ns(slot, *span_ns)
    return Recovered(
        true_ratio=true_busy_ns / (span_ns[1] - span_ns[0]),
        drained_ratio=totals.busy_ns / totals.observed_ns,
        polled_ratio=sum(polls) / len(polls),
        true_gaps=_true_gaps(fake, slot, span_ns),
        drained_gaps=totals.gaps.count,
        polled_gaps=_gaps_between(polls),
    )


def _true_gaps(fake: FakeNvml, slot: int, span_ns: tuple[int, int]) -> int:
    gpu = fake.gpu(slot)
    first, last = (
        (stamp_ns - fake.control.origin_ns + gpu.phase_ns) // gpu.period_ns for stamp_ns in span_ns
    )
    return int(last - first)


def _gaps_between(levels: list[float]) -> int:
    shape = "".join("b" if level > 0.35 else "." for level in levels).strip(".")
    return sum(1 for pause in shape.split("b") if pause)


def main() -> int:
    """Print the table; 1 where gpumon misses its goal on the first row."""
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 25
    with tempfile.TemporaryDirectory() as folder:
        ctypes.CDLL(str(build_fake(Path(folder))))
        os.environ["FAKENVML_CTL"] = f"{folder}/control"
        with FakeNvml(Path(folder) / "control", gpus=len(CASES)) as fake:
            pynvml.nvmlInit()
            clock = SystemClock()
            rows = watch(fake, CASES, seconds, clock, NvmlSource(clock))
    print(f"{'period':>7}{'truth':>10}{'drain':>9}{'poll':>9}{'gaps':>7}{'drain':>7}{'poll':>6}")
    for (period_s, _), row in zip(CASES, rows, strict=True):
        print(
            f"{period_s:>5.1f} s{100 * row.true_ratio:>8.1f} %{100 * row.drained_ratio:>7.1f} %"
            f"{100 * row.polled_ratio:>7.1f} %{row.true_gaps:>7}{row.drained_gaps:>7}"
            f"{row.polled_gaps:>6}"
        )
    first = rows[0]
    right = abs(first.drained_ratio - first.true_ratio) <= 0.01
    return 0 if right and first.drained_gaps >= first.true_gaps - 1 else 1


if __name__ == "__main__":
    sys.exit(main())
