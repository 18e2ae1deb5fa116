"""Specification of ``step()`` in a loop of one's own: what counts, and what is no count."""

from __future__ import annotations

import numpy as np
import pytest

from gpumon.core.phase import PHASES, TrainingPhase
from trainer_hooks import phase, step
from trainer_hooks.ring.ring_writer import RingWriter


def present(writer: RingWriter) -> TrainingPhase:
    return PHASES[writer.present[0]]


class TestStep:
    def test_counts_steps_and_samples(self, writer: RingWriter) -> None:
        step(samples=32)
        step()
        step(np.int64(8))  # type: ignore[arg-type]  # or whatever can be an index

        assert (writer.steps, writer.samples) == (3, 40)

    def test_ends_start_up_where_nothing_else_is_tagged(self, writer: RingWriter) -> None:
        before = present(writer)
        step()

        assert (before, present(writer)) == (TrainingPhase.START_UP, TrainingPhase.OTHER)

    @pytest.mark.parametrize("name", ["start_up", "train_step"])
    def test_leaves_the_phase_alone_in_a_region(self, writer: RingWriter, name: str) -> None:
        with phase(name):
            step()
            assert present(writer).value == name


@pytest.mark.usefixtures("new_process")
class TestAStepWithBadSamples:
    @pytest.mark.parametrize(
        "bad", ["x", 3.5, -1, 1 << 70, 10**5_000, np.array([1, 2]), {"n": 1}], ids=type
    )
    def test_is_not_counted_and_the_next_one_is(self, writer: RingWriter, bad: object) -> None:
        step(samples=8)
        with pytest.warns(RuntimeWarning, match="does not count a step"):
            step(samples=bad)  # type: ignore[arg-type]
        step(samples=8)
        with phase("train_step"):
            assert present(writer) is TrainingPhase.TRAIN_STEP

        assert (writer.enabled, writer.steps, writer.samples) == (True, 2, 16)

    def test_is_warned_of_once_at_the_line_of_the_caller(
        self, writer: RingWriter, recwarn: pytest.WarningsRecorder
    ) -> None:
        for _ in range(3):
            step(samples="x")  # type: ignore[arg-type]

        (warning,) = recwarn
        assert (warning.category, warning.filename) == (RuntimeWarning, __file__)

    @pytest.mark.filterwarnings("error")
    def test_does_not_end_a_loop_where_warnings_are_errors(self, writer: RingWriter) -> None:
        step(samples="x")  # type: ignore[arg-type]

        assert writer.enabled
