"""Logs as tools write them, their rows, and unusual ones."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from types import MappingProxyType
from typing import Final, NamedTuple

import pytest

from gpumon.cli import analyze
from gpumon.core.report.report import GpuReport, Report
from gpumon.core.settings.detector import DetectorSettings
from gpumon.errors import UnreadableLogError, UsageError
from gpumon.pipeline.log_analysis import LogAnalysis
from gpumon.pipeline.log_reader_process import RowSource
from gpumon.sources.logs.detect import reader_for
from gpumon.sources.logs.log_sample import LogFacts, LoggedGpu, LogOptions, LogSample, RowColumns
from gpumon.sources.logs.stamps.log_clock import NO_CLOCK
from tests.builders.time import s

HEADER = "timestamp, index, name, utilization.gpu [%], memory.used [MiB]"
NO_OPTIONS = LogOptions()


def util_at(column: int | str) -> LogOptions:
    """Options that name the column of the utilisation."""
    return LogOptions(columns={"utilization.gpu": column})


def smi_stamp(at_s: float) -> str:
    """A time as nvidia-smi writes it."""
    time = datetime(2025, 6, 13) + timedelta(milliseconds=round(at_s * 1000))
    return f"{time:%Y/%m/%d %H:%M:%S}.{time.microsecond // 1000:03d}"


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
    """All samples and facts of a log."""
    reader = reader_for(iter(text.splitlines(keepends=True)), name=name, options=options)
    return list(samples_of(reader)), reader.facts()


def samples_of(reader: RowSource) -> Iterator[LogSample]:
    """The rows of a log, in the order of time within each block."""
    for block in reader.blocks():
        samples = (
            LogSample(gpu, *row) for gpu, *columns in block for row in zip(*columns, strict=True)
        )
        yield from sorted(samples, key=attrgetter("stamp_ns"))


def blocks_of(rows: Iterable[LogSample]) -> Iterator[list[RowColumns]]:
    """Rows as a reader yields them, a block each."""
    for gpu, stamp_ns, busy_ratio, used_bytes in rows:
        yield [RowColumns(gpu, (stamp_ns,), (busy_ratio,), (used_bytes,))]


def ratios(text: str, options: LogOptions = NO_OPTIONS) -> list[float | None]:
    return [sample.busy_ratio for sample in read_log(text, options)[0]]


def analysed(text: str, options: LogOptions = NO_OPTIONS) -> Report:
    reader = reader_for(iter(text.splitlines(keepends=True)), name="gpu.csv", options=options)
    analysis = LogAnalysis(DetectorSettings(), options.period_ns)
    analysis.ingest(reader.blocks())
    return analysis.report("gpu.csv", reader.facts())


def read_file(path: str, options: LogOptions) -> analyze.ReadLog:
    with analyze.open_log(path) as text:
        return analyze.read_log(text, options)


def analyse_file(path: str, options: LogOptions) -> Report:
    return read_file(path, options).report


def only_gpu(report: Report) -> GpuReport:
    (gpu,) = report.gpus
    return gpu


def rows(*lines: str) -> str:
    return "\n".join(lines) + "\n"


def seconds_of(stamps_ns: Sequence[int]) -> list[float]:
    """Seconds since the first stamp."""
    return [(stamp_ns - stamps_ns[0]) / 1e9 for stamp_ns in stamps_ns]


CSV = (
    "timestamp, index, utilization.gpu [%]",
    "2026/01/24 21:52:14.120, 0, 94 %",
    "2026/01/24 21:52:15.120, 0, 0 %",
    "2026/01/24 21:52:16.120, 0, 97 %",
)
DMON = ("# gpu     sm    mem", "# Idx      %      %", "    0     94     40", "    0      0      0")


@dataclass(frozen=True)
class Example:
    """A log of a few lines, its options, and what a reader must find."""

    log: str
    options: LogOptions
    expected: Mapping[str, object]

    def read(self) -> dict[str, object]:
        """What a reader finds, for the expected keys."""
        try:
            samples, facts = read_log(self.log, self.options)
        except (UnreadableLogError, UsageError) as refusal:
            sentence, pattern = str(refusal), str(self.expected.get("refused"))
            return {"refused": pattern if re.search(pattern, sentence) else sentence}
        shares, stamps_ns = [one.busy_ratio for one in samples], [one.stamp_ns for one in samples]
        used = [one.memory_used_bytes for one in samples]
        read: dict[str, object] = {
            "busy": [share if share is None else round(100 * share, 9) for share in shares],
            "of": [one.gpu for one in samples],
            "at_s": seconds_of(stamps_ns),
            "used_mib": [memory if memory is None else memory / (1 << 20) for memory in used],
            "began": facts.clock.iso(stamps_ns[0]),
            "is_wall": facts.clock.is_wall,
            "gpus": facts.gpus,
            "gpu_count": len(facts.gpus),
            "period_ns": facts.period_ns,
            "skipped": facts.skipped_lines,
            "broken_off": facts.broken_off,
            "notes": facts.notes,
            "noted": self._noted(" ".join(facts.notes)),
        }
        return {key: read[key] for key in self.expected}

    def _noted(self, notes: str) -> object:
        part = str(self.expected.get("noted"))
        return part if part in notes else notes


def example(
    *lines: str, options: LogOptions = NO_OPTIONS, is_cut: bool = False, **expected: object
) -> Example:
    """An example of these lines; ``skipped`` says how many must be unused.

    Args:
        lines: Of the log.
        options: Of its user.
        is_cut: Whether the last line has no end.
        expected: ``busy`` percent of each sample, ``of`` which GPU it is, ``at_s`` seconds from the
            first one, ``began`` the time of the first, ``used_mib`` memory in use, ``noted`` a part
            of the notes, ``refused`` a pattern of the error, and the other keys of
            ``Example.read``.
    """
    expected = expected if "refused" in expected else {"skipped": 0, **expected}
    log = rows(*(line.removesuffix("\n") for line in lines))
    return Example(log.removesuffix("\n") if is_cut else log, options, expected)


def verified(examples: Mapping[str, Example]) -> Callable[..., None]:
    """A test method that each example is read as expected."""

    @pytest.mark.parametrize("example", examples.values(), ids=examples.keys())
    def test(_: object, example: Example) -> None:
        assert example.read() == example.expected

    return test


def report_of(rows: Iterable[LogSample], gpus: Sequence[LoggedGpu] = (LoggedGpu(),)) -> Report:
    return analysis_of(rows).report("gpu.csv", facts_of(gpus))


def analysis_of(rows: Iterable[LogSample]) -> LogAnalysis:
    analysis = LogAnalysis(DetectorSettings())
    analysis.ingest(blocks_of(rows))
    return analysis


def facts_of(gpus: Sequence[LoggedGpu]) -> LogFacts:
    """The facts of a log of these GPUs, without a clock."""
    return LogFacts(clock=NO_CLOCK, gpus=tuple(gpus), skipped_lines=0, period_ns=None, notes=())


def rows_of(
    gpu: int,
    ratios: Iterable[float | None],
    *,
    offset_s: float = 0.0,
    used_bytes: int | None = None,
) -> list[LogSample]:
    """A row a second of one GPU."""
    return [
        LogSample(gpu, s(1_000 + offset_s + at), ratio, used_bytes)
        for at, ratio in enumerate(ratios)
    ]


BUS_IDS: Final = ("00000000:18:00.0", "00000000:3B:00.0")
LOST: Final = (
    "Unable to determine the device handle for GPU 0000:18:00.0: GPU is lost.  "
    "Reboot the system to recover this GPU"
)
MISMATCH: Final = (
    "Failed to initialize NVML: Driver/library version mismatch",
    "NVML library version: 550.54",
)
NO_DRIVER: Final = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running."
)
NO_DEVICES: Final = "No devices were found"


class Both(NamedTuple):
    """A second in which the tool prints a message and reads the GPUs, too."""

    reading: str
    gpus: Sequence[object]


Tick = Sequence[object] | str
"""The reading of each GPU in a second, percent or text; or what the tool prints instead."""


def _clock(at_s: int) -> str:
    return f"{9 + at_s // 3600:02}:{at_s // 60 % 60:02}:{at_s % 60:02}"


def _seconds(ticks: Sequence[Tick]) -> Iterator[tuple[int, list[str], Sequence[object]]]:
    """Each second's number, the lines that the tool prints, and the readings of the GPUs."""
    for number, tick in enumerate(ticks):
        if isinstance(tick, str):
            yield number, tick.splitlines(), ()
        elif isinstance(tick, Both):
            yield number, tick.reading.splitlines(), tick.gpus
        else:
            yield number, [], tick


