"""``RatioBalancer`` where TensorFlow forbids clocks in graphs: training continues unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.keras.later import b as k
from tests.multi_gpu.later import b, keras, multi_gpu, tf
from tests.needs import in_make_truth

pytestmark = pytest.mark.multi_gpu


@pytest.fixture(autouse=True)
def allowed_again() -> Iterator[None]:
    """TensorFlow has the setting for a whole process."""
    yield
    allow_clocks()


def allow_clocks() -> None:
    from tensorflow.python.framework.config import disable_op_determinism

    disable_op_determinism()


def forbid_clocks() -> None:
    tf.config.experimental.enable_op_determinism()


def forbidding_after_a_step() -> Any:
    return k.Does(lambda _: forbid_clocks(), "on_train_batch_end")


class Training:
    """A parallel model with dropout, to be trained with callbacks or without."""

    def __init__(self) -> None:
        self.model = b.parallel(b.normalized(dropout=0.3))
        self.model.compile(keras.optimizers.SGD(0.05), "sparse_categorical_crossentropy")

    def fit(self, *callbacks: Any) -> list[bytes]:
        """Two epochs; the weights after them."""
        x, y, _ = b.rows()
        arguments = {"batch_size": 8, "shuffle": False, "epochs": 2, "verbose": 0}
        self.model.fit(x, y, callbacks=list(callbacks), **arguments)
        return [weight.tobytes() for weight in self.model.get_weights()]


def balancer() -> Any:
    """One that does not check the times before the end: the split stays."""
    return multi_gpu.RatioBalancer(every=100, verbose=0)


def tagger() -> Any:
    return k.tagger()


class TestTrainingIsUnchanged:
    @in_make_truth
    def test_where_determinism_is_on_before_the_first_fit(self) -> None:
        forbid_clocks()

        with k.one_warning("RatioBalancer cannot see how long each GPU takes.*op determinism"):
            left = Training().fit(balancer(), tagger())

        assert left == Training().fit()

    def test_where_it_is_switched_on_between_two_fits(self) -> None:
        bare, balanced = Training(), Training()
        balanced.model.time_replicas()
        assert balanced.fit() == bare.fit()
        forbid_clocks()

        with k.one_warning("RatioBalancer cannot see how long each GPU takes.*op determinism"):
            left = balanced.fit(balancer(), tagger())

        assert left == bare.fit()

    @in_make_truth
    def test_where_it_is_switched_on_in_the_middle_of_one(self) -> None:
        bare = Training().fit(forbidding_after_a_step())
        allow_clocks()

        with k.one_warning("RatioBalancer cannot see how long each GPU takes.*op determinism"):
            left = Training().fit(balancer(), tagger(), forbidding_after_a_step())

        assert left == bare


@in_make_truth
class TestAGraph:
    def test_that_was_traced_with_clocks_runs_without_a_balancer_too(self) -> None:
        training = Training()
        training.model.time_replicas()
        training.fit()
        forbid_clocks()

        training.fit()
        training.model.train_on_batch(*b.rows()[:2])
