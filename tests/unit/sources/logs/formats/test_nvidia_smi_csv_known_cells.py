"""Specification of cells that were met before: a row of them says what it says without them."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.formats.nvidia_smi_csv import NvidiaSmiCsvLog
from gpumon.sources.logs.log_sample import LogFacts, LogSample
from tests.builders.logs import HEADER, read_log, smi_stamp

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
Read = tuple[list[LogSample], LogFacts] | str


def read(log: str) -> Read:
    try:
        return read_log(log)
    except UnreadableLogError as error:
        return str(error)


@given(lines=LINES, end=st.sampled_from(("", "\n")))
@example(lines=[("0", "NVIDIA A40", "97 %", "1830 MiB")] * 90, end="")
@example(lines=[HALF_PAST, *[(gpu, "NVIDIA A40", "97 %", "1830 MiB") for gpu in "01"] * 90], end="")
@settings(max_examples=200, deadline=None)
def test_a_log_says_the_same_as_if_each_of_its_rows_were_read_whole(
    lines: list[tuple[str, ...] | str], end: str
) -> None:
    rows = [
        line if isinstance(line, str) else ", ".join((smi_stamp(at), *line))
        for at, line in enumerate(lines)
    ]
    log = "\n".join([HEADER, *rows]) + end

    with patch.object(NvidiaSmiCsvLog, "_row_of_known_cells", lambda *_: None):
        row_by_row = read(log)

    assert read(log) == row_by_row
