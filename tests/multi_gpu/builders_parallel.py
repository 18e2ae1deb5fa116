"""Small models and data, and training runs on one device or several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import keras
import numpy as np

from trainer_hooks.multi_gpu import multi_gpu_model

DEVICES = ("CPU:1", "CPU:2", "CPU:3")
RATIOS = (4, 3, 2)
FEATURES = 6
CLASSES = 3
ROWS = 57
"""Two batches of 28 and one of a single sample: fewer than devices."""

SINGLE_PRECISION = 1e-6
"""The tolerance for sums in another order."""

layers = keras.layers


def rows(count: int = ROWS, *, seed: int = 0) -> tuple[Any, Any, Any]:
    """``(x, y, sample_weight)``: float32 (count, FEATURES), classes (count,), float32 (count,)."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(count, FEATURES)).astype("float32")
    return x, random.integers(0, CLASSES, count), random.random(count).astype("float32")


def dense(*, regularized: bool = False) -> keras.Model:
    """A classifier whose layers treat samples independently."""
    keras.utils.set_random_seed(3)
    extra = {"kernel_regularizer": "l2"} if regularized else {}
    loss = {"activity_regularizer": "l2"} if regularized else {}
    return keras.Sequential(
        [
            layers.Input((FEATURES,)),
            layers.Dense(8, activation="relu", **extra),
            layers.Dense(CLASSES, activation="softmax", dtype="float32", **loss),
        ]
    )


def normalized(*, dropout: float = 0.0) -> keras.Model:
    """A classifier with BatchNorm, whose statistics are per part of the batch."""
    keras.utils.set_random_seed(3)
    return keras.Sequential(
        [
            layers.Input((FEATURES,)),
            layers.Dense(8),
            layers.BatchNormalization(momentum=0.5),
            layers.Dropout(dropout),
            layers.Dense(CLASSES, activation="softmax"),
        ]
    )


def parallel(
    template: keras.Model,
    devices: Sequence[str] = DEVICES,
    ratios: Sequence[float] | None = RATIOS,
) -> Any:
    return multi_gpu_model(template, gpus=list(devices), ratios=ratios)


@dataclass
class Outcome:
    """The results of a training run."""

    history: dict[str, list[float]]
    evaluated: list[float]
    predicted: list[Any]
    weights: list[Any]
    iterations: int

    def furthest_from(self, other: Outcome) -> dict[str, float]:
        """The largest difference per kind of number."""
        assert self.history.keys() == other.history.keys()
        return {
            "history": furthest(list(self.history.values()), list(other.history.values())),
            "evaluated": furthest(self.evaluated, other.evaluated),
            "predicted": furthest(self.predicted, other.predicted),
            "weights": furthest(self.weights, other.weights),
            "iterations": abs(self.iterations - other.iterations),
        }


def furthest(some: Sequence[Any], others: Sequence[Any]) -> float:
    """The largest difference between two lists of arrays; infinite for other shapes or NaN."""
    if [np.shape(one) for one in some] != [np.shape(one) for one in others]:
        return float("inf")
    far = [
        np.max(np.abs(np.subtract(one, other, dtype=float)))
        for one, other in zip(some, others, strict=True)
    ]
    return float(np.nan_to_num(far, nan=np.inf).max(initial=0.0))


@dataclass
class Training:
    """A training run for one device or several.

    Attributes:
        build: Makes the model, always the same.
        compiled: Arguments of ``compile``; an optimizer is a function that makes it.
        fitted: Arguments of ``fit`` besides the data; callbacks are a function that makes them.
        weighted: Whether samples have weights.
        evaluates: Whether to evaluate afterwards, too.
        predicts: Whether to predict afterwards, too.
        within: The tolerance for all numbers.
    """

    build: Callable[[], keras.Model] = dense
    compiled: dict[str, Any] = field(default_factory=dict)
    fitted: dict[str, Any] = field(default_factory=dict)
    weighted: bool = False
    evaluates: bool = True
    predicts: bool = False
    data: Callable[[], tuple[Any, Any, Any]] = rows
    within: float = SINGLE_PRECISION

    def on(self, model: Any) -> Outcome:
        """Compile, fit, evaluate and predict with a template or a parallel model."""
        arguments = {"loss": "sparse_categorical_crossentropy", "metrics": ["accuracy"]}
        arguments |= {k: v() if k == "optimizer" else v for k, v in self.compiled.items()}
        model.compile(**{"optimizer": keras.optimizers.SGD(0.05), **arguments})
        x, y, weights = self.data()
        weighted = {"sample_weight": weights} if self.weighted else {}
        own = {name: value() if callable(value) else value for name, value in self.fitted.items()}
        fitted = {"batch_size": 28, **own, **weighted}
        history = model.fit(x, y, epochs=2, shuffle=False, verbose=0, **fitted)
        evaluated = model.evaluate(x, y, batch_size=28, verbose=0) if self.evaluates else []
        outputs = model.predict(x, batch_size=20, verbose=0) if self.predicts else []
        return Outcome(
            history.history,
            np.atleast_1d(evaluated).tolist(),
            keras.tree.flatten(outputs),
            model.get_weights(),
            int(model.optimizer.iterations.numpy()),
        )

    def on_one(self) -> Outcome:
        """Keras alone, run eagerly by default, so that nothing is traced.

        The numbers are the same except for each of several losses: without static sizes Keras
        averages them over batches as if all batches were equally large.
        """
        compiled = {"run_eagerly": True, **self.compiled}
        return replace(self, compiled=compiled).on(self.build())

    def on_one_and_on_several(self) -> tuple[Outcome, Outcome]:
        return self.on_one(), self.on(parallel(self.build()))


