"""Tests of recordings of real boards."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from gpumon.core.clock import NS_PER_S
from gpumon.core.phase import IdleCause, InputWaitReason, TrainingPhase
from gpumon.core.report.report import Report
from gpumon.core.verdict import VerdictName
from gpumon.pipeline.monitor import Monitor
from gpumon.pipeline.replay import facts_of, replayed_report
from gpumon.sources.recording import RecordingFile
from tests.builders.logs import NO_OPTIONS, analyse_file
from tests.recordings.make_fake_boards import NOTE

FOLDER = Path(__file__).parent
RECORDINGS = sorted(FOLDER.glob("*.gpumon"))


@cache
def report_of(path: Path) -> Report:
    with RecordingFile(path) as recording:
        return replayed_report(recording).report


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name)
class TestEveryRecording:
    def test_is_read_without_a_rejected_sample_and_with_sums_that_add_up(self, path: Path) -> None:
        with RecordingFile(path) as recording:
            facts = facts_of(recording)
            monitor = Monitor(facts)
            states = [monitor.ingest(reading) for reading in recording.readings()]
            assert recording.troubles() == ()

        assert len(states) > 5
        assert {one.name: one.errors_total for one in states[-1].collectors} == {
            facts.source_kind: 0,
            "phase_rings": 0,
            "host_evidence": 0,
        }
        for totals in (gpu.totals for state in states for gpu in state.gpus):
            parts_ns = totals.busy_ns + totals.idle_total_ns + totals.pending_ns
            assert parts_ns == totals.observed_ns
            assert 0 <= totals.busy_ns <= totals.observed_ns
        for gpu in report_of(path).gpus:
            if gpu.error is None and not gpu.is_partitioned and not gpu.has_no_utilisation:
                unobserved_ns = abs(gpu.totals.observed_ns - recording.read_ns)
                assert unobserved_ns <= 2 * recording.header.period_ns


class TestTheFakeBoards:
    def test_are_one_starved_gpu_and_a_healthy_one(self) -> None:
        report = report_of(FOLDER / "fake_boards.gpumon")
        gpu, healthy = report.gpus

        assert report.simulated
        assert NOTE in report.notes[-1]
        assert gpu.totals.busy_ns == pytest.approx(30 * NS_PER_S, rel=1e-6)
        assert gpu.totals.idle_ns[IdleCause.INPUT_WAIT] == pytest.approx(
            29.833 * NS_PER_S, rel=1e-3
        )
        assert gpu.verdict.name is VerdictName.STARVED
        assert gpu.verdict.coverage_ratio == 1.0
        assert gpu.totals.gaps.count == 29
        assert healthy.totals.busy_ns == healthy.totals.observed_ns
        assert healthy.verdict.name is VerdictName.HEALTHY
        (run,) = report.runs
        assert (run.run, run.pid, run.steps) == ("resnet", 4_242, 30)
        assert run.gpu_uuids == (gpu.uuid,)


class TestAKerasRunOnAnH100:
    """300 steps of about 65 ms, each with a wait of 60 ms for its batch."""

    def test_is_starved_by_its_loader(self) -> None:
        (h100,) = report_of(FOLDER / "nvidia-h100-80gb-hbm3-keras.gpumon").gpus

        assert h100.totals.idle_ns[IdleCause.INPUT_WAIT] == pytest.approx(18 * NS_PER_S, rel=0.02)
        # On the board, the verdict once became partial half a minute after ``fit``.
        assert h100.verdict.name is VerdictName.STARVED
        assert h100.verdict.coverage_ratio is not None
        assert h100.verdict.coverage_ratio > 0.95
        assert h100.totals.busy_ns == pytest.approx(300 * 0.065 * NS_PER_S, rel=0.05)
        assert h100.totals.idle_ns[IdleCause.WITHIN_STEP] < 2 * NS_PER_S


H200_RUNS = FOLDER / "nvidia-h200-runs.gpumon"


class TestRunsWithPausesOnAnH200:
    def test_have_causes_of_idle_time(self) -> None:
        report = report_of(H200_RUNS)
        (gpu,), runs = report.gpus, {run.run: run for run in report.runs}

        saved_ns = sum(run.phase_ns.get(TrainingPhase.CHECKPOINT, 0) for run in report.runs)
        assert len(runs) == 7
        assert gpu.totals.idle_ns[IdleCause.CHECKPOINT] == pytest.approx(saved_ns, rel=0.05)
        assert gpu.totals.idle_ns[IdleCause.INPUT_WAIT] == pytest.approx(59 * NS_PER_S, rel=0.02)
        assert gpu.verdict.name is VerdictName.STARVED
        assert gpu.totals.starved_ns == 56_487_186_665

    @pytest.mark.parametrize(
        ("run", "reason"),
        [
            ("late_loader", InputWaitReason.CPU_BOUND),
            ("shard_fetch", InputWaitReason.LATENCY_BOUND),
            ("erratic_storage", InputWaitReason.LATENCY_BOUND),
            ("late_validation", InputWaitReason.CPU_BOUND),
        ],
    )
    def test_have_reasons_of_input_waits(self, run: str, reason: InputWaitReason) -> None:
        (late,) = [one for one in report_of(H200_RUNS).runs if one.run == run]

        assert reason in {why.reason for why in late.reasons}

    def test_have_the_busy_time_of_the_log_of_the_same_runs(self) -> None:
        recorded = report_of(H200_RUNS).gpus[0].totals
        (bare,) = analyse_file(str(H200_RUNS.with_suffix(".csv")), NO_OPTIONS).gpus

        assert bare.totals.busy_ns == pytest.approx(recorded.busy_ns, rel=0.05)

    def test_have_the_power_of_ticks_without_a_pause(self) -> None:
        # In pauses, the board draws 127 W: weighted by busy time, all ticks would average 655 W.
        (gpu,) = report_of(H200_RUNS).gpus

        assert gpu.fill is not None
        assert gpu.fill.drawn_watts == pytest.approx(692, abs=1)
        assert gpu.fill.power_watts == pytest.approx(692, abs=1)
        assert 170 * NS_PER_S < gpu.fill.drawn_ns < gpu.totals.busy_ns

    def test_have_no_power_averaged_over_bursts_and_pauses(self) -> None:
        (gpu,) = report_of(FOLDER / "nvidia-h200.gpumon").gpus

        assert gpu.fill is not None
        assert gpu.fill.drawn_watts == pytest.approx(690, abs=2)
