"""``PhaseTagger`` where TensorFlow forbids clocks in graphs: the training is that of bare Keras."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.keras.later import b, tf
from tests.needs import in_make_truth

pytestmark = pytest.mark.keras_tensorflow
ROWS = 7 * 16
"""Seven batches: with four steps an execution the second has three."""


@pytest.fixture(autouse=True)
def allowed_again() -> Iterator[None]:
    """TensorFlow has the setting for a whole process."""
    yield
    from tensorflow.python.framework.config import disable_op_determinism

    disable_op_determinism()


def forbid_clocks() -> None:
    tf.config.experimental.enable_op_determinism()


class Training:
    """One model, whose steps with dropout and momentum each leave other numbers behind."""

    def __init__(self, steps_per_execution: int) -> None:
        self.model = b.normalized_model(steps_per_execution=steps_per_execution)

    def fit(self, *callbacks: Any) -> list[Any]:
        """Train for two epochs; what that leaves behind."""
        rows, sums = b.rows_and_sums(ROWS)
        settings = {"batch_size": b.BATCH, "shuffle": False, "epochs": 2, "verbose": 0}
        history = self.model.fit(rows, sums, callbacks=list(callbacks), **settings).history
        return [history, *(weight.tobytes() for weight in self.model.get_weights())]


def one_warning_where_clocks_are_needed(steps_per_execution: int) -> Any:
    if steps_per_execution == 1:  # batches are fetched outside of the graph
        return contextlib.nullcontext()
    return b.one_warning("op determinism")


@pytest.mark.parametrize("steps_per_execution", [pytest.param(1, marks=in_make_truth), 4])
class TestATrainingIsThatOfBareKeras:
    def test_where_determinism_is_on_before_the_first_fit(self, steps_per_execution: int) -> None:
        forbid_clocks()
        bare = Training(steps_per_execution).fit()

        with one_warning_where_clocks_are_needed(steps_per_execution):
            tagged = Training(steps_per_execution).fit(b.tagger())

        assert tagged == bare

    def test_where_it_is_switched_on_between_two_fits(self, steps_per_execution: int) -> None:
        bare, tagged = Training(steps_per_execution), Training(steps_per_execution)
        assert tagged.fit(b.tagger()) == bare.fit()
        forbid_clocks()

        with one_warning_where_clocks_are_needed(steps_per_execution):
            left = tagged.fit(b.tagger())

        assert left == bare.fit()

    def test_where_it_is_switched_on_in_the_middle_of_one(self, steps_per_execution: int) -> None:
        bare = Training(steps_per_execution).fit()
        switching = b.Does(lambda _: forbid_clocks(), "on_train_batch_end")

        with one_warning_where_clocks_are_needed(steps_per_execution):
            tagged = Training(steps_per_execution).fit(b.tagger(), switching)

        assert tagged == bare


class TestAGraph:
    def test_that_was_traced_with_clocks_runs_without_a_tagger_too(self) -> None:
        model, (rows, sums) = b.small_model(steps_per_execution=4), b.rows_and_sums(ROWS)
        model.fit(rows, sums, verbose=0, callbacks=[b.tagger()])
        forbid_clocks()

        model.fit(rows, sums, verbose=0)

    def test_has_no_clock_where_none_is_allowed(self) -> None:
        forbid_clocks()
        model, (rows, sums) = b.small_model(steps_per_execution=4), b.rows_and_sums(ROWS)
        with b.one_warning("op determinism"):
            model.fit(rows, sums, verbose=0, callbacks=[b.tagger()])

        from trainer_hooks.taps.tensorflow.functions import form_of

        fused: Any = form_of(model.train_function).fused
        graphs = [one.graph for one in fused._list_all_concrete_functions()]
        names = {op.type for graph in graphs for op in graph.get_operations()}
        inside = {
            node.op
            for graph in graphs
            for function in graph.as_graph_def().library.function
            for node in function.node_def
        }
        assert graphs
        assert "Timestamp" not in names | inside
