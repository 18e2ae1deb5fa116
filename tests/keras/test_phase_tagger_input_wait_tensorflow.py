"""The wait for input that ``PhaseTagger`` tells on TensorFlow, against truth from below."""

from __future__ import annotations

from statistics import mean, median
from typing import Any

import pytest

from tests.keras.later import b
from tests.keras.later import on_tensorflow as t
from tests.patience import lateness_ns

pytestmark = pytest.mark.keras_tensorflow
MS = 1_000_000
COMPUTE_S = 0.005


class TestTheWaitForInput:
    def gaps_and_waits_ns(self, source: str, seconds: float) -> tuple[list[int], list[int], float]:
        """From a batch's callbacks to its compute, and what was told of the fetch between.

        And by how much the computes, which sleep, were late: as late is a busy machine with all.
        """
        make, compute = t.SOURCES[source], t.noting_compute(COMPUTE_S)
        model, hook, notes = b.small_model(compute), b.tagger(), t.BatchNotes()
        model.fit(make(b.SlowBatches(0.0)), verbose=0, steps_per_epoch=t.STEPS)
        compute.spans_ns.clear()
        before = len(t.waits_told_ns())

        data = make(b.SlowBatches(seconds))
        model.fit(data, verbose=0, steps_per_epoch=t.STEPS, callbacks=[notes, hook])

        gaps_ns = [
            computes[0] - begun_ns
            for begun_ns, computes in zip(notes.begun_ns, compute.spans_ns, strict=True)
        ]
        late_ns = lateness_ns(compute.spans_ns, COMPUTE_S)
        return gaps_ns[1:], t.waits_told_ns()[before + 1 :], late_ns

    @pytest.mark.measured
    @pytest.mark.parametrize(
        ("source", "seconds"),
        [
            ("synchronous", 0.05),
            ("prefetched", 0.05),
            ("generator", 0.05),
            ("workers=0", 0.05),
            ("workers=1", 0.05),
            ("workers=2", 0.12),
        ],
    )
    def test_is_what_the_compute_had_to_wait(self, source: str, seconds: float) -> None:
        fast_gaps_ns, fast_waits_ns, _ = self.gaps_and_waits_ns(source, 0.0)
        gaps_ns, waits_ns, late_ns = self.gaps_and_waits_ns(source, seconds)

        rest_ns = median(gap - wait for gap, wait in zip(fast_gaps_ns, fast_waits_ns, strict=True))
        true_ns = [gap - rest_ns for gap in gaps_ns]
        errors_ns = [wait - true for wait, true in zip(waits_ns, true_ns, strict=True)]
        assert mean(true_ns) > 10 * MS
        assert abs(median(errors_ns)) < max(MS, mean(true_ns) / 10) + late_ns

    @pytest.mark.measured
    @pytest.mark.parametrize(
        "compiled",
        [{"jit_compile": False}, {"run_eagerly": True}],
        ids=["compiled", "eager"],
    )
    def test_is_as_long_as_a_source_sleeps_that_works_only_while_asked(
        self, compiled: dict[str, Any]
    ) -> None:
        model = b.small_model(**compiled)

        told_ns, true_ns = t.usually_told_and_true_ns(
            lambda source, hook: model.fit(t.synchronous(source), verbose=0, callbacks=[hook]),
            t.waits_told_ns,
        )

        assert true_ns > 40 * MS
        assert told_ns == t.within_a_tenth(true_ns)

    @pytest.mark.measured
    def test_is_told_with_several_steps_per_execution_where_nothing_is_compiled(self) -> None:
        model = b.small_model(steps_per_execution=4, run_eagerly=True)

        told_ns, true_ns = t.usually_told_and_true_ns(
            lambda source, hook: model.fit(t.synchronous(source), verbose=0, callbacks=[hook]),
            t.waits_told_ns,
        )

        assert told_ns == t.within_a_tenth(true_ns)
        assert "input_wait" not in b.facts_of_the_loader()

    @pytest.mark.measured
    def test_is_short_where_batches_are_ready(self) -> None:
        model = b.small_model(b.SleepingCompute(0.005))

        model.fit(*b.rows_and_sums(480), batch_size=16, verbose=0, callbacks=[b.tagger()])

        assert b.phase_ns()["input_wait"] / 30 < 2 * MS
