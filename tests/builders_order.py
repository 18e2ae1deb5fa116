"""Rows of a log, as they came and in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpumon.sources.logs.gpu_log import GpuLog
from gpumon.sources.logs.log_sample import LogFacts, LoggedGpu, LogOptions, LogSample
from gpumon.sources.logs.stamps.log_order import LogInOrder

S = 1_000_000_000
HOUR = 3_600
TEN = 10 * HOUR


class _Rows(GpuLog):
    """A reader that has its rows already."""

    def __init__(self, samples: Sequence[LogSample]) -> None:
        super().__init__(iter(()), name="gpu.csv", options=LogOptions())
        self._samples = samples
        self._has_told = True
        for gpu in {row.gpu for row in samples}:
            self._gpus.position(gpu, LoggedGpu())

    def _read(self) -> Iterator[LogSample]:
        yield from self._samples


def row(at_s: float, busy: float | None = 1.0, gpu: int = 0) -> LogSample:
    return LogSample(gpu, round(at_s * S), busy)


def in_order(samples: Sequence[LogSample]) -> tuple[list[LogSample], LogFacts]:
    log = log_in_order(samples)
    return list(log.samples()), log.facts()


def settled(written: Sequence[LogSample]) -> tuple[list[LogSample], tuple[str, ...]]:
    """What becomes of these rows, and what is said of it; whatever is dropped has been counted."""
    samples, facts = in_order(written)
    assert len(samples) + facts.skipped_lines == len(written)
    return samples, facts.notes


def log_in_order(samples: Sequence[LogSample]) -> LogInOrder:
    return LogInOrder(_Rows(samples), name="gpu.csv")


def seconds(samples: Sequence[LogSample]) -> list[float]:
    return [sample.stamp_ns / S for sample in samples]


def every_second(start_s: float, count: int, period_s: float = 1.0) -> list[LogSample]:
    return [row(start_s + at * period_s) for at in range(count)]
