"""A log with too little data, or with rows that cannot be used: it says so, and blames no cause."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from gpumon.core.codecs.report_codec import encode_report
from gpumon.core.diagnosis.messages import LOG_A_SECOND
from gpumon.core.report.report import Report
from gpumon.core.verdict import Severity, VerdictName
from gpumon.outlets.text.headline import verdict_line, why_line
from gpumon.outlets.text.report_lines import next_line
from gpumon.outlets.text.report_text import render_report
from tests.builders.logs import analysed, only_gpu, rows, smi_log, smi_stamp, table
from tests.builders.time import rhythm
from tests.unit.outlets.report_lines import PLAIN

FEW = VerdictName.TOO_FEW_SAMPLES
ACCUSING = ("batches", "prefetch", "workers", "give", "Give", "loses", "lost", "idle")


def verdict_of(values: Sequence[object], period_s: float = 1.0) -> VerdictName:
    return only_gpu(analysed(smi_log(values, period_s))).verdict.name


class TestTooFewSamples:
    @pytest.mark.parametrize(
        ("values", "period_s", "verdict"),
        [
            ([97] * 19, 1, FEW),
            ([97] * 20, 1, VerdictName.HEALTHY),
            ([97] * 40, 300, VerdictName.HEALTHY),
            ([97] * 40, 301, FEW),
            ([*[97] * 19, *["[N/A]"] * 40], 1, FEW),
            ([0] * 19, 1, FEW),
            ([0] * 40, 1, VerdictName.NOT_IN_USE),
        ],
    )
    def test_are_fewer_than_twenty_or_more_than_five_minutes_apart(
        self, values: list[object], period_s: float, verdict: VerdictName
    ) -> None:
        assert verdict_of(values, period_s) is verdict

    @pytest.mark.parametrize("ratios", [rhythm(2, 2, 4), [0.0] * 10, [0.4] * 19, [1.0]])
    def test_blame_no_cause_and_have_an_advice_without_a_bound(self, ratios: list[float]) -> None:
        report = analysed(smi_log([round(100 * ratio) for ratio in ratios]))
        message, (advice,) = render_report(report, PLAIN), report.advice

        assert only_gpu(report).verdict.severity is Severity.NONE
        assert next_line(report) == LOG_A_SECOND
        assert not [word for word in ACCUSING if word in message]
        assert (advice.cause, advice.speedup_upper_bound) == ("too_few_samples", None)
        totals = only_gpu(report).totals
        assert totals.busy_ns + totals.idle_total_ns == totals.observed_ns
        assert (totals.suspected_ns, totals.irregular_ns, totals.suspicion) == (0, 0, None)

    def test_of_an_idle_gpu_are_no_reason_to_release_it(self) -> None:
        report = analysed(smi_log([0] * 45, 0.2))

        assert only_gpu(report).totals.observed_ns == pytest.approx(9e9)
        assert "release" not in render_report(report, PLAIN)


class TestASuspicion:
    def test_of_a_log_that_ends_without_it_is_none(self) -> None:
        late = ([97] * 7 + [0] * 3 + [97] * 11 + [0] * 3) * 30
        alike = ([97] * 9 + [0] * 3) * 120
        assert only_gpu(analysed(smi_log(late))).totals.suspected_ns > 0

        report = analysed(smi_log([*late, *alike]))
        gpu, printed = only_gpu(report), render_report(report, PLAIN)

        assert gpu.verdict.input_probability is not None
        assert gpu.verdict.input_probability < 0.5
        assert (gpu.totals.suspected_ns, gpu.totals.episodes) == (0, 0)
        assert encode_report(report)["gpus"][0]["starved_intervals"] == []
        assert "suspected" not in printed


def test_the_times_of_the_last_pauses_are_those_of_the_nearest_second() -> None:
    in_pauses = [97] * 6 + [0] * 4
    stamped = [
        f"2026/03/02 09:{at // 60:02}:{at % 60:02}.900, 0, {in_pauses[at % 10]} %"
        for at in range(200)
    ]
    body = [f"    0     {in_pauses[at % 10]}      0" for at in range(9_000)]
    dated = why_line(analysed(rows("timestamp, index, utilization.gpu [%]", *stamped)))
    undated = why_line(analysed(rows("# gpu     sm    mem", "# Idx      %      %", *body)))

    # The last busy row is stamped 09:02:45.9, and the pause begins there.
    assert "The last ones began at 09:02:46, 09:02:56 and 09:03:06" in dated
    assert "The last ones began 2:29:26, 2:29:36 and 2:29:46 after the start: if" in undated


class TestAMigPartitionedGpu:
    @pytest.mark.parametrize("message", ["[N/A]", "0 %", "[Not Supported]"])
    def test_gets_no_verdict_by_its_cell_in_a_csv_or_table(self, message: str) -> None:
        lines = ["timestamp, index, mig.mode.current, utilization.gpu [%]"]
        for at_s in range(120):
            stamp = f"2026/03/02 09:{at_s // 60:02}:{at_s % 60:02}.000"
            lines += [f"{stamp}, 0, Enabled, {message}", f"{stamp}, 1, Disabled, 97 %"]
        report = analysed(rows(*lines))

        assert report.gpus[0].is_partitioned
        assert report.gpus[0].totals.observed_ns == 0
        assert not any(advice.gpus == ("0",) for advice in report.advice)
        assert "MIG is on." in render_report(report, PLAIN)
        alone = analysed(table([["N/A" if "%" not in message else 0]] * 60, mig="Enabled"))
        assert verdict_line(alone) == "unknown: MIG is on, and the log has no utilisation of GPU 0."
        assert "dcgmi dmon" in next_line(alone)


class TestRowsThatEndEarly:
    @staticmethod
    def report(until_s: int, of_s: int = 300, *, value: object = None, step_s: int = 1) -> Report:
        """Two GPUs that work; GPU 1 has other values, or no rows, from a second on."""
        lines = ["timestamp, index, utilization.gpu [%]"]
        for at_s in range(0, of_s, step_s):
            stamp = f"2026/03/02 09:{at_s // 60:02}:{at_s % 60:02}.000"
            lines.append(f"{stamp}, 0, 97 %")
            if at_s < until_s or value is not None:
                lines.append(f"{stamp}, 1, {97 if at_s < until_s else value} %")
        return analysed(rows(*lines))

    def test_are_reported_as_values_where_rows_without_one_go_on(self) -> None:
        message = verdict_line(self.report(150, value="[N/A]"))

        assert message.startswith("rows end early: GPU 1 had no value after 2026-03-02 09:02:29, ")
        assert message.endswith(" until then. GPU 0 was busy almost all the time.")

    def test_were_not_busy_almost_all_the_time_where_one_pause_was_long(self) -> None:
        lines = ["timestamp, index, utilization.gpu [%]"]
        for at_s in range(300):
            stamp = f"2026/03/02 09:{at_s // 60:02}:{at_s % 60:02}.000"
            own = [f"{stamp}, 1, {0 if 50 <= at_s < 70 else 97} %"] if at_s < 150 else []
            lines += [f"{stamp}, 0, 97 %", *own]

        (trouble,) = analysed(rows(*lines)).gpus[1].troubles
        assert trouble.text.endswith("while the log goes on for 2 min 30 s")

    def test_are_reported_by_the_time_passed_where_the_log_has_no_clock(self) -> None:
        body = [f"    {gpu}     97     40" for at in range(200) for gpu in range(1 + (at < 100))]
        message = verdict_line(analysed(rows("# gpu     sm    mem", "# Idx      %      %", *body)))

        assert message.startswith("rows end early: GPU 1 had no row after the first 1 min 40 s, ")

    @pytest.mark.parametrize(
        ("until_s", "of_s", "step_s", "is_reported"),
        [
            (40, 80, 1, True), (200, 265, 1, True), (300, 600, 5, True), (1200, 1500, 60, True),
            (260, 300, 1, False), (300, 300, 1, False), (37, 40, 1, False), (1320, 1500, 60, False),
        ],
    )  # fmt: skip
    def test_are_reported_beyond_a_few_rows(
        self, until_s: int, of_s: int, step_s: int, is_reported: bool
    ) -> None:
        message = verdict_line(self.report(until_s, of_s, step_s=step_s))

        assert ("GPU 1 had no row after " in message) is is_reported
        assert message.startswith("healthy") is not is_reported


UNIT = "has no unit and was read as seconds (one row every"


class TestATimeWithoutAUnit:
    @pytest.mark.parametrize("heading", ["t", "timestamp"])
    @pytest.mark.parametrize("busy", ["gpu_util [%]", "gpu0 [%],gpu1 [%]", "index,gpu_util [%]"])
    def test_is_read_as_seconds_with_a_note(self, heading: str, busy: str) -> None:
        cells = {"gpu_util [%]": "97", "gpu0 [%],gpu1 [%]": "97,97"}.get(busy, "0,97")
        log = rows(f"{heading},{busy}", *(f"{at * 500},{cells}" for at in range(300)))

        assert f'The column "{heading}" {UNIT} 500 s)' in " ".join(analysed(log).notes)

    @pytest.mark.parametrize(
        ("heading", "stamp", "step"),
        [
            ("t_ms", "{}", 1000), ("time [ms]", "{}", 1000), ("elapsed_s", "{}", 1000),
            ("time", "{} s", 1000), ("time", "{}", 1), ("time", "20{:02}-03-02 00:00:00", 1),
        ],
    )  # fmt: skip
    def test_is_not_noted_where_heading_or_value_has_one(
        self, heading: str, stamp: str, step: int
    ) -> None:
        log = rows(f"{heading},gpu_util [%]", *(f"{stamp.format(n * step)},97" for n in range(60)))

        assert UNIT not in " ".join(analysed(log).notes)

    def test_may_be_of_days(self) -> None:
        days = (f"{46_083.375 + at / 86_400:.9f},97" for at in range(300))

        (note,) = analysed(rows("time,gpu_util [%]", *days)).notes
        assert note.endswith("If it counts days, as a spreadsheet does, multiply it by 86400.")


def pausing(at_s: int) -> int:
    return 97 if at_s % 10 < 7 else 0


def log_with(
    bad_row: str, is_usable: Callable[[int], bool], percent: Callable[[int], int] = pausing
) -> Report:
    """One GPU, a row a second for five minutes; unusable ones are ``bad_row``."""
    lines = ["timestamp, index, utilization.gpu [%], memory.used [MiB]"]
    for at in range(300):
        row = "{}, 0, " + f"{percent(at)} %, 900 MiB" if is_usable(at) else bad_row
        lines.append(row.format(smi_stamp(at)))
    return analysed(rows(*lines))


@pytest.mark.parametrize(
    "bad_row",
    ["{}, 0, [N/A], 900 MiB", "{}, 0, nan, 900 MiB", "{}, 0, 130 %, 900 MiB", "{}, 0",
     "half past, 0, 97 %, 900 MiB"],
    ids=["without an answer", "not a number", "impossible", "cut", "without a time"],
)  # fmt: skip
class TestRowsThatCannotBeUsed:
    def test_are_reported_in_the_first_sentence_where_they_are_many(self, bad_row: str) -> None:
        report = log_with(bad_row, lambda at: at % 5 > 0)
        (document,) = encode_report(report)["gpus"]

        assert verdict_line(report).startswith(
            "partly busy (high loss), as far as 80 % of its rows can tell: GPU 0 "
        )
        assert (document["samples"], document["unusable_samples"]) == (240, 60)
        most = log_with(bad_row, lambda at: pausing(at) == 0 or at % 10 == 0)
        assert " can tell: In the rows that can be used: GPU 0 was idle for " in verdict_line(most)
        assert only_gpu(most).verdict.severity is Severity.MODERATE

    def test_may_have_been_work(self, bad_row: str) -> None:
        report = log_with(bad_row, lambda at: at % 3 > 0, lambda _: 0)

        assert verdict_line(report) == (
            "not in use, as far as 67 % of its rows can tell: GPU 0 ran no work."
        )
        assert next_line(report).startswith("What GPU 0 did in the other rows is unknown. Log ")
        assert "release" not in render_report(report, PLAIN).lower()


@pytest.mark.parametrize(
    ("heading", "line"),
    [
        ("time,gpu0 [%],gpu1 [%]\n", "{stamp},97,97"),
        ("", '{{"system.gpu.0.gpu": 97, "system.gpu.1.gpu": 97, "_timestamp": {number}}}'),
    ],
    ids=["a wide table", "objects"],
)
def test_a_line_of_several_gpus_that_is_cut_is_an_unusable_row_of_each(
    heading: str, line: str
) -> None:
    lines = [line.format(stamp=smi_stamp(n), number=1_780_000_000 + n) for n in range(300)]
    cut = [one if at % 5 else one[:-8] for at, one in enumerate(lines)]
    report = analysed(heading + rows(*cut))

    assert [gpu.totals.unusable_samples for gpu in report.gpus] == [60, 60]
    assert verdict_line(report) == (
        "healthy, as far as 80 % of the rows can tell: GPUs 0 and 1 were busy almost all the time."
    )
