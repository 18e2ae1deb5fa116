"""Whatever fails in ``RatioBalancer``, and where it can do nothing, ``fit`` has the same result."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from tests.borders import Borders, broken
from tests.keras.later import builders as k
from tests.multi_gpu.later import builders, keras, multi_gpu, tf
from tests.needs import in_make_truth

pytestmark = pytest.mark.multi_gpu


@pytest.fixture(autouse=True)
def allowed_again() -> Iterator[None]:
    """The setting is that of the process."""
    yield
    allow_clocks()


def allow_clocks() -> None:
    from tensorflow.python.framework.config import disable_op_determinism

    disable_op_determinism()


def forbid_clocks() -> None:
    tf.config.experimental.enable_op_determinism()


class Training:
    """A parallel model that can be trained again from the same weights."""

    def __init__(self, template: Any = None) -> None:
        self.model = builders.parallel(template or builders.dense())
        self.model.compile(keras.optimizers.SGD(0.05), "sparse_categorical_crossentropy")
        self._weights = self.model.get_weights()

    def outcome(self, *callbacks: Any) -> list[bytes]:
        self.model.set_weights(self._weights)
        return self.fit(*callbacks)

    def fit(self, *callbacks: Any) -> list[bytes]:
        """The weights after two more epochs."""
        x, y, _ = builders.rows(30)
        arguments = {"batch_size": 8, "shuffle": False, "epochs": 2, "verbose": 0}
        self.model.fit(x, y, callbacks=list(callbacks), **arguments)
        return [weight.tobytes() for weight in self.model.get_weights()]


def test_a_run_continues_whatever_raises() -> None:
    training = Training()
    bare = training.outcome()

    def balanced() -> list[bytes]:
        balancer = multi_gpu.RatioBalancer(every=1, warm_up=1, dead_band=0.9, verbose=0)
        return training.outcome(balancer)

    borders = Borders(balanced)
    class_name = "multi_gpu/ratio_balancer.py RatioBalancer."
    # Training itself, the user's own call, and the refusal of a model that is not parallel.
    may_raise = ("multi_gpu/parallel_model.py", f"{class_name}__init__", f"{class_name}set_model")
    own = [name for name in borders.open if "balance" in name and not name.startswith(may_raise)]
    assert own == []
    assert len(borders.guarded) >= 4

    for name, code in borders.guarded.items():
        with warnings.catch_warnings(record=True) as warned, broken(code) as calls:
            warnings.simplefilter("always")
            outcome = balanced()
        assert calls, name
        assert outcome == bare, name
        assert len([one for one in warned if "RatioBalancer" in str(one.message)]) <= 1, name


def idle_balancer() -> Any:
    """Does not check the times before the end: the split stays."""
    return multi_gpu.RatioBalancer(every=100, verbose=0)


class TestARunWhereTensorFlowForbidsClocksInGraphs:
    WARNING = "RatioBalancer cannot see how long each GPU takes.*op determinism"

    def test_is_unchanged_if_that_begins_between_two_fits(self) -> None:
        bare, balanced = (Training(builders.normalized(dropout=0.3)) for _ in range(2))
        balanced.model.time_replicas()
        assert balanced.fit() == bare.fit()
        forbid_clocks()

        with k.one_warning(self.WARNING):
            outcome = balanced.fit(idle_balancer(), k.tagger())

        assert outcome == bare.fit()

    @in_make_truth
    def test_is_unchanged_if_that_begins_in_the_middle_of_one(self) -> None:
        def forbidding_after_a_step() -> Any:
            return k.Does(lambda _: forbid_clocks(), "on_train_batch_end")

        bare = Training(builders.normalized(dropout=0.3)).fit(forbidding_after_a_step())
        allow_clocks()

        balanced = Training(builders.normalized(dropout=0.3))
        with k.one_warning(self.WARNING):
            outcome = balanced.fit(idle_balancer(), k.tagger(), forbidding_after_a_step())

        assert outcome == bare
