"""``PhaseTagger`` on JAX: several steps an execution, what is not compiled, and what is."""

from __future__ import annotations

from typing import Any

import pytest

from gpumon.core.phase import IdleCause
from gpumon.core.ring.events import RingKind
from tests.keras.later import b

pytestmark = pytest.mark.keras_jax
MS = 1_000_000


class TestTheWaitForInput:
    def trained(self, model: Any, steps: int) -> tuple[int, Any]:
        """How long it really waited, and its edges; told is that within 10 %, or 1 ms a step."""
        source, edges = b.SlowBatches(0.01), b.Edges()
        b.fit(model, source, b.tagger(), edges, steps=steps, epochs=1)
        true_ns = source.spent_ns(edges)
        assert b.phase_ns()["input_wait"] == pytest.approx(true_ns, rel=0.10, abs=steps * MS)
        return true_ns, edges

    @pytest.mark.measured
    def test_of_several_steps_an_execution_is_told_gross_by_batch_and_not_called_hidden(
        self,
    ) -> None:
        model = b.small_model(b.SleepingCompute(0.002), steps_per_execution=4)
        true_ns, edges = self.trained(model, steps=16)

        assert b.marks(RingKind.STEP) == [4, 8, 12, 16]
        (told,) = b.told_of([(edges.made_ns, edges.ended_ns)])
        told_ns = told.gross_input_wait_ns + told.waits[IdleCause.INPUT_WAIT]
        assert told_ns == pytest.approx(true_ns, rel=0.10, abs=16 * MS)
        assert told.gross_input_wait_ns > 9 * 10 * MS
        assert told.hidden_input_wait_ns < 4 * MS
        assert b.facts().loader["input_wait"] == "gross"

    def test_is_told_where_nothing_is_compiled(self) -> None:
        self.trained(b.small_model(run_eagerly=True), steps=8)


class TestCompiling:
    @pytest.mark.measured
    @pytest.mark.oldest_keras
    def test_is_told_where_jax_compiles_and_nowhere_else(self) -> None:
        import jax

        compiled: list[float] = []
        jax.monitoring.register_event_duration_secs_listener(
            lambda event, seconds, **_: compiled.append("backend_compile" in event)
        )
        model, fits = b.small_model(), []
        for _ in range(3):
            compiled.clear()
            before_ns = b.phase_ns()["compile"]
            b.fit_rows(model, 64, b.tagger())
            fits.append((sum(compiled), b.phase_ns()["compile"] - before_ns))

        assert fits[0][0] > 0
        assert fits[0][1] > 5 * MS
        assert fits[2][0] == 0  # an older Keras compiles in the second fit, too
        assert all(told_ns < fits[0][1] / 4 for number, told_ns in fits if number == 0)


class TestTheFacts:
    @pytest.mark.oldest_keras
    def test_say_what_trains_and_on_what(self) -> None:
        b.fit_rows(b.small_model(), 64, b.tagger(run="resnet", gpus=[1]))

        assert (b.facts().run, b.facts().gpus) == ("resnet", ("1",))
        assert b.facts().framework == "keras/jax"
        assert b.facts().loader["batch_size"] == 16
        assert b.facts().loader["adapter"] == "ArrayDataAdapter"
