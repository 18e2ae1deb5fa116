"""BatchNorm over several GPUs: statistics of each part, averaged over the replicas with samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.multi_gpu.later import b, keras, tf

pytestmark = pytest.mark.multi_gpu
CLOSE = 1e-6
STEPS = 4


class TestMovingStatistics:
    """Compared with a MirroredStrategy, where Keras 3 reads and saves only the first replica's."""

    def test_are_the_average_over_plain_replicas_with_the_same_parts(self) -> None:
        ours = fitted(b.parallel(b.normalized(), ratios=(4, 3, 2))).template

        x, y, _ = b.rows(27 * STEPS)
        assert furthest(ours, mirrored(b.DEVICES, x, y, (12, 9, 6))) <= CLOSE
        moved = zip(statistics(ours), statistics(b.normalized()), strict=True)
        assert min(float(np.abs(now - start).max()) for now, start in moved) > 0.01


class TestABatchSmallerThanTheGpus:
    def test_trains_on_the_gpus_with_samples(self) -> None:
        x, y, _ = b.rows(2)
        model = compiled(b.parallel(b.normalized()))

        model.train_on_batch(x, y)

        fed = mirrored(b.DEVICES[:2], x, y, (1, 1))
        assert furthest(model.template, fed) <= CLOSE
        assert furthest(model.template, b.normalized()) > 1e-3

    def test_with_one_sample_keeps_all_numbers_finite(self) -> None:
        """Fused kernels divide by samples - 1, which made NaN of such a last batch."""
        x, y, _ = b.rows(28)
        pixels = x.reshape(-1, 1, 1, b.FEATURES)
        model = compiled(b.parallel(image_classifier()))

        model.fit(pixels, y, batch_size=27, shuffle=False, verbose=0)
        loss = model.evaluate(pixels, y, batch_size=27, verbose=0)

        assert all(np.isfinite(weight).all() for weight in model.template.get_weights())
        assert np.isfinite(loss)


def compiled(model: Any) -> Any:
    model.compile(keras.optimizers.SGD(0.1), loss="sparse_categorical_crossentropy")
    return model


def fitted(model: Any) -> Any:
    x, y, _ = b.rows(27 * STEPS)
    compiled(model).fit(x, y, batch_size=27, shuffle=False, verbose=0)
    return model


def image_classifier() -> Any:
    keras.utils.set_random_seed(3)
    return keras.Sequential(
        [
            keras.layers.Input((1, 1, b.FEATURES)),
            keras.layers.BatchNormalization(momentum=0.5),
            keras.layers.Flatten(),
            keras.layers.Dense(b.CLASSES, activation="softmax"),
        ]
    )


def strategy_over(devices: tuple[str, ...]) -> Any:
    from trainer_hooks.multi_gpu import devices as strategies

    return strategies.strategy_over(tuple(devices))


def mirrored(devices: tuple[str, ...], x: Any, y: Any, parts: tuple[int, ...]) -> Any:
    """``normalized()`` trained by a plain MirroredStrategy, each replica on its given part."""
    strategy = strategy_over(devices)
    with strategy.scope():
        model = b.normalized()
        optimizer = keras.optimizers.SGD(0.1)
        optimizer.build(model.trainable_variables)
    whole = sum(parts)

    def learn(rows: Any, classes: Any) -> None:
        with tf.GradientTape() as tape:
            found = model(rows, training=True)
            each = keras.ops.sparse_categorical_crossentropy(classes, found)
            loss = tf.reduce_sum(each) / whole
        variables = [variable.value for variable in model.trainable_variables]
        optimizer.apply(tape.gradient(loss, variables), model.trainable_variables)

    @tf.function  # type: ignore[untyped-decorator]
    def step(slices: Any) -> None:
        strategy.run(learn, args=slices)

    for first in range(0, len(x), whole):
        starts = np.cumsum([first, *parts])
        step(
            strategy.experimental_distribute_values_from_function(
                lambda context, at=starts: tuple(
                    tf.constant(rows[at[_number(context)] : at[_number(context) + 1]])
                    for rows in (x, y)
                )
            )
        )
    return model


def _number(context: Any) -> int:
    return int(context.replica_id_in_sync_group)


def statistics(model: Any) -> list[Any]:
    """The moving mean and variance of the model's one BatchNorm."""
    (layer,) = (one for one in model.layers if "BatchNormalization" in type(one).__name__)
    return [np.asarray(layer.moving_mean), np.asarray(layer.moving_variance)]


def furthest(one: Any, other: Any) -> float:
    """The largest difference of any weight or statistic, averaged over its replicas."""
    pairs = zip(one.weights, other.weights, strict=True)
    return max(float(np.abs(averaged(a) - averaged(c)).max()) for a, c in pairs)


def averaged(variable: Any) -> Any:
    """The mean over the replicas of a mirrored variable; else its value."""
    copies = getattr(variable.value, "values", [variable.value])
    return np.mean([np.asarray(copy) for copy in copies], axis=0)
