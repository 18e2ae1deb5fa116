"""Specification of CSV rows: quotes, separators, units and damage, whatever wrote them."""

from __future__ import annotations

from itertools import repeat

import pytest

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.formats.nvidia_smi_csv import NvidiaSmiCsvLog
from gpumon.sources.logs.log_sample import LoggedGpu, LogOptions
from gpumon.sources.logs.log_text import MAX_PIECE
from tests.builders_log_corners import Corner, corner, each
from tests.builders_logs import ratios, rows, smi_log, smi_stamp

GIB = 1 << 30
STAMPED = "timestamp, utilization.gpu [%]"
SIX, SEVEN = (f"{1_718_238_472 + at}" for at in (0, 1))
NO_ANSWERS = (
    "[N/A]", "[Not Supported]", "[Unknown Error]", "ERR!", "Field not found", "N/A", "",
    "[GPU is lost]", "Unknown Error", "null",
)  # fmt: skip
ERRORS = (
    "Unable to determine the device handle for GPU 0000:3B:00.0: Unknown Error",
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make "
    "sure that the latest NVIDIA driver is installed and running.",
    "Failed to initialize NVML: Driver/library version mismatch",
    "No devices were found",
)


def told(column: int | str) -> LogOptions:
    return LogOptions(columns={"utilization.gpu": column})


def stamped(first: int, end: int, row: str = "5") -> list[str]:
    return [f"{smi_stamp(at)}, {row}" for at in range(first, end)]