def of_two_inputs_and_outputs() -> keras.Model:
    keras.utils.set_random_seed(3)
    wide, narrow = layers.Input((FEATURES,), name="wide"), layers.Input((2,), name="narrow")
    joined = layers.Concatenate()([layers.Dense(4)(wide), layers.Dense(4)(narrow)])
    kind = layers.Dense(CLASSES, activation="softmax", name="kind")(joined)
    size = layers.Dense(1, name="size")(joined)
    return keras.Model({"wide": wide, "narrow": narrow}, {"kind": kind, "size": size})


def named_rows() -> tuple[Any, Any, Any]:
    x, y, weights = rows()
    return {"wide": x, "narrow": x[:, :2]}, {"kind": y, "size": x[:, :1]}, weights


def masked() -> keras.Model:
    """Predicts a class per token; token 0 is masked."""
    keras.utils.set_random_seed(3)
    return keras.Sequential(
        [
            layers.Input((5,)),
            layers.Embedding(10, 4, mask_zero=True),
            layers.Dense(CLASSES, activation="softmax"),
        ]
    )


def sentences() -> tuple[Any, Any, Any]:
    """Sequences of 1 to 5 tokens, so that the parts of a batch have different numbers."""
    random = np.random.default_rng(1)
    tokens = random.integers(1, 10, (ROWS, 5))
    tokens[np.arange(5)[None, :] >= random.integers(1, 6, (ROWS, 1))] = 0
    return tokens, random.integers(0, CLASSES, (ROWS, 5)), np.ones(ROWS, "float32")


class Tower(keras.Model):  # type: ignore[misc]  # Keras has no types
    """A subclassed model with a configuration."""

    def __init__(self, width: int, **named: Any) -> None:
        super().__init__(**named)
        self.width = width
        self.first = layers.Dense(width, activation="relu")
        self.second = layers.Dense(CLASSES, activation="softmax")

    def call(self, inputs: Any) -> Any:
        return self.second(self.first(inputs))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "width": self.width}


def subclassed() -> keras.Model:
    keras.utils.set_random_seed(3)
    tower = Tower(8)
    tower(np.zeros((1, FEATURES), "float32"))
    return tower


def mixed() -> keras.Model:
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        return dense()
    finally:
        keras.mixed_precision.set_global_policy("float32")


def only_dropout() -> keras.Model:
    return keras.Sequential([layers.Input((64,)), layers.Dropout(0.5, seed=1), Scaled()])


class Scaled(keras.Layer):  # type: ignore[misc]
    """A layer with one weight."""

    def build(self, _: Any) -> None:
        self.factor = self.add_weight(shape=(), initializer="ones")

    def call(self, inputs: Any) -> Any:
        return inputs * self.factor


def seen_in_training(model: Any, x: Any) -> list[Any]:
    """Each replica's outputs in one training step, in the order of the devices."""
    seen: dict[int, Any] = {}
    forward = model._parts.step._forward

    def observed(data: Any, *arguments: Any) -> Any:
        outputs, *others = forward(data, *arguments)
        import tensorflow as tf

        at = tf.distribute.get_replica_context().replica_id_in_sync_group
        seen[int(at)] = outputs.numpy()
        return outputs, *others

    model._parts.step._forward = observed
    model.run_eagerly = True
    model.train_on_batch(x, x)
    return [seen[at] for at in sorted(seen)]


class OwnStep(keras.Sequential):  # type: ignore[misc]
    """Has a custom train_step."""

    def train_step(self, data: Any) -> Any:
        return super().train_step(data)


class OwnLoss(keras.Sequential):  # type: ignore[misc]
    """Has a custom compute_loss."""

    def compute_loss(self, x: Any, y: Any, y_pred: Any, *_: Any, **__: Any) -> Any:
        return keras.ops.mean(keras.ops.square(y - y_pred))


def with_own(kind: type[keras.Model]) -> keras.Model:
    return kind([layers.Input((FEATURES,)), layers.Dense(1)])


class Unrepeatable(keras.Model):  # type: ignore[misc]
    """A subclassed model without a configuration."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = layers.Dense(CLASSES, activation="softmax")

    def call(self, inputs: Any) -> Any:
        return self.inner(inputs)


def unrepeatable() -> keras.Model:
    keras.utils.set_random_seed(3)
    model = Unrepeatable()
    model(np.zeros((1, FEATURES), "float32"))
    return model
