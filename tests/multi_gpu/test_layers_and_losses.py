"""Layers with state, added losses, frozen weights or random draws act as on one device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.multi_gpu.later import builders, keras, kinds, tf

pytestmark = pytest.mark.multi_gpu


class TestTraining:
    def test_works_with_only_layer_losses_and_frozen_weights(self) -> None:
        x, _, _ = builders.rows()
        one, several = kinds.frozen(), builders.parallel(kinds.frozen())
        several.set_weights(one.get_weights())

        losses = []
        for model in (one, several):
            model.compile("sgd")
            losses.append(model.train_on_batch(x))

        assert losses[1] == pytest.approx(losses[0], rel=1e-6)
        assert losses[0] > 0

    def test_keeps_the_metrics_of_an_earlier_compile(self) -> None:
        x, y, _ = builders.rows(20)
        results = []
        for model in (builders.dense(), builders.parallel(builders.dense())):
            model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
            model.compile("sgd", "sparse_categorical_crossentropy")
            results.append(model.fit(x, y, batch_size=20, verbose=0).history)

        assert results[1] == {name: pytest.approx(values) for name, values in results[0].items()}
        assert results[0]["accuracy"][0] > 0

    def test_continues_with_the_state_of_the_templates_optimizer(self) -> None:
        x, y, _ = builders.rows(20)
        one, template = builders.dense(), builders.dense()
        for model in (one, template):
            model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
            model.train_on_batch(x, y)
        several = builders.parallel(template)
        several.compile(template.optimizer, "sparse_categorical_crossentropy")

        for model in (one, several):
            model.train_on_batch(x, y)

        assert int(several.optimizer.iterations.numpy()) == 2
        assert_near(several.get_weights(), one.get_weights())

    def test_is_saved_with_a_loss_that_has_no_configuration(self, tmp_path: Path) -> None:
        x, y, _ = builders.rows(20)
        model = builders.parallel(builders.dense())
        model.compile("adam", lambda y_true, y_pred: kinds.one_number(y_true, y_pred))
        model.train_on_batch(x, y)

        model.save(tmp_path / "stored.keras")

        loaded = keras.models.load_model(tmp_path / "stored.keras", safe_mode=False)
        assert_near(loaded.optimizer.variables, model.optimizer.variables)
        assert_near(loaded.get_weights(), model.get_weights())


class TestOtherCalls:
    def test_draw_new_random_numbers_in_each_prediction(self) -> None:
        model = builders.parallel(kinds.drawing())
        zeros = np.zeros((9, builders.FEATURES), "float32")

        drawn = [model.predict(zeros, verbose=0), model.predict(zeros, verbose=0), model(zeros)]

        assert len(np.unique(np.concatenate(drawn).round(6), axis=0)) == 27

    def test_predict_several_rows_per_sample_from_strings(self) -> None:
        texts = tf.constant([["a b"], ["b c d"], ["c"], ["d"], ["a"]])
        template = kinds.of_strings()

        predicted = builders.parallel(template).predict(texts, verbose=0)

        assert predicted.shape == (20, 2)
        assert_near([predicted], [template.predict(texts, verbose=0)])


def assert_near(some: Any, others: Any) -> None:
    for one, other in zip(some, others, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