CORNERS = {
    "a line end within quotes is a part of its cell": corner(
        "timestamp,name,utilization.gpu [%],processes",
        f'{smi_stamp(1)},"NVIDIA\nA40",7 %,"python\nbash"',
        f"{smi_stamp(2)},A40,8 %,", f"{smi_stamp(3)},A40,[N/A],",
        busy=[7, 8, None], skipped=1, noted="first at line 6",
    ),
    "a line end within quotes in a header is a part of its heading": corner(
        'time,"GPU\nutil"', "1,5", "2,6", busy=[5, 6]
    ),
    "a quote that is never closed costs one line": corner(
        "timestamp,name,utilization.gpu [%]",
        *(f'{smi_stamp(at)},"NVIDIA A40",{at} %' for at in (1, 2)), f'{smi_stamp(3)},"NVIDIA A',
        *(f'{smi_stamp(at)},"NVIDIA A40",4 %' for at in range(4, 200)),
        busy=[1, 2, *[4] * 196], skipped=1, noted="quote that is never closed; first at line 4",
    ),
    "a quote that is never closed at the end costs one line": corner(
        smi_log([1, 2, 3]), f'{smi_stamp(4)}, 0, "NVIDIA A', busy=[1, 2, 3], skipped=1
    ),
    "a decimal comma is read beside semicolons": corner(
        "time;util", "0,5;12,5", "1,5;0,0", "2,5;100,0", busy=[12.5, 0, 100], at_s=[0, 1, 2]
    ),
    "a decimal comma is read beside tabs": corner(
        "time\tutil", "0,5\t12,5", "1,5\t0,0", "2,5\t100,0", busy=[12.5, 0, 100], at_s=[0, 1, 2]
    ),
    "a decimal comma does not separate where there is no header": corner(
        *(f"2025-06-13 00:00:{at:02d},250;{at},5 %" for at in range(20)),
        busy=[at + 0.5 for at in range(20)],
    ),
    "a decimal comma is read within quotes": corner(
        "time,util", '"1,5","12,5"', '"2,5","99,5 %"', busy=[12.5, 99.5]
    ),
    "a decimal comma is read in a stamp": corner(
        "timestamp;util", f"{SIX},25;5", f"{SEVEN},5;6", at_s=[0, 1.25]
    ),
    "blanks separate cells where nothing else does": corner(
        *(f"{1_718_238_472 + at} {at} %" for at in range(5)),
        busy=[0, 1, 2, 3, 4], at_s=[0, 1, 2, 3, 4],
    ),
    "blanks separate a date from its time": corner(
        *(f"2025-06-13 00:27:{at:02d}.5 {40 + at}" for at in range(5)),
        busy=[40, 41, 42, 43, 44], at_s=[0, 1, 2, 3, 4],
    ),
    "a date and a time in two columns are one stamp": corner(
        "Date,Time,GPU Util %", "2025-06-13,23:59:59,5", "2025-06-14,00:00:00,6",
        at_s=[0, 1], began="2025-06-13T23:59:59.000",
    ),
    "a date and a time in two columns are one stamp without a header": corner(
        *(f"2025/06/13, 00:00:{at:02d}, {at} %" for at in range(20)),
        at_s=[*range(20)], noted="column 1 as date, column 2 as timestamp",
    ),
    "units in any mix are read row by row": corner(
        "time,util,temp", "1,5 %,30", "2,6,30", "3,7%,30 C", busy=[5, 6, 7]
    ),
    "cells without an answer of the GPU are not observed": corner(
        smi_log([5]),
        *(f"{smi_stamp(at)}, 0, A40, {cell}, 1 MiB" for at, cell in enumerate(NO_ANSWERS, start=2)),
        busy=[5, *[None] * 10], skipped=10, noted="10 lines without an answer of the GPU",
    ),
    "errors of nvidia-smi between rows are counted with that reason": corner(
        smi_log([5, 6]), "", *ERRORS,
        busy=[5, 6], skipped=4, noted="4 lines in which nvidia-smi says that it could not ask",
    ),
    "a log of nothing but errors of nvidia-smi says so": corner(
        *["Failed to initialize NVML: Unknown Error", ""] * 3,
        refused="nvidia-smi could not ask the GPU.*NVML",
    ),
    "memory of the GPU is told once": corner(
        "index, utilization.gpu [%], memory.used [MiB], memory.total [MiB]",
        "0, 5 %, 1 MiB, 32768 MiB", gpus=(LoggedGpu(index=0, memory_bytes=32 * GIB),),
    ),
    "the surest name of a column goes before the others": corner(
        "time,load,utilization.memory [%],utilization.gpu [%],utilization.encoder [%]",
        "1,2,3,4,5", busy=[4],
    ),
    "a name that comes twice is ambiguous, and what settles it is said": corner(
        "time,GPU util,gpu_load", "1,5,6",
        refused=r'line 1: the utilisation could be any of the columns 2 "GPU util", 3 "gpu_load"; '
        r"say which: --column utilization\.gpu=2",
    ),
    "a name that comes twice is settled by the user": corner(
        "time,GPU util,gpu_load", "1,5,6", options=told(2), busy=[6]
    ),
    "a name said by the user must be there": corner(
        "time,util", "1,5", options=told("gamma"), refused="no such column; it has time, util"
    ),
    "a name said by the user needs a header": corner(
        "1,5", "2,6", options=told("gamma"), refused="the log has no header"
    ),
    "a lone column of numbers is no log of something else": corner(
        "5", "60", "7", busy=[5, 60, 7]
    ),
    "up to a thousand GPUs are told apart": corner(
        "timestamp, index, utilization.gpu [%]",
        *(f"{smi_stamp(at)}, {gpu}, {gpu % 100} %" for at in range(4) for gpu in range(1_000)),
        of=[*range(1_000)] * 4, gpu_count=1_000, notes=(),
    ),
    "more GPUs than a machine has are refused": corner(
        "index, utilization.gpu [%]", *(f"{at}, 5 %" for at in range(2_000)),
        refused=r"more than 1,024 .*GPUs.*line 1026",
    ),
    "rows that name no GPU are taken for GPUs in their order, and that is said": corner(
        STAMPED, *(f"{smi_stamp(at)}, {gpu} %" for at in range(20) for gpu in (1, 2)),
        busy=[1, 2] * 20, noted="the 2 rows of a moment were taken for 2 GPUs",
    ),
    "a header is found below what was printed before it": corner(
        "starting logger", "", smi_log([5]), busy=[5], skipped=1
    ),
    "rows that end as others did mean something else under another header": corner(
        f"{STAMPED}, temperature.gpu", *stamped(0, 4, "5, 60"),
        "timestamp, temperature.gpu, utilization.gpu [%]", *stamped(4, 8, "5, 60"),
        busy=[5, 5, 5, 5, 60, 60, 60, 60],
    ),
    "rows that end as others did say nothing under a header without utilisation": corner(
        STAMPED, *stamped(0, 4), "timestamp, temperature.gpu", *stamped(4, 8),
        busy=[5, 5, 5, 5], skipped=5,
    ),
    "rows that end as others did are the next GPUs where no column names them": corner(
        STAMPED, *(row for row in stamped(0, 9) for _ in range(2)), of=[0, 1] * 9
    ),
    "a heading that nobody knows is the time where moments follow under it": corner(
        "Zeit,index,util", *(f"{1_772_442_000 + at // 2},{at % 2},90" for at in range(10)),
        at_s=[0, 0, 1, 1, 2, 2, 3, 3, 4, 4], noted='Column 1, "Zeit", was taken as timestamp',
    ),
    "a heading that nobody knows is the index where it counts GPUs": corner(
        "time,card,util", *(f"{1_772_442_000 + at // 2},{at % 2},90" for at in range(10)),
        gpus=(LoggedGpu(index=0), LoggedGpu(index=1)), noted='2, "card", was taken as index',
    ),
    "a heading that nobody knows is no time where any numbers are under it": corner(
        "vram_b,util", "12582912000,94", "9663676416,94", "12582912000,94", "2147483648,94",
        is_wall=False,
    ),
    "a heading that nobody knows is no time where the same number is under it": corner(
        "vram_b,util", *["12582912000,94"] * 4, is_wall=False
    ),
}  # fmt: skip
USED = {
    f"{cell} of {heading}": corner(
        f"time,util,{heading}", f"1,5,{cell}", f"2,6,{cell}", used_mib=[used_mib, used_mib]
    )
    for heading, cell, used_mib in (
        ("memory.used [MiB]", "1830 MiB", 1830),
        ("memory.used [MiB]", "1830", 1830),
        ("gpu_memory_used_gb", "1.5", 1536),
        ("memory_used_bytes", "4096", 1 / 256),
        ("mem_used", "2 GB", 2048),
        ("memory.used [MiB]", "[N/A]", None),
        ("Memory Usage (MB)", '"1,830"', 1830),
    )
}  # fmt: skip
SENSIBLE = (
    "GPU Util %", "gpu_util(%)", "Utilization", "sm", "load", "nvidia.gpu.util", "gpu [%]",
    "GPU Load (%)", "gpu%", "GPU usage",
)  # fmt: skip
SOMETHING_ELSE = {
    "loss": ("epoch,loss", *(f"{at},{0.9**at:.4f}" for at in range(20))),
    "accuracy": ("step,loss,accuracy", *(f"{at},{0.9**at:.4f},0.5" for at in range(20))),
    "commas": ("epoch;loss;val_loss", *(f"{at};0,7;0,8" for at in range(20))),
    "cpu": ("time,cpu,ram", "1,50,60", "2,50,60"),
    "memory": ("timestamp, memory.used [MiB]", f"{smi_stamp(1)}, 20 MiB"),
    "meminfo": ("MemTotal:       65714164 kB", "MemFree:        51298384 kB", "Buffers: 7 kB") * 9,
    "keras": ("Epoch 1/10", "100/100 - 3s - loss: 0.6931", "Epoch 2/10") * 9,
    "words": ("a,b,c", "x,y,z"),
}


