"""Models whose layers keep state, add losses or draw random numbers, and custom losses."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tests.multi_gpu.builders_parallel import CLASSES, FEATURES, layers, rows

TWICE = 2.0


class Keeps(keras.Layer):  # type: ignore[misc]  # Keras has no types
    """Counts its steps, records that it was trained, and has a metric of its inputs."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.seen = keras.metrics.Mean(name="seen")

    def build(self, _: Any) -> None:
        plain = {"shape": (), "initializer": "zeros", "trainable": False}
        self.steps = self.add_weight(dtype="int32", **plain)
        self.was_trained = self.add_weight(dtype="bool", **plain)

    def call(self, inputs: Any, training: bool = False) -> Any:
        if training:
            self.steps.assign(self.steps + 1)
            self.was_trained.assign(True)
        self.seen.update_state(keras.ops.mean(inputs, axis=-1))
        return inputs


class CountsByItself(keras.Layer):  # type: ignore[misc]
    """Counts its calls in a tf.Variable, unknown to Keras."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.calls = tf.Variable(0, trainable=False)

    def call(self, inputs: Any) -> Any:
        self.calls.assign_add(1)
        return inputs


class AddsLoss(keras.Layer):  # type: ignore[misc]
    """Adds a mean, and one number per sample, which Keras sums up."""

    def call(self, inputs: Any) -> Any:
        each = keras.ops.mean(keras.ops.square(inputs), axis=-1)
        self.add_loss(keras.ops.mean(each))
        self.add_loss(0.01 * each)
        return inputs


class Noise(keras.Layer):  # type: ignore[misc]
    """Draws random numbers, also in predictions."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.seed = keras.random.SeedGenerator(1)

    def call(self, inputs: Any) -> Any:
        return inputs + keras.random.normal(keras.ops.shape(inputs), seed=self.seed)


class TwoHeads(keras.Model):  # type: ignore[misc]
    """Has two undeclared outputs and a metric of its inputs."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.one, self.other = layers.Dense(1), layers.Dense(1)
        self.seen = keras.metrics.Mean(name="seen")

    def call(self, inputs: Any) -> Any:
        self.seen.update_state(keras.ops.mean(inputs, axis=-1))
        return {"one": self.one(inputs), "other": self.other(inputs)}


class Halving(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
    """A schedule without a configuration."""

    def __call__(self, step: Any) -> Any:
        return 0.1 / (1.0 + keras.ops.cast(step, "float32"))


class Closed(keras.optimizers.SGD):  # type: ignore[misc]
    """An optimizer that cannot be recreated."""

    def __init__(self) -> None:
        super().__init__(0.1)


def keeping() -> keras.Model:
    keras.utils.set_random_seed(3)
    normalization = layers.Normalization()
    normalization.adapt(3.0 * rows()[0] + 1.0)
    return keras.Sequential(
        [
            layers.Input((FEATURES,)),
            normalization,
            layers.SpectralNormalization(layers.Dense(8)),
            Keeps(),
            layers.Dense(CLASSES, activation="softmax"),
        ]
    )


def adding() -> keras.Model:
    """Half frozen; its function uses names of this module."""
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            layers.Input((FEATURES,)),
            layers.Lambda(lambda inputs: np.float32(TWICE) * inputs),
            layers.Dense(8),
            AddsLoss(),
            layers.Dense(CLASSES, activation="softmax"),
        ]
    )
    model.layers[1].kernel.trainable = False
    return model


def two_heads() -> keras.Model:
    keras.utils.set_random_seed(3)
    model = TwoHeads()
    model(rows()[0])
    return model


def rows_for_two_heads() -> tuple[Any, Any, Any]:
    x, _, weights = rows()
    return x, {"one": x[:, :1], "other": x[:, 1:2]}, weights


def one_number(y_true: Any, y_pred: Any) -> Any:
    """A custom loss function that returns the loss of the whole batch."""
    return keras.ops.mean(keras.losses.sparse_categorical_crossentropy(y_true, y_pred))


def sparing_scaled() -> keras.optimizers.Optimizer:
    """Scales its loss, halves its rate, and excludes kernels from weight decay."""
    inner = keras.optimizers.AdamW(Halving(), weight_decay=0.3)
    inner.exclude_from_weight_decay(var_names=["kernel"])
    return keras.optimizers.LossScaleOptimizer(inner, initial_scale=4.0)


def counting_by_itself() -> keras.Model:
    rows = layers.Input((FEATURES,))
    return keras.Sequential([rows, layers.Dense(1), CountsByItself(name="counts")])


def stateful() -> keras.Model:
    return keras.Sequential([layers.Input(batch_shape=(4, 2, 3)), layers.GRU(2, stateful=True)])


def of_strings() -> keras.Model:
    """Takes strings, makes four rows of each, and has a vocabulary."""
    vectorized = layers.TextVectorization(output_sequence_length=4)
    vectorized.adapt(["a b c d"])
    return keras.Sequential(
        [
            layers.Input((1,), dtype="string"),
            vectorized,
            layers.Embedding(9, 2),
            layers.Lambda(lambda found: keras.ops.reshape(found, (-1, 2))),
        ]
    )


def drawing() -> keras.Model:
    return keras.Sequential([layers.Input((FEATURES,)), Noise()])


def frozen() -> keras.Model:
    model = keras.Sequential([layers.Input((FEATURES,)), layers.Dense(1), AddsLoss()])
    model.trainable = False
    return model