def csv(ticks: Sequence[Tick]) -> str:
    """The log of nvidia-smi, from 09:00:00 on."""
    lines = ["timestamp, index, utilization.gpu [%], memory.used [MiB]"]
    for at_s, printed, gpus in _seconds(ticks):
        lines += printed
        for index, reading in enumerate(gpus):
            is_text, stamp = isinstance(reading, str), f"2026/03/02 {_clock(at_s)}.000"
            percent, memory = (reading, reading) if is_text else (f"{reading} %", "900 MiB")
            lines.append(f"{stamp}, {index}, {percent}, {memory}")
    return rows(*lines)


def table(ticks: Sequence[Tick], *, mig: str = "Disabled", every_s: int = 1) -> str:
    """The tables of nvidia-smi, with a date above each."""
    lines = []
    for number, printed, gpus in _seconds(ticks):
        lines += printed
        if not gpus:
            continue
        lines += [f"Mon Mar  2 {_clock(number * every_s)} 2026", f"+{'-' * 87}+"]
        lines.append(f"| NVIDIA-SMI 535.86.10              Driver Version: 535.86.10{' ' * 28}|")
        for index, reading in enumerate(gpus):
            cell = reading if isinstance(reading, str) else f"{reading}%"
            lines += [
                f"|   {index}  NVIDIA A800-SXM4-80GB          Off | {BUS_IDS[index]} Off |"
                "                    0 |",
                f"| N/A   33C    P0              87W / 400W |  36537MiB / 81920MiB | {cell:>7}"
                "      Default |",
                f"|                                         |                      | {mig:>20} |",
            ]
        lines.append(f"+{'-' * 87}+")
    return rows(*lines)


