"""Specification of other tools' rules: each sees what it would see, and no more."""

from __future__ import annotations

import numpy as np
import pytest

from gpumon.core.phase import PHASE_NUMBER, TrainingPhase
from tests.truth.score.baselines import Percents, gpuprof, mean_below_70, sagemaker
from tests.truth.score.baselines import sagemaker_in_jobs as in_jobs
from tests.truth.workloads.seeing import SeenLog
from tests.truth.workloads.spans import no_spans, spans_of
from tests.truth.workloads.truth import GpuTruth, Marks, no_marks

STEP, INPUT, OTHER = TrainingPhase.TRAIN_STEP, TrainingPhase.INPUT_WAIT, TrainingPhase.OTHER
S = 1_000


def readings(*runs: tuple[int, int]) -> Percents:
    """Percents, each so many times in turn."""
    return np.repeat([level for level, _ in runs], [times for _, times in runs]).astype(np.uint8)


def marked(*marks: tuple[int, TrainingPhase]) -> Marks:
    """Phases and where they begin, in seconds."""
    at_ms = np.array([at_s * S for at_s, _ in marks], dtype=np.int64)
    phases = np.array([PHASE_NUMBER[phase] for _, phase in marks], dtype=np.int64)
    return Marks(at_ms, phases, np.zeros_like(phases))


def gpu_of(marks: Marks, *held_s: tuple[int, int]) -> GpuTruth:
    held = spans_of((begin_s * S, end_s * S) for begin_s, end_s in held_s)
    return GpuTruth(busy=no_spans(), starved=no_spans(), jobs=held, held=held, marks=marks)


def log_of(percents: Percents) -> SeenLog:
    """A reading a second."""
    return SeenLog(np.arange(len(percents), dtype=np.int64) * S * 1_000_000, percents, 1_000.0)


class TestTheMean:
    def test_accuses_below_seventy_percent(self) -> None:
        assert mean_below_70(readings((69, 10))).is_starved
        assert not mean_below_70(readings((70, 10))).is_starved


class TestSageMakersRule:
    @pytest.mark.parametrize(
        ("runs", "is_accused"),
        [
            ([(60, 500)], True),
            ([(95, 460), (0, 40)], True),
            ([(95, 480), (0, 20)], False),
            ([(0, 500), (95, 500)], False),
            ([(95, 500), (0, 500)], True),
            ([(0, 100), (95, 800)], True),
        ],
        ids=[
            "p95 is low", "p5 is next to nothing", "p5 is not", "before its patience",
            "after its patience", "a short log all the same",
        ],
    )  # fmt: skip
    def test_accuses_where(self, runs: list[tuple[int, int]], is_accused: bool) -> None:
        assert sagemaker(readings(*runs)).is_starved is is_accused

    def test_watches_a_run_and_nothing_around_it(self) -> None:
        log = log_of(readings((0, 300), (95, 600), (0, 300)))
        training = gpu_of(marked((300, STEP)), (300, 900))

        assert sagemaker(log.percents).is_starved
        assert not in_jobs(log, training).is_starved
        assert in_jobs(log, gpu_of(marked((0, STEP)), (0, 1_200))).is_starved

    def test_watches_no_server_and_no_notebook(self) -> None:
        assert not in_jobs(log_of(readings((0, 600))), gpu_of(no_marks(), (0, 600))).is_starved


class TestGpuprofsRule:
    def test_accuses_where_gaps_between_steps_are_fifteen_percent_of_them(self) -> None:
        waits, hardly = (
            marked((0, STEP), (100, INPUT), (100 + wait_s, STEP)) for wait_s in (30, 29)
        )

        assert gpuprof(gpu_of(waits, (0, 230))).is_starved
        assert not gpuprof(gpu_of(hardly, (0, 229))).is_starved

    def test_takes_a_checkpoint_for_a_wait(self) -> None:
        marks = marked((0, STEP), (100, TrainingPhase.CHECKPOINT), (150, STEP))

        assert gpuprof(gpu_of(marks, (0, 250))).is_starved

    def test_sees_no_gap_between_two_runs(self) -> None:
        marks = marked((0, STEP), (100, OTHER), (1_000, STEP))

        assert not gpuprof(gpu_of(marks, (0, 110), (1_000, 1_100))).is_starved

    def test_sees_nothing_where_it_is_not_built_in(self) -> None:
        assert not gpuprof(gpu_of(no_marks(), (0, 100))).is_starved
