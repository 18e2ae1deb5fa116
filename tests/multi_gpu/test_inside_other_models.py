"""A parallel model trains inside another model and in custom training loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.multi_gpu.later import builders, keras, kinds, middle_builders, multi_gpu, tf
from tests.needs import in_make_truth

pytestmark = pytest.mark.multi_gpu


def spread(model: Any, devices: int) -> Any:
    return middle_builders.spread(model, devices, middle_builders.RATIOS[:devices])


def inner() -> Any:
    keras.utils.set_random_seed(3)
    return keras.Sequential(
        [
            keras.Input((builders.FEATURES,)),
            keras.layers.Dense(8, activation="tanh", kernel_regularizer="l2"),
            kinds.AddsLoss(),
            keras.layers.Dense(4, activity_regularizer="l2"),
        ]
    )


def between_layers(devices: int, build: Callable[[], Any] = inner) -> Any:
    part = spread(build(), devices)
    keras.utils.set_random_seed(4)
    rows = keras.Input((builders.FEATURES,))
    return keras.Model(
        rows, keras.layers.Dense(1)(part(keras.layers.Dense(builders.FEATURES)(rows)))
    )


def given_masks(devices: int) -> Any:
    keras.utils.set_random_seed(3)
    pooled = keras.layers.GlobalAveragePooling1D()  # over what a mask leaves
    part = keras.Sequential([keras.Input((5, 4)), pooled, keras.layers.Dense(4)])
    part = spread(part, devices)
    keras.utils.set_random_seed(4)
    tokens = keras.Input((5,))
    embedded = keras.layers.Embedding(10, 4, mask_zero=True)(tokens)
    return keras.Model(tokens, keras.layers.Dense(builders.CLASSES)(part(embedded)))


def giving_masks(devices: int) -> Any:
    part = spread(builders.masked(), devices)
    keras.utils.set_random_seed(4)
    tokens = keras.Input((5,))
    return keras.Model(tokens, keras.layers.GlobalAveragePooling1D()(part(tokens)))


def of_several(devices: int) -> Any:
    part = spread(builders.of_two_inputs_and_outputs(), devices)
    keras.utils.set_random_seed(4)
    wide, narrow = keras.Input((builders.FEATURES,)), keras.Input((2,))
    outputs = part({"wide": wide, "narrow": keras.layers.Dense(2)(narrow)})
    joined = keras.layers.Concatenate()([outputs["kind"], outputs["size"]])
    return keras.Model({"wide": wide, "narrow": narrow}, keras.layers.Dense(1)(joined))


def mixed(devices: int) -> Any:
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        return between_layers(devices, builders.dense)
    finally:
        keras.mixed_precision.set_global_policy("float32")


def with_custom_step(devices: int) -> Any:
    part = spread(inner(), devices)
    keras.utils.set_random_seed(4)

    class Outer(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.part, self.head = part, keras.layers.Dense(1)

        def call(self, rows: Any) -> Any:
            return self.head(self.part(rows))

        def train_step(self, data: Any) -> Any:
            x, y = data
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
                loss += tf.add_n([tf.reduce_sum(added) for added in self.losses])
            variables = self.trainable_variables
            self.optimizer.apply(tape.gradient(loss, variables), variables)
            return {"loss": loss}

    model = Outer()
    model(builders.rows()[0])
    return model


def momentum() -> Any:
    return keras.optimizers.SGD(0.05, momentum=0.9)


def numbers(rows: int = 56) -> tuple[Any, Any]:
    """Two batches of 28; with 57 rows a third batch of one row, for three devices."""
    x, _, _ = builders.rows(rows)
    return x, x[:, :1]


def narrowed() -> tuple[Any, Any]:
    x, y = numbers()
    return {"wide": x, "narrow": x[:, :2]}, y


def kinds_of_sentences() -> tuple[Any, Any]:
    tokens, _, _ = builders.sentences()
    return tokens[:56], np.eye(builders.CLASSES)[tokens[:56, 0] % builders.CLASSES]


CASES: dict[str, tuple[Callable[[int], Any], Callable[[], tuple[Any, Any]]]] = {
    "between its layers": (between_layers, lambda: numbers(57)),
    "of a model with a custom train_step": (with_custom_step, numbers),
    "that passes masks to it": (given_masks, kinds_of_sentences),
    "that receives its masks": (giving_masks, kinds_of_sentences),
    "by several inputs and outputs": (of_several, narrowed),
    "in mixed precision": (mixed, numbers),
}
MIXED_PRECISION_TOLERANCE = 1e-2
IN_CI = ("between its layers", "of a model with a custom train_step", "that passes masks to it")
"""What makes the model around a model on so many devices, and the data."""


class TestWithinAnotherModel:
    @pytest.mark.parametrize(
        "name",
        [
            pytest.param(name, marks=() if name in IN_CI else in_make_truth, id=name)
            for name in CASES
        ],
    )
    def test_it_has_the_same_results_on_three_devices(self, name: str) -> None:
        build, data = CASES[name]
        evaluates = build is between_layers
        compiled = {"loss": "mse", "metrics": None, "optimizer": momentum}
        run = builders.Training(
            data=lambda: (*data(), None), compiled=compiled, evaluates=evaluates, predicts=evaluates
        )

        one = replace(run, compiled={**compiled, "run_eagerly": True}).on(build(1))

        within = MIXED_PRECISION_TOLERANCE if build is mixed else 1e-6
        assert max(run.on(build(3)).furthest_from(one).values()) <= within

    def test_it_cannot_be_saved(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"serialize\(model\) returns it"):
            between_layers(2).save(tmp_path / "outer.keras")

    def test_it_cannot_be_made_parallel_again_at_any_depth(self) -> None:
        outer = keras.Sequential([keras.Input((builders.FEATURES,)), between_layers(2)])

        with pytest.raises(ValueError, match=r"serialize\(model\)"):
            multi_gpu.multi_gpu_model(outer, ["CPU:1", "CPU:2"])


class TestInACustomLoop:
    def test_it_has_gradients(self) -> None:
        x, y = numbers()

        def outcome(devices: int) -> list[Any]:
            model, optimizer = spread(inner(), devices), keras.optimizers.Adam(0.01)

            @tf.function  # type: ignore[untyped-decorator]
            def step() -> Any:
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(tf.square(model(x)[:, :1] - y))
                variables = model.trainable_variables
                gradients = tape.gradient(loss, [variable.value for variable in variables])
                optimizer.apply(gradients, variables)
                return loss

            optimizer.build(model.trainable_variables)
            losses = [float(step()) for _ in range(3)]
            assert losses[2] < losses[0]
            return [losses, *model.get_weights()]

        assert middle_builders.trains_alike(outcome, 3)

    def test_it_updates_its_statistics(self) -> None:
        """The mean over the replicas, as in its own train_step."""
        x, _, _ = builders.rows()
        model = builders.parallel(builders.normalized(), ratios=[1, 1, 1])
        before = [np.array(each) for each in model.get_weights()]

        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)

        assert all(gradient is not None for gradient in gradients)
        moved = [np.abs(a - c).max() > 0 for a, c in zip(model.get_weights(), before, strict=True)]
        names = [variable.name for variable in model.weights]
        assert [name for name, is_moved in zip(names, moved, strict=True) if is_moved] == [
            "moving_mean",
            "moving_variance",
        ]

    def test_inputs_have_gradients(self) -> None:
        x = tf.constant(builders.rows()[0])

        def gradient(devices: int) -> Any:
            model = spread(inner(), devices)
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = tf.reduce_sum(tf.square(model(x)))
            return tape.gradient(loss, x)

        assert builders.furthest([gradient(3)], [gradient(1)]) <= 1e-5
