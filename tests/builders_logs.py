"""Short ways to write down other people's logs, and to read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from gpumon.cli import analyze
from gpumon.core.report.report import GpuReport, Report
from gpumon.core.settings.detector import DetectorSettings
from gpumon.pipeline.log_analysis import LogAnalysis
from gpumon.sources.logs.detect import reader_for
from gpumon.sources.logs.log_sample import LogFacts, LogOptions, LogSample

HEADER = "timestamp, index, name, utilization.gpu [%], memory.used [MiB]"
NO_OPTIONS = LogOptions()


def told(column: int | str) -> LogOptions:
    """The options of a user who says which column is the utilisation."""
    return LogOptions(columns={"utilization.gpu": column})


def smi_stamp(at_s: float) -> str:
    """A moment as nvidia-smi writes it."""
    moment = datetime(2025, 6, 13) + timedelta(milliseconds=round(at_s * 1000))
    return f"{moment:%Y/%m/%d %H:%M:%S}.{moment.microsecond // 1000:03d}"


def smi_log(percents: Iterable[object], period_s: float = 1.0) -> str:
    """A log of one GPU with a header, one row a period."""
    rows = [
        f"{smi_stamp(at * period_s)}, 0, NVIDIA A40, {percent} %, 1830 MiB"
        for at, percent in enumerate(percents, start=1)
    ]
    return "\n".join([HEADER, *rows]) + "\n"


def read_log(
    text: str, options: LogOptions = NO_OPTIONS, name: str = "gpu.csv"
) -> tuple[list[LogSample], LogFacts]:
    """All samples of a log, and what is known of it."""
    reader = reader_for(iter(text.splitlines(keepends=True)), name=name, options=options)
    return list(reader.samples()), reader.facts()


def ratios(text: str, options: LogOptions = NO_OPTIONS) -> list[float | None]:
    """The busy ratios of a log, in file order."""
    return [sample.busy_ratio for sample in read_log(text, options)[0]]


def analysed(text: str, options: LogOptions = NO_OPTIONS) -> Report:
    """The report of a log."""
    reader = reader_for(iter(text.splitlines(keepends=True)), name="gpu.csv", options=options)
    analysis = LogAnalysis(DetectorSettings(), options.period_ns)
    analysis.take(reader.samples())
    return analysis.report("gpu.csv", reader.facts())


def read_file(path: str, options: LogOptions) -> analyze.ReadLog:
    """What `gpumon analyze` makes of one file."""
    with analyze.open_log(path) as text:
        return analyze.read_log(text, options)


def analyse_file(path: str, options: LogOptions) -> Report:
    """The report of one file."""
    return read_file(path, options).report


def only_gpu(report: Report) -> GpuReport:
    """The one GPU of a report."""
    (gpu,) = report.gpus
    return gpu


def rows(*lines: str) -> str:
    """Lines as a log."""
    return "\n".join(lines) + "\n"


def seconds_of(stamps_ns: Sequence[int]) -> list[float]:
    """Nanoseconds from the first stamp on, as seconds."""
    return [(stamp_ns - stamps_ns[0]) / 1e9 for stamp_ns in stamps_ns]
