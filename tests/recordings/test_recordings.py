"""What must be true of every board that was ever recorded, and what is known of some."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.core.clock import NS_PER_S
from gpumon.core.phase import IdleCause, InputWaitReason, TrainingPhase
from gpumon.core.report.report import GpuReport, Report
from gpumon.core.verdict import VerdictName
from gpumon.pipeline.monitor import Monitor
from gpumon.pipeline.replay import facts_of, replayed_report
from gpumon.sources.recording import RecordingFile
from tests.builders.logs import NO_OPTIONS, analyse_file
from tests.recordings.make_fake_boards import NOTE

FOLDER = Path(__file__).parent
RECORDINGS = sorted(FOLDER.glob("*.gpumon"))


def report_of(path: Path) -> Report:
    with RecordingFile(path) as recording:
        return replayed_report(recording).report


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name)
class TestEveryRecording:
    def test_is_read_whole_with_no_sample_refused_and_sums_that_close_after_every_tick(
        self, path: Path
    ) -> None:
        with RecordingFile(path) as recording:
            facts = facts_of(recording)
            monitor = Monitor(facts)
            states = [monitor.ingest(moment) for moment in recording.moments()]
            assert recording.troubles() == ()

        assert len(states) > 5
        assert {one.name: one.errors_total for one in states[-1].collectors} == {
            facts.source_kind: 0,
            "phase_rings": 0,
            "host_evidence": 0,
        }
        for totals in (gpu.totals for state in states for gpu in state.gpus):
            told_ns = totals.busy_ns + totals.idle_total_ns + totals.pending_ns
            assert told_ns == totals.observed_ns
            assert 0 <= totals.busy_ns <= totals.observed_ns

    def test_was_observed_for_about_as_long_as_it_is(self, path: Path) -> None:
        with RecordingFile(path) as recording:
            report = replayed_report(recording).report

        period_ns = recording.header.period_ns
        for gpu in report.gpus:
            if gpu.error is None and not gpu.is_cut and not gpu.is_mute:
                assert abs(gpu.totals.observed_ns - recording.read_ns) <= 2 * period_ns


@pytest.fixture(scope="module")
def report() -> Report:
    """Of the fake boards."""
    return report_of(FOLDER / "fake_boards.gpumon")


class TestTheFakeBoards:
    def test_say_that_they_are_none(self, report: Report) -> None:
        assert report.simulated
        assert NOTE in report.notes[-1]

    def test_waited_for_input_in_every_other_second(self, report: Report) -> None:
        gpu = report.gpus[0]

        assert gpu.totals.busy_ns == pytest.approx(30 * NS_PER_S, rel=1e-6)
        assert gpu.totals.idle_ns[IdleCause.INPUT_WAIT] == pytest.approx(
            29.833 * NS_PER_S, rel=1e-3
        )
        assert gpu.verdict.name is VerdictName.STARVED
        assert gpu.verdict.coverage_ratio == 1.0
        assert gpu.totals.gaps.count == 29  # pauses between its thirty bursts

    def test_worked_all_the_time_beside_it(self, report: Report) -> None:
        gpu = report.gpus[1]

        assert gpu.totals.busy_ns == gpu.totals.observed_ns
        assert gpu.verdict.name is VerdictName.HEALTHY

    def test_had_one_training_of_thirty_steps(self, report: Report) -> None:
        (run,) = report.runs

        assert (run.run, run.pid, run.steps) == ("resnet", 4_242, 30)
        assert run.gpu_uuids == (report.gpus[0].uuid,)


@pytest.fixture(scope="module")
def h100() -> GpuReport:
    """Of a Keras training: 300 steps of about 65 ms, each of which waited 60 ms for its batch."""
    (gpu,) = report_of(FOLDER / "nvidia-h100-80gb-hbm3-keras.gpumon").gpus
    return gpu


class TestAKerasTrainingOnAnH100:
    def test_waited_for_input_as_long_as_its_loader_slept(self, h100: GpuReport) -> None:
        assert h100.totals.idle_ns[IdleCause.INPUT_WAIT] == pytest.approx(18 * NS_PER_S, rel=0.02)

    def test_is_starved_though_its_process_lived_on(self, h100: GpuReport) -> None:
        """Seen on the board: half a minute after ``fit`` the verdict had become partial."""
        assert h100.verdict.name is VerdictName.STARVED
        assert h100.verdict.coverage_ratio is not None
        assert h100.verdict.coverage_ratio > 0.95

    def test_worked_for_the_rest(self, h100: GpuReport) -> None:
        assert h100.totals.busy_ns == pytest.approx(300 * 0.065 * NS_PER_S, rel=0.05)
        assert h100.totals.idle_ns[IdleCause.WITHIN_STEP] < 2 * NS_PER_S


H200_TRAININGS = FOLDER / "nvidia-h200-trainings.gpumon"


class TestTrainingsThatPauseOnAnH200:
    def test_are_told_what_they_waited_for(self) -> None:
        report = report_of(H200_TRAININGS)
        (gpu,), runs = report.gpus, {run.run: run for run in report.runs}

        saved_ns = sum(run.phase_ns.get(TrainingPhase.CHECKPOINT, 0) for run in report.runs)
        assert len(runs) == 7
        assert gpu.totals.idle_ns[IdleCause.CHECKPOINT] == pytest.approx(saved_ns, rel=0.05)
        assert gpu.totals.idle_ns[IdleCause.INPUT_WAIT] == pytest.approx(59 * NS_PER_S, rel=0.02)
        assert gpu.verdict.name is VerdictName.STARVED

    @pytest.mark.parametrize(
        ("run", "reason"),
        [
            ("late_loader", InputWaitReason.CPU_BOUND),
            ("shard_fetch", InputWaitReason.LATENCY_BOUND),
            ("erratic_storage", InputWaitReason.LATENCY_BOUND),
            ("late_validation", InputWaitReason.CPU_BOUND),
        ],
    )
    def test_are_told_what_held_their_input_up(self, run: str, reason: InputWaitReason) -> None:
        (late,) = [one for one in report_of(H200_TRAININGS).runs if one.run == run]

        assert reason in {why.reason for why in late.reasons}

    def test_worked_as_long_by_the_bare_log_that_was_kept_beside(self) -> None:
        told = report_of(H200_TRAININGS).gpus[0].totals
        (bare,) = analyse_file(str(H200_TRAININGS.with_suffix(".csv")), NO_OPTIONS).gpus

        assert bare.totals.busy_ns == pytest.approx(told.busy_ns, rel=0.05)

    def test_lost_to_input_what_they_lost_when_the_recording_was_made(self) -> None:
        (gpu,) = report_of(H200_TRAININGS).gpus

        assert gpu.totals.starved_ns == 56_487_186_665

    def test_drew_at_work_what_the_board_drew_in_ticks_without_a_pause(self) -> None:
        """Pauses draw 127 W: over all ticks, weighed by their busy part, the mean is 655 W."""
        (gpu,) = report_of(H200_TRAININGS).gpus

        assert gpu.fill is not None
        assert gpu.fill.drawn_watts == pytest.approx(692, abs=1)
        assert gpu.fill.power_watts == pytest.approx(692, abs=1)
        assert 170 * NS_PER_S < gpu.fill.drawn_ns < gpu.totals.busy_ns

    def test_drew_at_work_no_mean_of_bursts_and_pauses_in_waves_of_an_h200(self) -> None:
        (gpu,) = report_of(FOLDER / "nvidia-h200.gpumon").gpus

        assert gpu.fill is not None
        assert gpu.fill.drawn_watts == pytest.approx(690, abs=2)
