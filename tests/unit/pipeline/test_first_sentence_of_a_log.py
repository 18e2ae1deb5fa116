"""Specification of the first sentence on a log: it hides nothing, and overstates nothing."""

from __future__ import annotations

import pytest

from gpumon.core.clock import NS_PER_S
from gpumon.core.codecs.report_codec import encode_report
from gpumon.core.report.report import Report
from gpumon.core.verdict import VerdictName
from gpumon.outlets.text.headline import verdict_line, why_line
from gpumon.outlets.text.report_lines import next_line
from gpumon.outlets.text.report_text import render_report
from tests.builders.logs import analysed, csv, only_gpu, rows, smi_log
from tests.unit.outlets.report_lines import PLAIN

BUSY, IDLE = [97], [0]
IN_PAUSES = [97, 97, 97, 97, 97, 97, 0, 0, 0, 0]
LEVEL = [55] * 10


def of_gpus(*gpus: list[int]) -> Report:
    """A log of GPUs, each with a row a second."""
    return analysed(csv(list(zip(*gpus, strict=True))))


class TestAHealthyGpu:
    def test_has_the_time_that_it_stood_idle_at_the_end_as_a_hang_looks(self) -> None:
        report = analysed(smi_log(BUSY * 600 + IDLE * 1200))

        assert only_gpu(report).idle_after_use_ns == 1200 * NS_PER_S
        assert encode_report(report)["gpus"][0]["idle_after_use_seconds"] == 1200.0
        assert verdict_line(report) == (
            "healthy: GPU 0 was busy almost all its time in use. It was not used for 67 % of the "
            "log, including the last 20 min."
        )

    @pytest.mark.parametrize(
        ("values", "idle"),
        [
            (BUSY * 40 + IDLE * 25 + BUSY * 40 + IDLE * 28 + BUSY * 23, "36 %"),
            (BUSY * 40 + IDLE * 25 + BUSY * 60, "22 %"),
        ],
    )
    def test_has_its_few_pauses(self, values: list[int], idle: str) -> None:
        report = analysed(smi_log(values))
        pauses = "2 pauses" if idle == "36 %" else "1 pause"

        assert only_gpu(report).verdict.name is VerdictName.HEALTHY
        assert verdict_line(report) == (
            f"healthy: GPU 0 was idle for {idle} of the time in {pauses}, too few to judge."
        )
        assert why_line(report).endswith(f"in use ({idle}), in fewer than 3 pauses.")
        assert next_line(report) == "log for longer, to see whether such pauses come again."


class TestASuspicion:
    def test_of_a_log_that_ends_without_it_is_none(self) -> None:
        late = (BUSY * 7 + IDLE * 3 + BUSY * 11 + IDLE * 3) * 30
        alike = (BUSY * 9 + IDLE * 3) * 120
        assert only_gpu(analysed(smi_log(late))).totals.suspected_ns > 0

        report = analysed(smi_log([*late, *alike]))
        gpu, printed = only_gpu(report), render_report(report, PLAIN)

        assert gpu.verdict.input_probability is not None
        assert gpu.verdict.input_probability < 0.5
        assert gpu.totals.suspected_ns == 0
        assert encode_report(report)["gpus"][0]["starved_intervals"] == []
        assert "Earlier" not in printed
        assert "suspected" not in printed


def test_the_moments_of_the_last_pauses_are_those_of_the_nearest_second() -> None:
    lines = ["timestamp, index, utilization.gpu [%]"]
    for at_s in range(200):
        stamp = f"2026/03/02 09:{at_s // 60:02}:{at_s % 60:02}.900"
        lines.append(f"{stamp}, 0, {IN_PAUSES[at_s % 10]} %")
    why = why_line(analysed(rows(*lines)))

    # The last busy row is stamped 09:02:45.9, and the pause begins there.
    assert "The last ones began at 09:02:46, 09:02:56 and 09:03:06" in why


def test_the_moments_of_a_log_without_a_date_are_reported_to_the_second() -> None:
    body = [f"    0     {IN_PAUSES[at_s % 10]}      0" for at_s in range(9_000)]
    why = why_line(analysed(rows("# gpu     sm    mem", "# Idx      %      %", *body)))

    assert "The last ones began 2:29:26, 2:29:36 and 2:29:46 after the start: if" in why
