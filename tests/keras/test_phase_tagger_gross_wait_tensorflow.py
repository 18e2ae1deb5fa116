"""Several steps an execution on TensorFlow fetch beside their compute: that wait is gross."""

from __future__ import annotations

import pytest

from gpumon.core.phase import TrainingPhase
from gpumon.core.ring.events import RingKind
from tests.keras.later import b
from tests.keras.later import on_tensorflow as t

pytestmark = pytest.mark.keras_tensorflow
MS = 1_000_000


class TestTheWaitOfSeveralStepsInOneExecution:
    @pytest.mark.measured
    def test_is_told_gross(self) -> None:
        model = b.small_model(b.SleepingCompute(0.005), steps_per_execution=4)

        told_ns, true_ns = t.usually_told_and_true_ns(
            lambda source, hook: model.fit(t.synchronous(source), verbose=0, callbacks=[hook]),
            t.gross_waits_told_ns,
        )

        assert true_ns > 40 * MS
        assert told_ns / 4 == t.within_a_tenth(true_ns)
        assert b.facts_of_the_loader()["input_wait"] == "gross"

    @pytest.mark.parametrize("eagerly", [False, True], ids=["compiled", "eager"])
    def test_counts_the_batches_of_an_execution_that_ends_early(self, eagerly: bool) -> None:
        model = b.small_model(steps_per_execution=4, run_eagerly=eagerly)

        model.fit(
            t.synchronous(b.SlowBatches(0.003), 18), epochs=2, verbose=0, callbacks=[b.tagger()]
        )

        assert [e.value for e in b.records() if e.kind is RingKind.STEP][-1] == 36
        assert [e.value for e in b.records() if e.kind is RingKind.SAMPLES][-1] == 36 * b.BATCH

    @pytest.mark.measured
    def test_beside_the_compute_is_told_inside_the_step_and_as_no_phase(self) -> None:
        model = b.small_model(b.SleepingCompute(0.005), steps_per_execution=4)

        model.fit(t.synchronous(b.SlowBatches(0.02)), verbose=0, callbacks=[b.tagger()])

        amounts = [e for e in b.records() if e.kind is RingKind.AMOUNT]
        assert {e.phase for e in amounts} == {TrainingPhase.INPUT_WAIT}
        assert len(t.gross_waits_told_ns()) == t.STEPS // 4
        assert sum(t.waits_told_ns()) < 5 * MS
