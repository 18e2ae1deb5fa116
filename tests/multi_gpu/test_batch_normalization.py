"""BatchNorm over several GPUs: statistics of each part, averaged over the replicas with samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.multi_gpu.later import builders, keras

pytestmark = pytest.mark.multi_gpu


@pytest.mark.parametrize(
    ("samples", "parts"),
    [
        pytest.param(27, [12, 9, 6], id="all GPUs have samples"),
        pytest.param(2, [1, 1], id="one GPU has none"),
    ],
)
def test_moving_statistics_are_averages_over_the_gpus_with_samples(
    samples: int, parts: list[int]
) -> None:
    x, y, _ = builders.rows(samples)
    model = compiled(builders.parallel(builders.normalized(), ratios=(4, 3, 2)))
    dense, norm, *_ = model.template.layers
    kernel, bias = dense.get_weights()

    model.train_on_batch(x, y)

    inputs = np.split(x @ kernel + bias, np.cumsum(parts)[:-1])
    mean = np.mean([rows.mean(axis=0) for rows in inputs], axis=0)
    variance = np.mean([rows.var(axis=0) for rows in inputs], axis=0)
    assert np.asarray(norm.moving_mean) == pytest.approx(0.5 * mean, abs=1e-6)
    assert np.asarray(norm.moving_variance) == pytest.approx(0.5 + 0.5 * variance, abs=1e-6)


def test_one_sample_in_the_last_batch_keeps_all_numbers_finite() -> None:
    """Fused kernels divide by samples - 1, which made NaN of such a last batch."""
    x, y, _ = builders.rows(28)
    pixels = x.reshape(-1, 1, 1, builders.FEATURES)
    model = compiled(builders.parallel(image_classifier()))

    model.fit(pixels, y, batch_size=27, shuffle=False, verbose=0)
    loss = model.evaluate(pixels, y, batch_size=27, verbose=0)

    assert all(np.isfinite(weight).all() for weight in model.template.get_weights())
    assert np.isfinite(loss)


def compiled(model: Any) -> Any:
    model.compile(keras.optimizers.SGD(0.1), loss="sparse_categorical_crossentropy")
    return model


def image_classifier() -> Any:
    keras.utils.set_random_seed(3)
    return keras.Sequential(
        [
            keras.layers.Input((1, 1, builders.FEATURES)),
            keras.layers.BatchNormalization(momentum=0.5),
            keras.layers.Flatten(),
            keras.layers.Dense(builders.CLASSES, activation="softmax"),
        ]
    )
