"""Specification of a log in which many rows do not say how busy the GPU was: what is told of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpumon.core.codecs.report_codec import encode_report
from gpumon.core.report.report import Report
from gpumon.core.verdict import Severity, VerdictName
from gpumon.outlets.text.headline import verdict_line
from gpumon.outlets.text.report_lines import next_line
from gpumon.outlets.text.report_text import render_report
from tests.builders.logs import analysed, only_gpu, rows, smi_stamp
from tests.unit.outlets.report_lines import PLAIN

HEADER = "timestamp, index, utilization.gpu [%], memory.used [MiB]"
Row = Callable[[str, int], str]
WITHOUT_AN_ANSWER: Row = lambda stamp, gpu: f"{stamp}, {gpu}, [N/A], 900 MiB"  # noqa: E731
NOT_A_NUMBER: Row = lambda stamp, gpu: f"{stamp}, {gpu}, nan, 900 MiB"  # noqa: E731
IMPOSSIBLE: Row = lambda stamp, gpu: f"{stamp}, {gpu}, 130 %, 900 MiB"  # noqa: E731
CUT: Row = lambda stamp, gpu: f"{stamp}, {gpu}"  # noqa: E731
NO_TIME: Row = lambda stamp, gpu: f"half past, {gpu}, 97 %, 900 MiB"  # noqa: E731
KINDS = {
    "without an answer": WITHOUT_AN_ANSWER, "not a number": NOT_A_NUMBER,
    "impossible": IMPOSSIBLE, "cut": CUT, "without a time": NO_TIME,
}  # fmt: skip


def pausing(at_s: int) -> int:
    return 97 if at_s % 10 < 7 else 0


def log(
    is_usable: Callable[[int], bool],
    percent: Callable[[int], int] = pausing,
    row: Row = WITHOUT_AN_ANSWER,
    seconds: int = 300,
) -> Report:
    """One GPU, a row each second; unusable ones are ``row``."""
    lines = [HEADER]
    for at in range(seconds):
        stamp = smi_stamp(at)
        lines.append(f"{stamp}, 0, {percent(at)} %, 900 MiB" if is_usable(at) else row(stamp, 0))
    return analysed(rows(*lines))


@pytest.mark.parametrize("row", KINDS.values(), ids=KINDS)
class TestRowsThatCannotBeUsed:
    def test_are_reported_in_the_first_sentence_where_they_are_many(self, row: Row) -> None:
        message = verdict_line(log(lambda at: at % 5 > 0, row=row))

        assert message.startswith(
            "partly busy (high loss), as far as 80 % of its rows can tell: GPU 0 "
        )
        assert "one every" not in message

    def test_leave_no_loss_of_the_whole_log_where_they_are_most(self, row: Row) -> None:
        report = log(lambda at: pausing(at) == 0 or at % 10 == 0, row=row)

        assert verdict_line(report).startswith("partly busy, as far as 4")
        assert " can tell: In the rows that can be used: GPU 0 lost " in verdict_line(report)
        assert only_gpu(report).verdict.severity is Severity.MODERATE

    def test_may_have_been_work(self, row: Row) -> None:
        report = log(lambda at: at % 3 > 0, lambda _: 0, row)

        assert verdict_line(report) == (
            "not in use, as far as 67 % of its rows can tell: GPU 0 ran no work."
        )
        assert next_line(report).startswith("What GPU 0 did in the other rows is unknown. Log ")
        assert "release" not in render_report(report, PLAIN).lower()


def test_rows_that_cannot_be_used_are_counted_in_json() -> None:
    report = log(lambda at: at % 5 > 0)
    (document,) = encode_report(report)["gpus"]

    assert (document["samples"], document["unusable_samples"]) == (240, 60)
    assert only_gpu(report).verdict.name is VerdictName.PARTIAL


WIDE = [f"{smi_stamp(at)},97,97" for at in range(300)]
OBJECTS = [
    f'{{"system.gpu.0.gpu": 97, "system.gpu.1.gpu": 97, "_timestamp": {1_780_000_000 + at}}}'
    for at in range(300)
]


@pytest.mark.parametrize(
    ("heading", "lines"),
    [("time,gpu0 [%],gpu1 [%]\n", WIDE), ("", OBJECTS)],
    ids=["a wide table", "objects"],
)
def test_a_line_of_several_gpus_that_is_cut_is_a_row_of_each(
    heading: str, lines: list[str]
) -> None:
    cut = [line if at % 5 else line[:-8] for at, line in enumerate(lines)]
    report = analysed(heading + rows(*cut))

    assert [gpu.totals.unusable_samples for gpu in report.gpus] == [60, 60]
    assert verdict_line(report) == (
        "healthy, as far as 80 % of the rows can tell: GPUs 0 and 1 were busy almost all the time."
    )
