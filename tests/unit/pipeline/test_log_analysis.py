"""A row of a log covers the time before it, and a hole is not observed; of one GPU or several."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpumon.core.codecs.report_codec import encode_report
from gpumon.core.log_summary.activity import ChangeBudget
from gpumon.core.report.report import Report
from gpumon.core.verdict import Pattern, VerdictName
from gpumon.errors import UnreadableLogError
from gpumon.pipeline import log_analysis
from gpumon.sources.logs.log_sample import LoggedGpu, LogOptions, LogSample
from tests.builders.cycles import late_waves, on_and_off
from tests.builders.logs import (
    NO_OPTIONS,
    analyse_file,
    analysed,
    analysis_of,
    facts_of,
    only_gpu,
    report_of,
    rows,
    rows_of,
    smi_log,
)
from tests.builders.time import s

RHYTHM = [1.0, 1.0, 1.0, 0.0, 0.0] * 60
TWO = (LoggedGpu(index=0), LoggedGpu(index=1))
GIB = 1 << 30


class TestASample:
    @pytest.mark.parametrize(
        ("percents", "observed_s", "idle_s"),
        [
            ({10: 100, 11: 100, 12.5: 0, 13.5: 100}, 4.5, 1.5),
            ({1: 100, 2: 100, 4: 0, 3: 100, 5: 100}, 5, 1),
            ({1: 100, 2: 100, 3: 100, 5: 100}, 5, 0),
            ({at / 4: 50 for at in range(8)}, 2, 1),
            ({1: 100, 2: 100, 3: 100, 4: 100, 104: 100, 105: 100}, 6, 0),
        ],
        ids=["the time since the one before", "its own time though it comes late",
             "all of a silence of two periods", "one period where it is the first",
             "one period after a long silence"],
    )  # fmt: skip
    def test_covers(self, percents: dict[float, int], observed_s: float, idle_s: float) -> None:
        log = rows("time,util", *(f"{at},{percent}" for at, percent in percents.items()))

        report = analysed(log)

        assert report.observed_ns == s(observed_s)
        assert only_gpu(report).totals.idle_total_ns == s(idle_s)
        assert report.skipped_lines == 0

    def test_that_is_alone_covers_an_assumed_second_and_that_is_noted(self) -> None:
        report = analysed(smi_log([50]))

        assert report.observed_ns == s(1)
        assert any("1 s was assumed" in note for note in report.notes)

    def test_covers_the_period_that_the_user_gives(self) -> None:
        report = analysed("5\n" * 10, LogOptions(period_ns=s(0.5)))

        assert (report.period_ns, report.observed_ns) == (s(0.5), s(5))


class TestTheReport:
    def test_has_the_seconds_of_bursts_and_pauses(self) -> None:
        # 3, 5 and 8 s of work in turn, 3 s without any after each, 60 times.
        report = analysed(smi_log([100 * ratio for ratio in on_and_off(late_waves(60))]))
        gpu = only_gpu(report)

        assert gpu.verdict.name is VerdictName.STARVATION_SUSPECTED
        assert gpu.verdict.pattern is Pattern.BURSTY
        assert gpu.totals.suspected_ns / 1e9 == pytest.approx(180.0, rel=0.02)
        assert gpu.totals.gaps.count == 60
        assert gpu.totals.busy_ns / 1e9 == pytest.approx(321.0, rel=0.02)
        assert report.started_at == "2025-06-13T00:00:00.000"  # a period before the first stamp
        intervals = encode_report(report)["gpus"][0]["starved_intervals"]
        assert intervals[:3] == [[3.0, 6.0], [11.0, 14.0], [22.0, 25.0]]

    def test_of_a_relative_log_names_no_date_and_loses_no_sample_before_its_zero(self) -> None:
        report = analysed(rows("Relative_Time_s,GPU_Utilization_%", "0.0,3", "0.5,2", "1.0,9"))

        assert report.started_at is None
        assert (report.observed_ns, report.skipped_lines) == (s(1.5), 0)


def in_ticks(*gpus: list[LogSample]) -> list[LogSample]:
    """Rows as a logger writes them: all GPUs in each tick."""
    return list(chain.from_iterable(zip(*gpus, strict=True)))


def idle_beside_others_ns(report: Report) -> list[int | None]:
    """How long each GPU was idle while another one worked."""
    return [gpu.idle_beside_peer_ns for gpu in report.gpus]


class TestWhatGpusDoTogether:
    def test_is_the_same_where_they_come_one_after_the_other(self) -> None:
        first, second = rows_of(0, RHYTHM), rows_of(1, [1.0] * 300, offset_s=0.004)

        ticked, apart = report_of(in_ticks(first, second), TWO), report_of([*second, *first], TWO)

        assert ticked.together == apart.together
        assert idle_beside_others_ns(apart) == pytest.approx([s(120), 0], rel=0.01)

    def test_is_reported_where_all_pause(self) -> None:
        one, other = rows_of(0, [*RHYTHM, 1.0]), rows_of(1, [*RHYTHM, 1.0], offset_s=0.004)

        joined = report_of(in_ticks(one, other), TWO).together

        assert joined is not None
        assert joined.all_paused_ns == pytest.approx(s(120), rel=0.01)

    def test_has_no_slivers_where_rows_come_quicker_than_the_drivers_windows(self) -> None:
        # Ten rows a second; each GPU's window of a second begins at another time.
        def windows(number: int, begin_s: float) -> list[LogSample]:
            return [
                LogSample(number, s(1_000 + at / 10), RHYTHM[int(at / 10 + begin_s)])
                for at in range(1, 2_900)
            ]

        report = report_of([*windows(0, 0.0), *windows(1, 0.4)], TWO)

        assert idle_beside_others_ns(report) == [0, 0]
        assert report.together is not None
        assert report.together.all_paused_ns == pytest.approx(s(58 * 1.6), rel=0.02)

    @pytest.mark.parametrize("gpus", [1, 2])
    def test_is_unknown_with_a_note_if_several_changed_too_often(
        self, monkeypatch: pytest.MonkeyPatch, gpus: int
    ) -> None:
        monkeypatch.setattr(log_analysis, "ChangeBudget", lambda: ChangeBudget(limit=100))

        report = report_of(in_ticks(*(rows_of(at, RHYTHM) for at in range(gpus))), TWO[:gpus])

        assert report.together is None
        assert idle_beside_others_ns(report) == [None] * gpus
        assert any("pauses were not compared" in note for note in report.notes) is (gpus == 2)


class TestTheOrderOfGpus:
    GPUS = (LoggedGpu(index=1), LoggedGpu(index=0))

    def test_is_that_of_their_index_in_all_that_is_reported(self) -> None:
        analysis = analysis_of(in_ticks(rows_of(0, [1.0] * 300), rows_of(1, RHYTHM)))
        report = analysis.report("gpu.csv", facts_of(self.GPUS))

        assert [gpu.index for gpu in report.gpus] == [0, 1]
        assert idle_beside_others_ns(report) == [s(120), 0]
        assert [sum(lane.busy_ns) for lane in analysis.lanes().gpus] == [
            gpu.totals.busy_ns for gpu in report.gpus
        ]

    def test_leaves_out_one_without_a_row(self) -> None:
        analysis = analysis_of(rows_of(1, RHYTHM))
        report = analysis.report("gpu.csv", facts_of(self.GPUS))

        assert [gpu.index for gpu in report.gpus] == [0]
        assert len(analysis.lanes().gpus) == 1

    def test_has_mig_instances_after_their_gpu_which_has_no_part_in_the_verdict(self) -> None:
        gpus = (
            LoggedGpu(index=0, uuid="GPU-0", mig_enabled=True),
            LoggedGpu(index=0, mig_index=1),
            LoggedGpu(index=0, mig_index=0),
        )
        rows = in_ticks(rows_of(0, [None] * 60), rows_of(1, [1.0] * 60), rows_of(2, [None] * 60))

        report = report_of(rows, gpus)

        assert [gpu.label for gpu in report.gpus] == ["0", "0:0", "0:1"]
        assert [gpu.parent_uuid for gpu in report.gpus] == [None, "GPU-0", "GPU-0"]
        assert [gpu.is_partitioned for gpu in report.gpus] == [True, False, False]
        assert [gpu.has_no_utilisation for gpu in report.gpus] == [False, True, False]

    @pytest.mark.parametrize("heading", ["hostname", "host", "node name", "Server", "instance"])
    def test_has_gpus_of_several_hosts_apart(self, heading: str) -> None:
        lines = [f"timestamp,{heading},index,utilization.gpu"]
        for at_s in range(60):
            stamp = f"2026/03/02 09:00:{at_s:02}.000"
            lines += [f"{stamp},n1,0,{97 if at_s % 10 < 6 else 0}", f"{stamp},n2,0,97"]
        report = analysed(rows(*lines))

        assert [gpu.totals.pauses.count for gpu in report.gpus] == [5, 0]
        assert [gpu.name for gpu in report.gpus] == ["GPU of n1", "GPU of n2"]
        assert any("GPU 0 is 0 of n1, GPU 1 is 0 of n2" in note for note in report.notes)


def test_held_memory_is_reported_of_each_gpu_from_its_first_value_on() -> None:
    ratios = [1.0] * 100 + [0.0] * 400
    rows = in_ticks(
        rows_of(0, ratios, used_bytes=30 * GIB), rows_of(1, ratios, used_bytes=0),
        rows_of(2, ratios),
    )  # fmt: skip
    later = [*rows_of(0, [0.0] * 3_000),
             *rows_of(0, [0.0] * 500, offset_s=3_000, used_bytes=8 * GIB)]  # fmt: skip

    held = [gpu.held_memory for gpu in report_of(rows, (*TWO, LoggedGpu(index=2))).gpus]

    assert held == [(s(400), s(400), 30 * GIB), (0, 0, 0), None]
    assert report_of(later).gpus[0].held_memory == (s(500), s(500), 8 * GIB)


class TestLaws:
    @given(st.lists(st.integers(-5, 120) | st.none(), min_size=1, max_size=200))
    @settings(max_examples=50)
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
    @settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_any_stamps_are_a_report_or_a_sentence(
        self, tmp_path: Path, pairs: list[tuple[int, int]]
    ) -> None:
        path = tmp_path / "gpu.csv"
        path.write_text(rows("time,util", *(f"{stamp},{value}" for stamp, value in pairs)))

        try:
            gpus = analyse_file(str(path), NO_OPTIONS).gpus
        except UnreadableLogError:
            return

        for totals in (gpu.totals for gpu in gpus):
            assert totals.busy_ns + totals.idle_total_ns == totals.observed_ns
            assert totals.pending_ns == 0

    @given(
        st.lists(st.lists(st.sampled_from([0.0, 0.3, 1.0]), min_size=80, max_size=80),
                 min_size=2, max_size=4)
    )  # fmt: skip
    @settings(max_examples=15)
    def test_nothing_depends_on_how_rows_of_gpus_are_mixed(
        self, machine: list[list[float]]
    ) -> None:
        gpus = [LoggedGpu(index=at) for at in range(len(machine))]
        rows = [rows_of(at, ratios) for at, ratios in enumerate(machine)]

        assert report_of(in_ticks(*rows), gpus) == report_of(chain(*rows), gpus)
