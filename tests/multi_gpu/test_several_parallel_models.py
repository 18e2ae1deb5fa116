"""Several parallel models of one, models around models, and those that nobody holds any more."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

from tests.multi_gpu.later import b, keras, m, multi_gpu

pytestmark = pytest.mark.multi_gpu


class TestSeveralParallelModelsOfOne:
    def test_train_the_same_weights_on_the_same_devices(self) -> None:
        def left(devices: int) -> Any:
            single = m.single_model()
            models = [m.spread(single, devices, ratios) for ratios in ([1, 1], [4, 3])]
            for model in models:
                model.compile("sgd", "mse")
            for x, y in m.batches():
                for model in models:
                    model.train_on_batch(x, y)
            return single.get_weights()

        assert m.trains_alike(left, 2)

    def test_go_on_with_the_newest_where_that_is_on_other_devices(self) -> None:
        x, y = m.rows()
        single = m.single_model()
        older = multi_gpu.multi_gpu_model(single, gpus=["CPU:1", "CPU:2"])
        older.compile("sgd", "mse")
        older.fit(x, y, verbose=0)
        trained = single.get_weights()

        newer = multi_gpu.multi_gpu_model(single, gpus=["CPU:2", "CPU:3"])

        assert b.furthest(newer.get_weights(), trained) == 0
        acts: tuple[Callable[[], Any], ...] = (
            lambda: older.fit(x, y, verbose=0),
            lambda: older.train_on_batch(x, y),
            lambda: older.predict(x, verbose=0),
            lambda: older.evaluate(x, y, verbose=0),
            lambda: older(x),
            lambda: older.compile("sgd", "mse"),
        )
        for act in acts:
            with pytest.raises(ValueError, match="clone_model"):
                act()
        newer.compile("sgd", "mse")
        newer.fit(x, y, verbose=0)
        assert b.furthest(single.get_weights(), trained) > 1e-3

    def test_may_be_made_of_a_model_around_one_that_is_shared(self) -> None:
        """As a GAN's discriminator is trained alone, and within what trains its generator."""
        x, y = m.rows()

        def left(devices: int) -> Any:
            inner = m.single_model()
            outer = keras.Sequential([keras.Input((m.FEATURES,)), keras.layers.Dense(4), inner])
            models = [m.spread(model, devices) for model in (inner, outer)]
            for model in models:
                model.compile("sgd", "mse")
                model.train_on_batch(x, y)
            for model in models:
                model.train_on_batch(x, y)
            return outer.get_weights()

        assert m.trains_alike(left, 2)


class TestWhatIsDroppedOnTheWay:
    def test_a_single_model_that_nobody_holds_trains_on(self) -> None:
        x, y = m.rows()

        def collect(batch: int, logs: Any) -> None:
            if batch == 3:
                gc.collect()

        def left(devices: int) -> Any:
            model = m.made(devices)[1]  # and not the single one
            callback = keras.callbacks.LambdaCallback(on_train_batch_begin=collect)
            model.fit(x, y, batch_size=m.BATCH, shuffle=False, verbose=0, callbacks=[callback])
            return m.plain(model).get_weights()

        assert m.trains_alike(left, 2)

    def test_a_parallel_model_that_nobody_holds_leaves_a_single_one_that_works(self) -> None:
        single, model = m.made(2)
        x, y = m.rows()
        model.fit(x, y, verbose=0)
        expected = model.predict(x, verbose=0)

        del model
        gc.collect()

        assert single.predict(x, verbose=0) == pytest.approx(expected, abs=m.CLOSE)
        single.compile("sgd", "mse")
        single.fit(x, y, verbose=0)
