"""A report of rows that some reader gave, without a log's text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpumon.core.report.report import Report
from gpumon.core.settings.detector import DetectorSettings
from gpumon.pipeline.log_analysis import LogAnalysis
from gpumon.sources.logs.log_sample import LogFacts, LoggedGpu, LogSample
from gpumon.sources.logs.stamps.log_clock import NO_CLOCK
from tests.builders_time import s


def report_of(rows: Iterable[LogSample], gpus: Sequence[LoggedGpu] = (LoggedGpu(),)) -> Report:
    """The report of rows, of these GPUs in the order of their positions."""
    return analysis_of(rows).report("gpu.csv", facts_of(gpus))


def analysis_of(rows: Iterable[LogSample]) -> LogAnalysis:
    """Rows, settled."""
    analysis = LogAnalysis(DetectorSettings())
    analysis.take(rows)
    return analysis


def facts_of(gpus: Sequence[LoggedGpu]) -> LogFacts:
    """All that a reader knows of a log of these GPUs, without a clock."""
    return LogFacts(clock=NO_CLOCK, gpus=tuple(gpus), skipped_lines=0, period_ns=None, notes=())


def rows_of(
    gpu: int,
    ratios: Iterable[float | None],
    *,
    offset_s: float = 0.0,
    used_bytes: int | None = None,
) -> list[LogSample]:
    """A row a second of one GPU, from that moment on."""
    return [
        LogSample(gpu, s(1_000 + offset_s + at), ratio, used_bytes)
        for at, ratio in enumerate(ratios)
    ]
