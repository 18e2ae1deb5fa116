"""A replay has the figures of the live report, marked as replayed."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.clock import NS_PER_S
from gpumon.core.codecs.state_codec import board_document
from gpumon.core.device.troubles import ErrorTimes
from gpumon.core.reading import Reading
from gpumon.core.report.report import Report
from gpumon.core.sample import ActivitySample, GpuDetails, GpuSample
from gpumon.core.state import MonitorState, gpu_troubles
from gpumon.core.verdict import Severity
from gpumon.errors import UnreadableLogError, UsageError
from gpumon.pipeline.monitor import Monitor
from gpumon.pipeline.replay import ReplayWatch, replayed_report
from gpumon.pipeline.report_builder import Reports
from gpumon.sources.recording import RecordingFile
from tests.builders.recording import BEGAN_NS, facts, plain_readings, record, training_readings
from tests.builders.time import HandClock

HERE = "boot-of-this-machine"


def live_reports(seed: int) -> Reports:
    """The reports of a daemon that ran during the recording."""
    monitor, reports = Monitor(facts()), Reports()
    for reading in training_readings(seed):
        reports.follow(monitor.ingest(reading))
    return reports


def as_live(report: Report) -> Report:
    """Without the marks of a replay."""
    assert report.replayed
    assert report.source.startswith("replay:")
    return replace(report, source=facts().source, replayed=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return record(tmp_path / "night", plain_readings(10))


def replayed(path: Path, *words: Any, **scope: Any) -> Report:
    with RecordingFile(path) as recording:
        return replayed_report(recording, *words, **scope).report


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of two runs."""
    return record(tmp_path_factory.mktemp("night") / "night", list(training_readings(1)))


class TestReplayedReport:
    @pytest.mark.parametrize("seed", range(3))
    def test_equals_the_live_one(self, tmp_path: Path, seed: int) -> None:
        path = record(tmp_path / "night", list(training_readings(seed)))

        live = live_reports(seed).report()

        assert live is not None
        assert sum(gpu.totals.starved_ns for gpu in live.gpus) > 0
        assert live.runs
        assert as_live(replayed(path)) == live

    @pytest.mark.parametrize("scope", [{}, {"since_s": 30.0}, {"run": "resnet-1"}])
    def test_of_a_part_and_its_lanes_equal_the_live_ones(
        self, night: Path, scope: dict[str, Any]
    ) -> None:
        with RecordingFile(night) as recording:
            report, lanes = replayed_report(recording, **scope)
        live = live_reports(1).report_with_lanes(**scope)

        assert live is not None
        assert (as_live(report), lanes) == live
        assert lanes is not None
        for gpu, lane in zip(report.gpus, lanes.gpus, strict=True):
            assert sum(lane.busy_ns) == pytest.approx(gpu.totals.busy_ns, abs=NS_PER_S)

    def test_of_an_unknown_run_names_the_known_ones(self, night: Path) -> None:
        with pytest.raises(UsageError, match="resnet-1"):
            replayed(night, run="alexnet")

    def test_can_be_watched_and_is_refused_without_a_tick(self, path: Path) -> None:
        seen: list[Reading] = []

        def watched(readings: Iterable[Reading]) -> Iterator[Reading]:
            for one in readings:
                seen.append(one)
                yield one

        replayed(path, watched)

        assert seen == plain_readings(10)
        with pytest.raises(UnreadableLogError, match="no reading"):
            replayed(path, lambda _: iter(()))


class Player:
    """Plays a recording of ten seconds on a simulated clock."""

    def __init__(self, path: Path, *, speed: float = 1.0) -> None:
        self.clock = HandClock()
        self.began_ns = self.clock.now_ns
        self.watch = ReplayWatch(RecordingFile(path), self.clock, HERE, speed=speed)
        self._monitor = Monitor(self.watch.facts)

    def states(self) -> Iterator[MonitorState]:
        while (reading := self.watch.next_reading()) is not None:
            yield self._monitor.ingest(reading, self.watch.collectors())


@pytest.fixture
def player(path: Path) -> Player:
    return Player(path)


