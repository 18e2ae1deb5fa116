"""``PhaseTagger`` where TensorFlow forbids clocks in graphs: the training is that of bare Keras."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.keras.later import builders, tf

pytestmark = pytest.mark.keras_tensorflow
ROWS = 7 * 16
"""Seven batches: with four steps an execution, the second has three."""


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

    def __init__(self) -> None:
        self.model = builders.normalized_model(steps_per_execution=4)

    def fit(self, *callbacks: Any) -> list[Any]:
        """Train for two epochs; what that leaves behind."""
        rows, sums = builders.rows_and_sums(ROWS)
        settings = {"batch_size": builders.BATCH, "shuffle": False, "epochs": 2, "verbose": 0}
        history = self.model.fit(rows, sums, callbacks=list(callbacks), **settings).history
        return [history, *(weight.tobytes() for weight in self.model.get_weights())]


class TestATrainingRunEqualsThatOfBareKeras:
    def test_determinism_enabled_before_the_first_fit(self) -> None:
        forbid_clocks()
        bare = Training().fit()

        with builders.one_warning("op determinism"):
            tagged = Training().fit(builders.tagger())

        assert tagged == bare

    def test_determinism_enabled_between_or_within_fits(self) -> None:
        bare, tagged = Training(), Training()
        assert tagged.fit(builders.tagger()) == bare.fit()
        switching = builders.Does(lambda _: forbid_clocks(), "on_train_batch_end")

        with builders.one_warning("op determinism"):
            left = tagged.fit(builders.tagger(), switching)

        assert left == bare.fit()


class TestAGraph:
    def test_traced_with_clocks_runs_without_a_tagger(self) -> None:
        model, (rows, sums) = (
            builders.small_model(steps_per_execution=4),
            builders.rows_and_sums(ROWS),
        )
        model.fit(rows, sums, verbose=0, callbacks=[builders.tagger()])
        forbid_clocks()

        model.fit(rows, sums, verbose=0)

    def test_has_no_clock_where_none_is_allowed(self) -> None:
        forbid_clocks()
        model, (rows, sums) = (
            builders.small_model(steps_per_execution=4),
            builders.rows_and_sums(ROWS),
        )
        with builders.one_warning("op determinism"):
            model.fit(rows, sums, verbose=0, callbacks=[builders.tagger()])

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
