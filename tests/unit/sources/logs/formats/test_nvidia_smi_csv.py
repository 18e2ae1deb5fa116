"""Specification of nvidia-smi's CSV: whatever was queried, and whatever happened to the file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.errors import GpumonError, UnreadableLogError
from gpumon.sources.logs.log_sample import LoggedGpu, LogOptions
from tests.builders_log_corners import Corner, corner, each
from tests.builders_logs import HEADER, ratios, read_log, rows, smi_log, smi_stamp

ONE, TWO, THREE = (smi_stamp(second) for second in (1, 2, 3))
UTIL = "utilization.gpu [%]"
TOLD_INDEX = LogOptions(columns={"utilization.gpu": 1})
TOLD_BOTH = LogOptions(columns={"timestamp": 0, "utilization.gpu": 2})

CORNERS = {
    "columns with units give samples": corner(
        smi_log([45, 0, 100]), busy=[45, 0, 100], at_s=[0, 1, 2], began="2025-06-13T00:00:01.000"
    ),
    "columns in any order give the same samples": corner(
        f"{UTIL}, timestamp", f"45, {ONE}", f"0, {TWO}", f"100, {THREE}",
        busy=[45, 0, 100], at_s=[0, 1, 2], began="2025-06-13T00:00:01.000",
    ),
    "columns may be quoted": corner(
        f"timestamp,name,{UTIL}", f'"{ONE}","A40, passive","7 %"',
        busy=[7], gpus=(LoggedGpu(name="A40, passive"),),
    ),
    "columns may be named by the user": corner(
        "when,a,b", f"{ONE},3,45", options=TOLD_BOTH, busy=[45]
    ),
    "columns may count from 0 to 1, which is said": corner(
        "time,util", "0,0.25", "1,0.97", busy=[25, 97], noted="between 0 and 1"
    ),
    "GPUs are told apart by their index": corner(
        HEADER, *(f"{at}, {gpu}, A40, {gpu + 1} %, 1 MiB" for at in (ONE, TWO) for gpu in (0, 1)),
        of=[0, 1] * 2, busy=[1, 2] * 2, gpus=(LoggedGpu(0, name="A40"), LoggedGpu(1, name="A40")),
    ),
    "GPUs are told apart by their UUID": corner(
        f"uuid, {UTIL}", "GPU-aa, 5 %", "GPU-bb, 5 %", of=[0, 1]
    ),
    "GPUs are told apart by their bus": corner(
        f"pci.bus_id, {UTIL}", "0:1.0, 5 %", "0:2.0, 5 %", of=[0, 1]
    ),
    "GPUs are told apart by their index without a header": corner(
        *(f"{smi_stamp(at)}, {gpu}, {(50, 98)[gpu]}" for at in range(4) for gpu in (0, 1)),
        of=[0, 1] * 4, busy=[50, 98] * 4, gpus=(LoggedGpu(index=0), LoggedGpu(index=1)),
        noted="column 3 as utilization.gpu",
    ),
    "GPUs are not told apart by a blank at the line end": corner(
        f"{UTIL}, uuid", "5 %, GPU-aa", "6 %,GPU-aa ", "7 %, GPU-aa", of=[0, 0, 0]
    ),
    "GPUs are told apart by their order where nothing names them": corner(
        f"timestamp, {UTIL}",
        *(f"{smi_stamp(at + gpu * 0.003)}, {gpu + 1} %" for at in range(5) for gpu in (0, 1)),
        of=[0, 1] * 5, busy=[1, 2] * 5, gpu_count=2,
    ),
    "GPUs are told apart by the next best where their name has no answer": corner(
        f"uuid, index, {UTIL}", "[N/A], 0, 1 %", "[N/A], 1, 2 %", of=[0, 1]
    ),
    "rows without stamps are a second apart, which is said": corner(
        UTIL, "1 %", "2 %", "3 %", at_s=[0, 1, 2], is_wall=False, noted="1 s a row (assumed"
    ),
    "rows without stamps are as far apart as the user says": corner(
        "5", "6", options=LogOptions(period_ns=250_000_000), at_s=[0, 0.25], period_ns=250_000_000
    ),
    "rows without stamps are counted for each GPU": corner(
        f"index, {UTIL}", "0, 1 %", "1, 2 %", "0, 3 %", "1, 4 %", of=[0, 1, 0, 1], at_s=[0, 0, 1, 1]
    ),
    "damaged lines are skipped and counted with their reason": corner(
        smi_log([45, 250, -3, "nan", 7]), "garbage", "a, b, c, d, e",
        busy=[45, None, None, None, 7], skipped=5,
        noted="3 lines with a utilisation no GPU can have",
    ),
    "a line without an answer still marks its moment": corner(
        smi_log([45]), f"{TWO}, 0, NVIDIA A40, [N/A], [N/A]",
        busy=[45, None], at_s=[0, 1], skipped=1,
    ),
    "a blank line is no line at all": corner(smi_log([45]), "", "", "  ", busy=[45]),
    "a line whose time cannot be read belongs to no moment": corner(
        smi_log([45]), "noon, 0, NVIDIA A40, 50 %, 1 MiB", busy=[45], skipped=1
    ),
    "a line that was cut off is not half a value": corner(
        f"timestamp, {UTIL}", f"{ONE}, 19 %", f"{TWO}, 1", is_cut=True, busy=[19, None], skipped=1
    ),
    "a repeated header is no row": corner(
        HEADER, HEADER, smi_log([1, 2, 3]), HEADER, busy=[1, 2, 3], at_s=[0, 1, 2]
    ),
    "a repeated header may move the columns": corner(
        smi_log([45]), f"index, {UTIL}, timestamp", f"0, 55 %, {TWO}",
        of=[0, 0], busy=[45, 55], gpu_count=1,
    ),
    "a repeated header that names no GPU any more goes on with the only one": corner(
        "time,util,index", "1,45,0", "time,util", "2,36", "3,37", of=[0, 0, 0], busy=[45, 36, 37]
    ),
    "a repeated header that names no GPU any more tells nothing of several": corner(
        "time,util,index", "1,45,0", "1,45,1", "time,util", "2,1", "3,45", of=[0, 1],
        skipped=2, noted="2 lines of no GPU that can be told from the others",
    ),
    "a repeated header without utilisation ends the usable part": corner(
        "time,util", "1,45", "time,memory.used [MiB]", "2,36", "time,util", "3,55",
        busy=[45, 55], skipped=2,
    ),
    "a log without a utilisation column is refused with those it has": corner(
        "timestamp, index", f"{ONE}, 0",
        refused="line 1: no utilisation column among: timestamp, index",
    ),
    "a log of nothing but a header is refused": corner(
        HEADER, refused="no line under it has as many"
    ),
    "a log without a usable line is refused with the reason": corner(
        f"timestamp, {UTIL}", f"{ONE}, [N/A]", refused=r"without an answer of the GPU.*line 2"
    ),
    "a log of times of no known form is refused": corner(
        "time,util", "half past ten,45", refused="'half past ten' has no form"
    ),
    "a log of blank lines is refused": corner("", " ", "", refused="no line with anything"),
}  # fmt: skip


class TestACorner:
    @each(CORNERS)
    def test_is_heard_as_it_is_told(self, corner: Corner) -> None:
        assert corner.heard() == corner.told

    @pytest.mark.parametrize("separator", [", ", ",", ";", "\t"])
    def test_may_have_its_columns_separated_otherwise(self, separator: str) -> None:
        assert ratios(smi_log([45, 0]).replace(", ", separator)) == [0.45, 0.0]


class TestAColumnNamedByTheUserAgainstTheHeader:
    def test_is_said_once(self) -> None:
        header = f"timestamp, index, {UTIL}"
        log = rows(header, f"{ONE}, 0, 45", header, f"{TWO}, 0, 45")

        samples, facts = read_log(log, TOLD_INDEX)

        assert [sample.busy_ratio for sample in samples] == [0.0, 0.0]
        assert [note for note in facts.notes if "as told" in note] == [
            'The header calls column 2 "index"; taken as utilization.gpu as told.'
        ]


class TestAnyText:
    @given(st.text(max_size=200))
    def test_is_read_or_refused_with_a_sentence(self, text: str) -> None:
        try:
            samples, _ = read_log(text)
        except GpumonError:
            return

        assert any(sample.busy_ratio is not None for sample in samples)

    @given(
        st.lists(
            st.text(st.sampled_from('0123456789,;%."[]N/A: \tGPU-utiltime'), max_size=30),
            max_size=12,
        )
    )
    def test_under_a_header_is_read_or_refused_with_a_sentence(self, lines: list[str]) -> None:
        try:
            samples, facts = read_log(rows("timestamp, utilization.gpu [%]", *lines))
        except UnreadableLogError:
            return

        assert all(s.busy_ratio is None or 0.0 <= s.busy_ratio <= 1.0 for s in samples)
        assert facts.skipped_lines <= len(lines) + 1