class TestACorner:
    @each(CORNERS)
    def test_is_heard_as_it_is_told(self, corner: Corner) -> None:
        assert corner.heard() == corner.told


class TestMemoryInUse:
    @each(USED)
    def test_is_told_with_its_row(self, corner: Corner) -> None:
        assert corner.heard() == corner.told


class TestTheNameOfAColumn:
    @pytest.mark.parametrize("heading", SENSIBLE)
    def test_may_be_any_sensible_one(self, heading: str) -> None:
        assert ratios(rows(f"time,{heading}", "1,5", "2,60")) == [0.05, 0.6]

    @pytest.mark.parametrize("said", ["beta", "Beta [%]", " beta"])
    def test_may_be_said_by_the_user(self, said: str) -> None:
        assert ratios(rows("time,alpha,Beta [%]", "1,5,6"), told(said)) == [0.06]


class TestALogOfSomethingElse:
    @pytest.mark.parametrize("lines", SOMETHING_ELSE.values(), ids=SOMETHING_ELSE)
    def test_is_refused_and_never_guessed(self, lines: tuple[str, ...]) -> None:
        with pytest.raises(UnreadableLogError, match="utilisation"):
            ratios(rows(*lines))


class TestALineWithoutAnEnd:
    def test_is_counted_once_and_skipped(self) -> None:
        log = [*smi_log([1, 2]).splitlines(keepends=True), *["x" * MAX_PIECE] * 3, "\n"]
        last = f"{smi_stamp(3)}, 0, A40, 3 %, 1"

        reader = NvidiaSmiCsvLog(iter([*log, last]), name="gpu.csv", options=LogOptions())

        assert [sample.busy_ratio for sample in reader.samples()] == [0.01, 0.02, 0.03]
        assert reader.facts().skipped_lines == 1

    def test_alone_is_a_sentence(self) -> None:
        endless = repeat("7" * MAX_PIECE, 400)
        reader = NvidiaSmiCsvLog(endless, name="gpu.csv", options=LogOptions())

        with pytest.raises(UnreadableLogError):
            list(reader.samples())
