"""The wait for input that ``PhaseTagger`` tells on TensorFlow, against truth from below.

Several steps an execution fetch beside their compute where they are compiled: that wait is gross.
"""

from __future__ import annotations

from statistics import mean, median

import pytest

from gpumon.core.phase import TrainingPhase
from gpumon.core.ring_format.events import RingKind
from tests.keras.later import b
from tests.keras.later import on_tensorflow as t
from tests.patience import lateness_ns

pytestmark = pytest.mark.keras_tensorflow
MS = 1_000_000
COMPUTE_S = 0.005


@pytest.mark.measured
class TestTheWaitForInput:
    @pytest.mark.parametrize(
        ("source", "seconds"),
        [
            ("synchronous", 0.05),
            ("prefetched", 0.05),
            ("generator", 0.05),
            ("workers=0", 0.05),
            ("workers=2", 0.12),
        ],
    )
    def test_is_what_the_compute_had_to_wait(self, source: str, seconds: float) -> None:
        compute = b.SleepingCompute(COMPUTE_S)

        true_ns, errors_ns = t.true_waits_and_errors_ns(t.SOURCES[source], compute, seconds)

        late_ns = lateness_ns(compute.spans_ns, COMPUTE_S)  # as late is a busy machine with all
        assert mean(true_ns) > 10 * MS
        assert abs(median(errors_ns)) < max(MS, mean(true_ns) / 10) + late_ns
        assert "input_wait" not in b.facts().loader  # where "gross" would be said


class TestTheWaitOfSeveralStepsInOneExecution:
    @pytest.mark.measured
    def test_is_recorded_gross_inside_the_step_and_as_no_phase(self) -> None:
        model = b.small_model(b.SleepingCompute(0.005), steps_per_execution=4)

        recorded_ns, true_ns = t.usual_recorded_and_true_ns(model.fit, t.gross_waits_told_ns)

        assert true_ns > 40 * MS
        assert recorded_ns / 4 == t.within_a_tenth(true_ns)
        assert b.facts().loader["input_wait"] == "gross"
        amounts = [e for e in b.records() if e.kind is RingKind.AMOUNT]
        assert {e.phase for e in amounts} == {TrainingPhase.INPUT_WAIT}
        assert len(t.gross_waits_told_ns()) == 4 * t.STEPS // 4  # of four trainings
        assert sum(t.recorded_waits_ns()) < 5 * MS

    def test_counts_the_batches_of_an_execution_that_ends_early(self) -> None:
        model = b.small_model(steps_per_execution=4)
        data = t.synchronous(b.SlowBatches(0.003), 18)

        model.fit(data, epochs=2, verbose=0, callbacks=[b.tagger()])

        assert b.marks(RingKind.STEP)[-1] == 36
        assert b.marks(RingKind.SAMPLES)[-1] == 36 * b.BATCH
