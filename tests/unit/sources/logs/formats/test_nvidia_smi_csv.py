"""Tests of CSVs with a row for each GPU: any columns, and damaged files."""

from __future__ import annotations

from unittest.mock import patch

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.formats.nvidia_smi_csv import NvidiaSmiCsvLog
from gpumon.sources.logs.log_sample import LoggedGpu
from tests.builders.logs import (
    HEADER,
    example,
    ratios,
    read_log,
    rows,
    smi_log,
    smi_stamp,
    util_at,
    verified,
)

ONE, TWO, THREE = (smi_stamp(second) for second in (1, 2, 3))
UTIL = "utilization.gpu [%]"
STAMPED = f"timestamp, {UTIL}"


def stamped(first: int, end: int, row: str = "5") -> list[str]:
    return [f"{smi_stamp(at)}, {row}" for at in range(first, end)]


EXAMPLES = {
    **{
        f"contradicting rows of processes are refused: {of_gpu or 'one GPU'}": example(
            f"timestamp,{of_gpu}PID,gpu_util", f"{ONE},{of_gpu and '0,'}11,40",
            f"{ONE},{of_gpu and '0,'}12,7", refused="line 1: the rows are of processes",
        )
        for of_gpu in ("", "index,")
    },
    "columns may count from 0 to 1, with a note": example(
        "time,util", "0,0.25", "1,0.97", busy=[25, 97], noted="between 0 and 1"
    ),
    "columns named by the user are kept under repeated headers": example(
        f"timestamp, index, {UTIL}", f"{ONE}, 0, 45", f"timestamp, index, {UTIL}", f"{TWO}, 0, 45",
        options=util_at(1), busy=[0, 0], notes=(),
    ),
    "GPUs are distinguished by their names without times": example(
        f"name, {UTIL}", "A40, 5 %", "A10, 6 %", "A10, 7 %", "A40, 8 %",
        of=[0, 1, 0, 1], busy=[5, 6, 8, 7],
    ),
    "GPUs are distinguished by their index without a header": example(
        *(f"{smi_stamp(at)}, {gpu}, {(50, 98)[gpu]}" for at in range(4) for gpu in (0, 1)),
        of=[0, 1] * 4, busy=[50, 98] * 4, gpus=(LoggedGpu(index=0), LoggedGpu(index=1)),
        noted="column 3 as utilization.gpu",
    ),
    "a blank at the line end does not make another GPU": example(
        f"{UTIL}, uuid", "5 %, GPU-aa", "6 %,GPU-aa ", "7 %, GPU-aa", of=[0, 0, 0]
    ),
    "GPUs are distinguished by their order if no column names them": example(
        f"timestamp, {UTIL}",
        *(f"{smi_stamp(at + gpu * 0.003)}, {gpu + 1} %" for at in range(5) for gpu in (0, 1)),
        of=[0, 1] * 5, busy=[1, 2] * 5, gpu_count=2,
        noted="the 2 rows of one time were taken as 2 GPUs",
    ),
    "rows without stamps are a second apart, with a note": example(
        UTIL, "1 %", "2 %", "3 %", at_s=[0, 1, 2], is_wall=False, noted="1 s a row (assumed"
    ),
    "damaged lines are skipped and counted with their reason": example(
        smi_log([45, 250, -3, "nan", 7]), "garbage", "a, b, c, d, e",
        busy=[45, None, None, None, 7], skipped=5,
        noted="3 lines with an impossible utilisation",
    ),
    "a line without an answer still has its time": example(
        smi_log([45]), f"{TWO}, 0, NVIDIA A40, [N/A], [N/A]",
        busy=[45, None], at_s=[0, 1], skipped=1,
    ),
    "a line whose time cannot be read is skipped": example(
        smi_log([45]), "noon, 0, NVIDIA A40, 50 %, 1 MiB", busy=[45], skipped=1
    ),
    **{
        f"another header is skipped with its rows: {other}": example(
            "time,util,index", "1,45,0", other, *below, "time,util,index", "3,55,0",
            busy=[45, 55], skipped=len(below) + 1,
            noted=f"Skipped {len(below) + 1} lines under a header other than the first",
        )
        for other, *below in (
            ("index,util,time", "0,55,2"), ("time,util", "2,36", "3,37"),
            ("time,memory.used [MiB]", "2,36"),
        )
    },
    "a log of only [N/A] is refused with advice for MIG": example(
        HEADER, *(f"{smi_stamp(at)}, 0, NVIDIA A100, [N/A], 1000 MiB" for at in range(60)),
        refused="of a GPU with MIG on: .*dcgmi dmon -e 1001.*gpumon doctor",
    ),
    "a quote that is never closed costs one line": example(
        "timestamp,name,utilization.gpu [%]",
        *(f'{smi_stamp(at)},"NVIDIA A40",{at} %' for at in (1, 2)), f'{smi_stamp(3)},"NVIDIA A',
        *(f'{smi_stamp(at)},"NVIDIA A40",4 %' for at in range(4, 200)),
        busy=[1, 2, *[4] * 196], skipped=1, noted="columns than the header: line 4.",
    ),
    "a decimal comma does not separate without a header": example(
        *(f"2025-06-13 00:00:{at:02d},250;{at},5 %" for at in range(20)),
        busy=[at + 0.5 for at in range(20)],
    ),
    "blanks separate a date from its time": example(
        *(f"2025-06-13 00:27:{at:02d}.5 {40 + at}" for at in range(5)),
        busy=[40, 41, 42, 43, 44], at_s=[0, 1, 2, 3, 4],
    ),
    "a date and a time in two columns are one stamp without a header": example(
        *(f"2025/06/13, 00:00:{at:02d}, {at} %" for at in range(20)),
        at_s=[*range(20)], noted="column 1 as date, column 2 as timestamp",
    ),
    "the clearest of several headings is the utilisation": example(
        "time,load,utilization.memory [%],utilization.gpu [%],utilization.encoder [%]",
        "1,2,3,4,5", busy=[4],
    ),
    "two equal headings are refused with the option to choose one": example(
        "time,GPU util,gpu_load", "1,5,6",
        refused=r'line 1: the utilisation could be any of the columns 2 "GPU util", 3 "gpu_load"; '
        r"choose one: --column utilization\.gpu=2",
    ),
    "more GPUs than a machine has are refused": example(
        "index, utilization.gpu [%]", *(f"{at}, 5 %" for at in range(2_000)),
        refused=r"more than 1,024 .*GPUs.*line 1026",
    ),
    "an unknown heading is the time if times are under it": example(
        "Ymd,index,util", *(f"{1_772_442_000 + at // 2},{at % 2},90" for at in range(10)),
        at_s=[0, 0, 1, 1, 2, 2, 3, 3, 4, 4], noted='Column 1, "Ymd", was taken as timestamp',
    ),
    **{
        f"memory in use is read: {cell} of {heading}": example(
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
    },
}  # fmt: skip
SENSIBLE = (
    "GPU Util %", "gpu_util(%)", "Utilization", "sm", "load", "nvidia.gpu.util", "gpu [%]",
    "GPU Load (%)", "gpu%", "GPU usage", "GPU_Utilization_%", "gpu_util", "Utilization (%)", "util",
    "GPU Utilization [%]", "utilization.gpu", "gpu_util_percent",
)  # fmt: skip
SOMETHING_ELSE = {
    "loss": ("epoch,loss", *(f"{at},{0.9**at:.4f}" for at in range(20))),
    "memory": ("timestamp, memory.used [MiB]", f"{smi_stamp(1)}, 20 MiB"),
    "meminfo": ("MemTotal:       65714164 kB", "MemFree:        51298384 kB", "Buffers: 7 kB") * 9,
    "keras": ("Epoch 1/10", "100/100 - 3s - loss: 0.6931", "Epoch 2/10") * 9,
}


class TestExamples:
    test_is_read_as_expected = verified(EXAMPLES)

    @pytest.mark.parametrize("separator", [", ", ",", ";", "\t"])
    def test_may_have_its_columns_separated_otherwise(self, separator: str) -> None:
        assert ratios(smi_log([45, 0]).replace(", ", separator)) == [0.45, 0.0]


class TestAHeading:
    @pytest.mark.parametrize("heading", SENSIBLE)
    def test_may_have_any_usual_wording(self, heading: str) -> None:
        assert ratios(rows(f"time,{heading}", "1,5", "2,60")) == [0.05, 0.6]

    def test_may_be_named_by_the_user(self) -> None:
        assert ratios(rows("time,alpha,Beta [%]", "1,5,6"), util_at(" Beta [%]")) == [0.06]


class TestALogOfSomethingElse:
    @pytest.mark.parametrize("lines", SOMETHING_ELSE.values(), ids=SOMETHING_ELSE)
    def test_is_refused(self, lines: tuple[str, ...]) -> None:
        with pytest.raises(UnreadableLogError, match="utilisation"):
            ratios(rows(*lines))


HALF_PAST = "half past, 1, NVIDIA A40, 97 %, 1830 MiB"
OTHER_HEADER = "timestamp, utilization.gpu [%], index, name, memory.used [MiB]"
ODD_LINES = st.sampled_from(
    (
        HEADER,
        OTHER_HEADER,
        "timestamp, index, power.draw [W], name, memory.used [MiB]",
        "Unable to determine the device handle for GPU0000:01:00.0: GPU is lost",
        "",
        "\0\0\0",
        "2025/06/13 00:",
        HALF_PAST,
        "2025/06/13 00:00:05.000, 0, NVIDIA A40, [Unknown Error], 1 MiB",
        '2025/06/13 00:00:06.000, 0, "NVIDIA, A40", 97 %, 1 MiB',
        '2025/06/13 00:00:07.000, 0, "NVIDIA A40, 97 %, 1 MiB',
    )
)
CELLS = st.tuples(
    st.sampled_from(("0", "1", "[N/A]")),
    st.sampled_from(("NVIDIA A40", "ERR!", '"A40"')),
    st.sampled_from(("97 %", "0 %", "97", "1", "101 %", "N/A", "0.5 %")),
    st.sampled_from(("1830 MiB", "18 GiB", "[N/A]", "7")),
)
LINES = st.lists(st.one_of(CELLS, CELLS, CELLS, CELLS, ODD_LINES), min_size=1, max_size=80)


def read_or_refused(log: str) -> object:
    try:
        return read_log(log)
    except UnreadableLogError as error:
        return str(error)


@given(lines=LINES, end=st.sampled_from(("", "\n")))
@hypothesis.example(lines=[("0", "NVIDIA A40", "97 %", "1830 MiB")] * 90, end="")
@hypothesis.example(
    lines=[HALF_PAST, *[(gpu, "NVIDIA A40", "97 %", "1830 MiB") for gpu in "01"] * 90], end=""
)
@hypothesis.settings(max_examples=150, deadline=None)
def test_remembered_cells_change_nothing(lines: list[tuple[str, ...] | str], end: str) -> None:
    written = [
        line if isinstance(line, str) else ", ".join((smi_stamp(at), *line))
        for at, line in enumerate(lines)
    ]
    log = "\n".join([HEADER, *written]) + end

    with patch.object(NvidiaSmiCsvLog, "_row_of_known_cells", lambda *_: None):
        row_by_row = read_or_refused(log)

    assert read_or_refused(log) == row_by_row
