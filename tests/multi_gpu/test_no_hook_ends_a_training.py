"""Whatever fails in ``RatioBalancer``, ``fit`` has the same result as without it."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from tests.borders import Borders, broken
from tests.multi_gpu.later import b, keras, multi_gpu

pytestmark = pytest.mark.multi_gpu


class Training:
    """A parallel model that can be trained again from the same weights."""

    def __init__(self) -> None:
        self.model = b.parallel(b.dense())
        self.model.compile(keras.optimizers.SGD(0.05), "sparse_categorical_crossentropy")
        self._weights = self.model.get_weights()

    def left(self, *callbacks: Any) -> list[bytes]:
        self.model.set_weights(self._weights)
        x, y, _ = b.rows(30)
        arguments = {"batch_size": 6, "shuffle": False, "verbose": 0}
        self.model.fit(x, y, callbacks=list(callbacks), **arguments)
        return [weight.tobytes() for weight in self.model.get_weights()]

    def left_balanced(self) -> list[bytes]:
        balancer = multi_gpu.RatioBalancer(every=1, warm_up=1, dead_band=0.9, verbose=0)
        return self.left(balancer)


class TestATrainingRun:
    def test_calls_only_guarded_code_of_the_balancer(self) -> None:
        training = Training()
        balancer = "multi_gpu/ratio_balancer.py RatioBalancer."
        may_raise = ("multi_gpu/parallel_model.py", f"{balancer}__init__", f"{balancer}set_model")

        opened = Borders(training.left_balanced).open

        # Training itself, the user's own call, and the refusal of a model that is not parallel.
        own = [name for name in opened if "balance" in name and not name.startswith(may_raise)]
        assert own == []

    def test_continues_whatever_raises(self) -> None:
        training = Training()
        bare = training.left()
        guarded = Borders(training.left_balanced).guarded
        assert len(guarded) >= 4

        for name, code in guarded.items():
            with warnings.catch_warnings(record=True) as warned, broken(code) as calls:
                warnings.simplefilter("always")
                left = training.left_balanced()
            assert calls, name
            assert left == bare, name
            assert len([one for one in warned if "RatioBalancer" in str(one.message)]) <= 1, name