class TestReplayWatch:
    @pytest.mark.parametrize("speed", [0.5, 1.0, 10.0])
    def test_takes_the_recorded_time_divided_by_the_speed(self, path: Path, speed: float) -> None:
        player = Player(path, speed=speed)

        passed, busy_ns = [], 0
        for state in player.states():
            passed.append(player.clock.now_ns - player.began_ns)
            busy_ns = state.gpus[0].totals.busy_ns

        assert passed == [round(second * NS_PER_S / speed) for second in range(10)]
        assert busy_ns == 5 * NS_PER_S  # at any speed

    def test_shows_timestamps_that_start_now(self, path: Path) -> None:
        player = Player(path, speed=10.0)
        states = [*player.states()]
        assert (states[0].boot_id, states[0].source) == (facts().boot_id, f"replay:{path}")
        assert states[0].taken_at_ns == BEGAN_NS + NS_PER_S
        player = Player(path, speed=10.0)
        shown = [player.watch.for_display(state) for state in player.states()]

        assert [one.taken_at_ns - player.began_ns for one in shown] == [
            second * NS_PER_S for second in range(10)
        ]
        assert {one.boot_id for one in shown} == {HERE}
        assert all(one.replayed for one in shown)
        assert [one.taken_at_ns - (one.gpus[0].last_sample_at_ns or 0) for one in shown] == [0] * 10

    def test_keeps_the_age_of_errors_and_board_details(self, player: Player) -> None:
        state = next(player.states())
        at_ns = state.taken_at_ns
        sample = GpuSample(
            device=state.gpus[0].device,
            details=GpuDetails(read_at_ns=at_ns - 3 * NS_PER_S, persistence_mode=True),
            activity=ActivitySample(at_ns - 2 * NS_PER_S, at_ns - NS_PER_S, sm_active_ratio=0.5),
        )
        gpu = state.gpus[0]._replace(
            latest=sample, xid_errors=((79, 1),), errors=ErrorTimes(((79, at_ns),), 1, at_ns)
        )

        shown = player.watch.for_display(state._replace(gpus=(gpu,)))

        board, now_ns = board_document(shown.gpus[0]), shown.taken_at_ns
        assert now_ns != at_ns
        assert board["details"]["read_at_ns"] == now_ns - 3 * NS_PER_S
        assert board["details"]["persistence_mode"] is True
        assert board["activity"]["start_ns"] == now_ns - 2 * NS_PER_S
        assert board["activity"]["end_ns"] == now_ns - NS_PER_S
        troubles = gpu_troubles(shown.gpus[0], shown)
        assert [one.last_ns for one in troubles] == [now_ns] * 2
        assert {one.severity for one in troubles} == {Severity.HIGH}

    def test_leaves_the_present_time_for_other_processes(self, path: Path) -> None:
        player = Player(path, speed=10.0)
        for state in player.states():
            left, shown = player.watch.for_state_file(state), player.watch.for_display(state)
            assert left.taken_at_ns == left.gpus[0].last_sample_at_ns == player.clock.now_ns
            assert player.watch.clock.monotonic_ns() == shown.taken_at_ns

    def test_reports_its_end(self, player: Player) -> None:
        *_, last = player.states()
        (before,) = [one for one in last.collectors if one.name == "replay"]
        over_ns = player.watch.clock.monotonic_ns()
        player.clock.pass_seconds(60)

        (after,) = player.watch.collectors()
        assert (before.success, before.message) == (True, None)
        assert not after.success
        assert " 9 s;" in str(after.message)
        assert player.watch.next_reading() is None
        assert player.watch.clock.monotonic_ns() == over_ns

    def test_reports_damage(self, tmp_path: Path) -> None:
        path = record(tmp_path / "cut", plain_readings(9), why=None)
        player = Player(path)
        list(player.states())

        (collector,) = player.watch.collectors()
        assert "6 readings" in str(collector.message)
        report = replayed(path)
        assert report.gpus[0].totals.observed_ns == 6 * NS_PER_S
        assert "6 readings" in report.notes[-1]

    def test_reports_why_it_ended_early(
        self, player: Player, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> bytes:
            raise OSError(errno.EIO, "the disk is broken")

        monkeypatch.setattr("os.pread", fail)
        states = list(player.states())

        (collector,) = player.watch.collectors()
        assert len(states) < 10
        assert "broken." in str(collector.message)
