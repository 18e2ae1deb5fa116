"""Specification of a log with too little data: it says so, and suspects nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gpumon.core.codecs.report_codec import decode_report, encode_report
from gpumon.core.diagnosis.messages import LOG_A_SECOND
from gpumon.core.report.report import Report
from gpumon.core.verdict import Severity, VerdictName
from gpumon.outlets.text.headline import verdict_line
from gpumon.outlets.text.report_lines import next_line
from gpumon.outlets.text.report_text import render_report
from tests.builders.logs import analysed, only_gpu, rows, smi_log, table
from tests.builders.time import rhythm
from tests.unit.outlets.report_lines import PLAIN

FEW = VerdictName.TOO_FEW_SAMPLES
ACCUSING = ("batches", "prefetch", "workers", "give", "Give", "loses", "lost", "idle")


def percents(ratios: Sequence[float]) -> list[int]:
    return [round(100 * ratio) for ratio in ratios]


def verdict_of(values: Sequence[object], period_s: float = 1.0) -> VerdictName:
    return only_gpu(analysed(smi_log(values, period_s))).verdict.name


def mig_log(of_first: str, seconds: int = 120) -> str:
    """Two GPUs: the first is MIG-partitioned, and the second works."""
    head = "timestamp, index, mig.mode.current, utilization.gpu [%]"
    lines = [head]
    for at_s in range(seconds):
        stamp = f"2026/03/02 09:{at_s // 60:02}:{at_s % 60:02}.000"
        lines += [f"{stamp}, 0, Enabled, {of_first}", f"{stamp}, 1, Disabled, 97 %"]
    return rows(*lines)


class TestTooFewSamples:
    def test_are_fewer_than_twenty(self) -> None:
        assert verdict_of([97] * 19) is FEW
        assert verdict_of([97] * 20) is VerdictName.HEALTHY

    def test_are_those_in_the_median_more_than_five_minutes_apart(self) -> None:
        assert verdict_of([97] * 40, 299) is VerdictName.HEALTHY
        assert verdict_of([97] * 40, 300) is VerdictName.HEALTHY
        assert verdict_of([97] * 40, 301) is FEW

    def test_are_no_longer_so_where_most_of_many_are_near(self) -> None:
        log = smi_log([97] * 60) + "".join(
            f"2026/01/25 {hour:02}:00:00.120, 97 %\n" for hour in range(20)
        )

        assert only_gpu(analysed(log)).verdict.name is not FEW

    def test_count_only_with_a_value(self) -> None:
        assert verdict_of([*[97] * 19, *["[N/A]"] * 40]) is FEW

    @pytest.mark.parametrize("ratios", [rhythm(2, 2, 4), [0.0] * 10, [1.0] * 19, [0.4] * 19, [1.0]])
    def test_accuse_no_user_and_say_what_to_log(self, ratios: list[float]) -> None:
        report = analysed(smi_log(percents(ratios)))
        message = render_report(report, PLAIN)

        assert only_gpu(report).verdict.severity is Severity.NONE
        assert next_line(report) == LOG_A_SECOND
        assert not [word for word in ACCUSING if word in message]

    def test_are_so_before_the_gpu_is_not_in_use(self) -> None:
        assert verdict_of([0] * 19) is FEW
        assert verdict_of([0] * 40) is VerdictName.NOT_IN_USE

    def test_are_an_advice_without_a_bound_in_json(self) -> None:
        document = encode_report(analysed(smi_log([97, 0, 97], 3_600)))
        (gpu,), (advice,) = document["gpus"], document["advice"]

        assert (gpu["verdict"], gpu["severity"], gpu["samples"]) == ("too_few_samples", "none", 3)
        assert gpu["sample_distance_seconds"] == 3_600
        assert gpu["suspected_seconds"] == gpu["starved_ratio"] == gpu["lost_ratio"] == 0
        assert gpu["input_probability"] is gpu["likely_causes"] is None
        assert advice["cause"] == "too_few_samples"
        assert (advice["lost_seconds"], advice["speedup_upper_bound"]) == (0, None)
        assert verdict_line(decode_report(document)) == verdict_line(
            analysed(smi_log([97, 0, 97], 3_600))
        )

    def test_keep_the_sums_closed(self) -> None:
        totals = only_gpu(analysed(smi_log(percents(rhythm(2, 2, 4))))).totals

        assert totals.busy_ns + totals.idle_total_ns == totals.observed_ns
        assert totals.suspected_ns == 0


class TestAGpuThatMigCuts:
    @pytest.mark.parametrize("message", ["[N/A]", "N/A", "0 %", "[Not Supported]"])
    def test_gets_no_verdict_by_what_a_csv_says_of_it(self, message: str) -> None:
        report = analysed(mig_log(message))
        cut = report.gpus[0]
        printed = render_report(report, PLAIN)

        assert cut.is_partitioned
        assert cut.totals.observed_ns == 0
        assert not any(advice.gpus == ("0",) for advice in report.advice)
        assert "MIG is on." in printed
        assert not [word for word in ("give", "Give", "share of the work") if word in printed]

    @pytest.mark.parametrize("message", ["N/A", "0"])
    def test_gets_no_verdict_by_what_the_table_says_of_it(self, message: str) -> None:
        moment: list[object] = [0 if message == "0" else message]
        report = analysed(table([moment] * 60, mig="Enabled"))

        assert (
            verdict_line(report) == "unknown: MIG is on, and the log has no utilisation of GPU 0."
        )
        assert "instance is made" not in render_report(report, PLAIN)
        assert "dcgmi dmon" in next_line(report)


def test_a_gpu_that_was_hardly_watched_is_never_to_be_given_back() -> None:
    report = analysed(smi_log([0] * 45, 0.2))

    assert only_gpu(report).totals.observed_ns == pytest.approx(9e9)
    assert "release" not in render_report(report, PLAIN)


class TestRowsThatEndEarly:
    @staticmethod
    def report(
        until_s: int,
        of_s: int = 300,
        *,
        percent: object = 97,
        value: object = None,
        step_s: int = 1,
    ) -> Report:
        """Two GPUs that work; GPU 1 has other values, or no rows, from a second on."""
        lines = ["timestamp, index, utilization.gpu [%]"]
        for at_s in range(0, of_s, step_s):
            stamp = f"2026/03/02 09:{at_s // 60:02}:{at_s % 60:02}.000"
            lines.append(f"{stamp}, 0, 97 %")
            if at_s < until_s or value is not None:
                lines.append(f"{stamp}, 1, {percent if at_s < until_s else value} %")
        return analysed(rows(*lines))

    def test_are_reported_as_values_where_rows_without_one_go_on(self) -> None:
        message = verdict_line(self.report(150, value="[N/A]"))

        assert message.startswith("rows end early: GPU 1 had no value after 2026-03-02 09:02:29, ")
        assert message.endswith(" until then. GPU 0 was busy almost all the time.")

    def test_are_reported_by_the_time_passed_where_the_log_has_no_clock(self) -> None:
        rows_of = [[0], [0, 1]]
        body = [f"    {gpu}     97     40" for at in range(200) for gpu in rows_of[at < 100]]
        message = verdict_line(analysed(rows("# gpu     sm    mem", "# Idx      %      %", *body)))

        assert message.startswith(
            "rows end early: GPU 1 had no row after the first 1 min 40 s, while "
        )

    @pytest.mark.parametrize(
        ("until_s", "of_s", "step_s"),
        [(40, 80, 1), (200, 265, 1), (300, 600, 5), (1500, 3000, 60), (1200, 1500, 60)],
    )
    def test_are_reported_of_any_log(self, until_s: int, of_s: int, step_s: int) -> None:
        assert "GPU 1 had no row after " in verdict_line(self.report(until_s, of_s, step_s=step_s))

    @pytest.mark.parametrize(
        ("until_s", "of_s", "step_s"),
        [(260, 300, 1), (297, 300, 1), (300, 300, 1), (37, 40, 1), (1320, 1500, 60)],
    )
    def test_are_no_word_worth_where_all_end_within_a_few(
        self, until_s: int, of_s: int, step_s: int
    ) -> None:
        report = self.report(until_s, of_s, step_s=step_s)

        assert verdict_line(report).startswith("healthy")
        assert not any(gpu.troubles for gpu in report.gpus)


UNSAID = "has no unit and was read as seconds (one row every"


class TestABareNumberOfMilliseconds:
    @pytest.mark.parametrize("heading", ["t", "time", "Time", "timestamp"])
    @pytest.mark.parametrize("busy", ["gpu_util [%]", "gpu0 [%],gpu1 [%]", "index,gpu_util [%]"])
    @pytest.mark.parametrize("step", [500, 1000])
    def test_is_read_as_a_second_with_a_note(self, heading: str, busy: str, step: int) -> None:
        columns = busy.count(",") + 1
        cells = ",".join(["97"] * columns) if columns == 1 or "0" in busy else "0,97"
        log = rows(f"{heading},{busy}", *(f"{at * step},{cells}" for at in range(300)))
        notes = " ".join(analysed(log).notes)

        assert f'The column "{heading}" {UNSAID} {step:,} s)' in notes

    @pytest.mark.parametrize("heading", ["t_ms", "time [ms]", "elapsed_s", "seconds", "uptime (s)"])
    def test_is_not_noted_where_the_heading_has_a_unit(self, heading: str) -> None:
        log = rows(f"{heading},gpu_util [%]", *(f"{at * 1000},97" for at in range(300)))

        assert UNSAID not in " ".join(analysed(log).notes)

    @pytest.mark.parametrize("stamp", ["{} s", "{}", "20{:02}-03-02 00:00:00"])
    def test_is_not_noted_of_other_times(self, stamp: str) -> None:
        step = 1 if stamp == "{}" else 1000 if " s" in stamp else 1
        log = rows("time,gpu_util [%]", *(f"{stamp.format(at * step)},97" for at in range(60)))

        assert UNSAID not in " ".join(analysed(log).notes)

    def test_of_days_is_noted_too(self) -> None:
        days = (f"{46_083.375 + at / 86_400:.9f},97" for at in range(300))

        (note,) = analysed(rows("time,gpu_util [%]", *days)).notes
        assert note.endswith("If it counts days, as a spreadsheet does, multiply it by 86400.")
