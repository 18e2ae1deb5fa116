"""Specification of log analysis: a row speaks for the time before it, a hole for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpumon.core.codecs.report_codec import encode_report
from gpumon.core.report.report import GpuReport, Report
from gpumon.core.verdict import Pattern, VerdictName
from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.log_sample import LoggedGpu, LogOptions
from tests.builders.cycles import late_waves, on_and_off
from tests.builders.logs import (
    analyse_file,
    analysed,
    analysis_of,
    blocks_of,
    facts_of,
    only_gpu,
    rows,
    rows_of,
    smi_log,
)
from tests.builders.time import s


class TestAWorldOfKnownTruth:
    def analysed(self, percents: Sequence[float]) -> GpuReport:
        """The one GPU of a log of so many percent a second."""
        return only_gpu(analysed(smi_log(percents)))

    def test_bursts_and_pauses_are_suspected_and_their_seconds_are_right(self) -> None:
        # 3, 5 and 8 s of work in turn, 3 s without any after each, 60 times.
        gpu = self.analysed([100 * ratio for ratio in on_and_off(late_waves(60))])

        assert gpu.verdict.name is VerdictName.STARVATION_SUSPECTED
        assert gpu.verdict.pattern is Pattern.BURSTY
        assert gpu.totals.suspected_ns / 1e9 == pytest.approx(180.0, rel=0.02)
        assert gpu.totals.gaps.count == 60
        assert gpu.totals.busy_ns / 1e9 == pytest.approx(321.0, rel=0.02)


class TestASample:
    @pytest.mark.parametrize(
        ("percents", "observed_s", "idle_s"),
        [
            ({10: 100, 11: 100, 12.5: 0, 13.5: 100}, 4.5, 1.5),
            ({1: 100, 2: 100, 4: 0, 3: 100, 5: 100}, 5, 1),
            ({1: 100, 2: 100, 3: 100, 5: 100}, 5, 0),
            ({at / 4: 50 for at in range(8)}, 2, 1),
        ],
        ids=["the time since the one before", "its own time though it comes late",
             "all of a silence of two periods", "one period where it is the first"],
    )  # fmt: skip
    def test_covers(self, percents: dict[float, int], observed_s: float, idle_s: float) -> None:
        log = rows("time,util", *(f"{at},{percent}" for at, percent in percents.items()))

        report = analysed(log)

        assert report.observed_ns == s(observed_s)
        assert only_gpu(report).totals.idle_total_ns == s(idle_s)
        assert report.skipped_lines == 0

    def test_after_a_silence_covers_one_period_and_the_rest_is_not_observed(self) -> None:
        report = analysed(rows("time,util", *(f"{t},100" for t in (1, 2, 3, 4, 104, 105))))

        assert report.observed_ns == s(6)
        assert only_gpu(report).totals.idle_total_ns == 0
        assert any("99.0 s in 1 " in note for note in report.notes)

    def test_whose_time_does_not_rise_is_dropped_and_counted(self) -> None:
        log = rows("time,util", "1.5,100", "2.5,100", "2.5,0", "3.5,100", "4.5,100")

        report = analysed(log)

        assert (report.observed_ns, report.skipped_lines) == (s(4), 1)
        assert any("1 row " in note for note in report.notes)

    def test_that_is_alone_covers_an_assumed_second_and_that_is_noted(self) -> None:
        report = analysed(smi_log([50]))

        assert report.observed_ns == s(1)
        assert any("1 s was assumed" in note for note in report.notes)


class TestThePeriod:
    def test_may_be_said_by_the_user(self) -> None:
        report = analysed("5\n" * 10, LogOptions(period_ns=s(0.5)))

        assert (report.period_ns, report.observed_ns) == (s(0.5), s(5))


class TestTheReport:
    def test_begins_one_period_before_the_first_stamp(self) -> None:
        report = analysed(smi_log([100 * ratio for ratio in on_and_off(late_waves(30))]))

        intervals = encode_report(report)["gpus"][0]["starved_intervals"]

        assert report.started_at == "2025-06-13T00:00:00.000"
        assert intervals[:3] == [[3.0, 6.0], [11.0, 14.0], [22.0, 25.0]]

    def test_of_a_relative_log_names_no_date_and_loses_no_sample_before_its_zero(self) -> None:
        report = analysed(rows("Relative_Time_s,GPU_Utilization_%", "0.0,3", "0.5,2", "1.0,9"))

        assert report.started_at is None
        assert (report.observed_ns, report.skipped_lines) == (s(1.5), 0)


percent_rows = st.lists(st.integers(-5, 120) | st.none(), min_size=1, max_size=200)
ANY_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def is_a_report_or_a_sentence(path: Path) -> bool:
    try:
        report: Report = analyse_file(str(path), LogOptions())
    except UnreadableLogError as error:
        return bool(str(error))

    return all(
        gpu.totals.busy_ns + gpu.totals.idle_total_ns == gpu.totals.observed_ns
        and gpu.totals.pending_ns == 0
        for gpu in report.gpus
    )


class TestLaws:
    @given(percent_rows)
    def test_the_sums_close_and_what_was_skipped_is_not_observed(
        self, values: list[int | None]
    ) -> None:
        good = [value for value in values if value is not None and 0 <= value <= 100]
        log = smi_log(["[N/A]" if value is None else value for value in values])
        if not good:
            with pytest.raises(UnreadableLogError):
                analysed(log)
            return

        report = analysed(log)

        totals = only_gpu(report).totals
        assert totals.busy_ns + totals.idle_total_ns == totals.observed_ns == s(len(good))
        assert totals.busy_ns == sum(good) * s(0.01)
        assert report.skipped_lines == len(values) - len(good)

    @given(st.lists(st.tuples(st.integers(0, 2**70), st.integers(0, 130)), max_size=30))
    @ANY_FOLDER
    def test_any_stamps_are_a_report_or_a_sentence(
        self, tmp_path: Path, pairs: list[tuple[int, int]]
    ) -> None:
        path = tmp_path / "gpu.csv"
        path.write_text(rows("time,util", *(f"{stamp},{value}" for stamp, value in pairs)))

        assert is_a_report_or_a_sentence(path)


class TestRowsThatComeGpuByGpu:
    def test_are_of_one_time_as_those_that_come_moment_by_moment(self) -> None:
        one, other = (rows_of(gpu, on_and_off(late_waves(30))) for gpu in (0, 1))
        by_gpu = analysis_of(one)
        by_gpu.ingest(blocks_of(other))
        by_moment = analysis_of(row for both in zip(one, other, strict=True) for row in both)

        facts = facts_of([LoggedGpu(index=0), LoggedGpu(index=1)])
        told, true = (encode_report(done.report("a", facts)) for done in (by_gpu, by_moment))
        assert told["gpus"][0]["starved_intervals"] == true["gpus"][0]["starved_intervals"]
        assert told["gpus"][1]["starved_intervals"] == true["gpus"][1]["starved_intervals"] != []


class TestGpusOfSeveralHosts:
    @pytest.mark.parametrize("heading", ["hostname", "host", "node name", "Server", "instance"])
    def test_with_the_same_index_are_not_one(self, heading: str) -> None:
        lines = [f"timestamp,{heading},index,utilization.gpu"]
        for at_s in range(60):
            stamp = f"2026/03/02 09:00:{at_s:02}.000"
            lines += [f"{stamp},n1,0,{97 if at_s % 10 < 6 else 0}", f"{stamp},n2,0,97"]
        report = analysed(rows(*lines))

        assert [gpu.totals.pauses.count for gpu in report.gpus] == [5, 0]
        assert [gpu.name for gpu in report.gpus] == ["GPU of n1", "GPU of n2"]
        assert any("GPU 0 is 0 of n1, GPU 1 is 0 of n2" in note for note in report.notes)