def dmon(ticks: Sequence[Tick]) -> str:
    """The log of ``nvidia-smi dmon -s u -o T``."""
    lines = ["#Time        gpu     sm    mem", "#HH:MM:SS    Idx      %      %"]
    for at_s, printed, gpus in _seconds(ticks):
        lines += printed
        for index, reading in enumerate(gpus):
            cell = str(reading).replace(" ", "")
            lines.append(f" {_clock(at_s)}      {index}  {cell}      0")
    return rows(*lines)


TOOLS: Final[Mapping[str, Callable[[Sequence[Tick]], str]]] = {
    "csv": csv, "table": table, "dmon": dmon,
}  # fmt: skip


def at_work(seconds: int, gpus: int = 1) -> list[Tick]:
    return [[97] * gpus for _ in range(seconds)]


def _cycles(bursts_and_pauses_s: Iterable[tuple[float, float]]) -> list[int]:
    rows: list[int] = []
    for burst_s, pause_s in bursts_and_pauses_s:
        rows += [97] * max(1, round(burst_s)) + [0] * max(1, round(pause_s))
    return [*rows, 97]


def _desktop() -> list[int]:
    draws, rows = random.Random(1), []
    for _ in range(45):
        level = draws.choice([0, 0, 3, 8, 15, 30, 45, 60])
        length_s = round(4 * draws.lognormvariate(0.0, 1.0)) + 1
        rows += [max(0, round(draws.gauss(level, 4))) for _ in range(length_s)]
    return rows


def _requests_by_hand() -> list[int]:
    draws = random.Random(2)
    return _cycles(
        (6 * draws.lognormvariate(0.0, 0.7), 25 * draws.lognormvariate(0.0, 0.8)) for _ in range(24)
    )


def _federated_client() -> list[int]:
    draws = random.Random(3)
    return _cycles((32, 14 * draws.lognormvariate(0.0, 0.35)) for _ in range(20))


def _six_pauses() -> list[int]:
    draws = random.Random(5)
    return [*_cycles((50, draws.gauss(10, 1.5)) for _ in range(6)), *[97] * 50]


def _late_loader() -> list[int]:
    draws = random.Random(4)
    return _cycles((draws.gauss(7.0, 2.0), draws.gauss(4.0, 0.5)) for _ in range(70))


TEMPTING: Final[Mapping[str, list[int]]] = MappingProxyType(
    {
        "a desktop": _desktop(),
        "requests to a language model, by hand": _requests_by_hand(),
        "a federated client": _federated_client(),
        "six pauses, one a minute": _six_pauses(),
        "two pauses and a blip": [*[97] * 30, *[0] * 30, *[97] * 20, *[0] * 25, 97, *[0] * 25, 97],
    }
)
"""Similar to input stalls, but none is one."""
LATE: Final = _late_loader()
"""A slow loader whose workers finish together."""
