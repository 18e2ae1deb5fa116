"""Several parallel models of one, models around models, and unreferenced models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.multi_gpu.later import builders, keras, middle_builders, multi_gpu

pytestmark = pytest.mark.multi_gpu


def compiled(model: Any, devices: int) -> Any:
    """On one device run eagerly, to the same result: nothing is traced."""
    model.compile("sgd", "mse", run_eagerly=devices == 1)
    return model


class TestSeveralParallelModelsOfOne:
    def test_train_the_same_weights_on_the_same_devices(self) -> None:
        def outcome(devices: int) -> Any:
            single = middle_builders.single_model()
            ratios = ([1, 1], [4, 3])
            models = [
                compiled(middle_builders.spread(single, devices, each), devices) for each in ratios
            ]
            for x, y in middle_builders.batches():
                for model in models:
                    model.train_on_batch(x, y)
            return single.get_weights()

        assert middle_builders.trains_alike(outcome, 2)

    def test_refuse_to_continue_when_a_newer_one_uses_other_devices(self) -> None:
        x, y = middle_builders.rows()
        single = middle_builders.single_model()
        older = compiled(multi_gpu.multi_gpu_model(single, gpus=["CPU:1", "CPU:2"]), 2)
        older.train_on_batch(x, y)
        trained = single.get_weights()

        newer = multi_gpu.multi_gpu_model(single, gpus=["CPU:2", "CPU:3"])

        assert builders.furthest(newer.get_weights(), trained) == 0
        calls: tuple[Callable[[], Any], ...] = (
            lambda: older.fit(x, y, verbose=0),
            lambda: older.train_on_batch(x, y),
            lambda: older.predict(x, verbose=0),
            lambda: older.evaluate(x, y, verbose=0),
            lambda: older(x),
            lambda: older.compile("sgd", "mse"),
        )
        for call in calls:
            with pytest.raises(ValueError, match="clone_model"):
                call()
        compiled(newer, 2).train_on_batch(x, y)
        assert builders.furthest(single.get_weights(), trained) > 1e-3

    def test_may_include_a_model_around_a_shared_one(self) -> None:
        """A GAN's discriminator is trained alone, and within what trains its generator."""
        x, y = middle_builders.rows()

        def outcome(devices: int) -> Any:
            inner = middle_builders.single_model()
            outer = keras.Sequential(
                [keras.Input((middle_builders.FEATURES,)), keras.layers.Dense(4), inner]
            )
            models = [
                compiled(middle_builders.spread(model, devices), devices)
                for model in (inner, outer)
            ]
            for model in models * 2:
                model.train_on_batch(x, y)
            return outer.get_weights()

        assert middle_builders.trains_alike(outcome, 2)
