"""Specification of a log of several GPUs, in any order of rows."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.core.log_summary.activity import ChangeRoom
from gpumon.core.report.report import Report
from gpumon.pipeline import log_analysis
from gpumon.sources.logs.log_sample import LoggedGpu, LogSample
from tests.builders.logs import analysis_of, facts_of, report_of, rows_of
from tests.builders.time import s

RHYTHM = [1.0, 1.0, 1.0, 0.0, 0.0] * 60
TWO = (LoggedGpu(index=0), LoggedGpu(index=1))
GIB = 1 << 30


def in_ticks(*gpus: list[LogSample]) -> list[LogSample]:
    """Rows as a logger writes them: all GPUs in each tick."""
    return list(chain.from_iterable(zip(*gpus, strict=True)))


def beside_ns(report: Report) -> list[int | None]:
    """How long each GPU was idle while another one worked."""
    return [gpu.idle_beside_peer_ns for gpu in report.gpus]


class TestWhatGpusDoTogether:
    def test_is_the_same_where_they_come_one_after_the_other(self) -> None:
        first, second = rows_of(0, RHYTHM), rows_of(1, [1.0] * 300, offset_s=0.004)

        ticked, apart = report_of(in_ticks(first, second), TWO), report_of([*second, *first], TWO)

        assert ticked.together == apart.together
        assert beside_ns(apart) == pytest.approx([s(120), 0], rel=0.01)

    def test_is_reported_where_all_pause(self) -> None:
        one, other = rows_of(0, [*RHYTHM, 1.0]), rows_of(1, [*RHYTHM, 1.0], offset_s=0.004)

        joined = report_of(in_ticks(one, other), TWO).together

        assert joined is not None
        assert joined.all_paused_ns == pytest.approx(s(120), rel=0.01)

    def test_has_no_slivers_where_rows_come_quicker_than_the_drivers_windows(self) -> None:
        # Ten rows a second; each GPU's window of a second begins at another moment.
        def windows(number: int, begin_s: float) -> list[LogSample]:
            return [
                LogSample(number, s(1_000 + at / 10), RHYTHM[int(at / 10 + begin_s)])
                for at in range(1, 2_900)
            ]

        report = report_of([*windows(0, 0.0), *windows(1, 0.4)], TWO)

        assert beside_ns(report) == [0, 0]
        assert report.together is not None
        assert report.together.all_paused_ns == pytest.approx(s(58 * 1.6), rel=0.02)

    def test_is_not_asked_of_one_gpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(log_analysis, "ChangeRoom", lambda: ChangeRoom(limit=100))

        report = report_of(rows_of(0, RHYTHM))

        assert report.together is None
        assert beside_ns(report) == [None]
        assert not any("pauses were not compared" in note for note in report.notes)

    def test_is_unknown_with_a_note_if_they_changed_too_often(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(log_analysis, "ChangeRoom", lambda: ChangeRoom(limit=100))

        report = report_of(in_ticks(rows_of(0, RHYTHM), rows_of(1, RHYTHM)), TWO)

        assert report.together is None
        assert beside_ns(report) == [None, None]
        assert any("pauses were not compared" in note for note in report.notes)


class TestTheOrderOfGpus:
    GPUS = (LoggedGpu(index=1), LoggedGpu(index=0))

    def test_is_that_of_their_index_in_all_that_is_reported(self) -> None:
        analysis = analysis_of(in_ticks(rows_of(0, [1.0] * 300), rows_of(1, RHYTHM)))
        report = analysis.report("gpu.csv", facts_of(self.GPUS))

        assert [gpu.index for gpu in report.gpus] == [0, 1]
        assert beside_ns(report) == [s(120), 0]
        assert [sum(lane.busy_ns) for lane in analysis.lanes().gpus] == [
            gpu.totals.busy_ns for gpu in report.gpus
        ]

    def test_leaves_out_one_without_a_row(self) -> None:
        analysis = analysis_of(rows_of(1, RHYTHM))
        report = analysis.report("gpu.csv", facts_of(self.GPUS))

        assert [gpu.index for gpu in report.gpus] == [0]
        assert len(analysis.lanes().gpus) == 1


class TestMigInstances:
    GPUS = (
        LoggedGpu(index=0, uuid="GPU-0", mig_enabled=True),
        LoggedGpu(index=0, mig_index=1),
        LoggedGpu(index=0, mig_index=0),
    )

    def test_are_numbered_after_their_gpu_which_has_no_part_in_the_verdict(self) -> None:
        rows = in_ticks(rows_of(0, [None] * 60), rows_of(1, [1.0] * 60), rows_of(2, [None] * 60))

        report = report_of(rows, self.GPUS)

        assert [gpu.label for gpu in report.gpus] == ["0", "0:0", "0:1"]
        assert [gpu.parent_uuid for gpu in report.gpus] == [None, "GPU-0", "GPU-0"]
        assert [gpu.is_partitioned for gpu in report.gpus] == [True, False, False]
        assert [gpu.has_no_utilisation for gpu in report.gpus] == [False, True, False]


class TestMemory:
    def test_that_was_held_is_reported_of_each_gpu(self) -> None:
        ratios = [1.0] * 100 + [0.0] * 400
        rows = in_ticks(
            rows_of(0, ratios, used_bytes=30 * GIB),
            rows_of(1, ratios, used_bytes=0),
            rows_of(2, ratios),
        )

        report = report_of(rows, (*TWO, LoggedGpu(index=2)))

        assert [gpu.held_memory for gpu in report.gpus] == [
            (s(400), s(400), 30 * GIB), (0, 0, 0), None,
        ]  # fmt: skip

    def test_may_be_reported_from_a_later_row_on(self) -> None:
        untold = rows_of(0, [0.0] * 3_000)
        told = rows_of(0, [0.0] * 500, offset_s=3_000, used_bytes=GIB << 3)

        assert report_of([*untold, *told]).gpus[0].held_memory == (s(500), s(500), 8 * GIB)


machines = st.lists(st.lists(st.sampled_from([0.0, 0.3, 1.0]), min_size=80, max_size=80),
                    min_size=2, max_size=4)  # fmt: skip


class TestLaws:
    @settings(max_examples=25)
    @given(machines)
    def test_nothing_depends_on_how_rows_of_gpus_are_mixed(
        self, machine: list[list[float]]
    ) -> None:
        gpus = [LoggedGpu(index=at) for at in range(len(machine))]
        rows = [rows_of(at, ratios) for at, ratios in enumerate(machine)]

        ticked, apart = report_of(in_ticks(*rows), gpus), report_of(chain(*rows), gpus)

        assert ticked == apart
