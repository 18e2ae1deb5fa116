"""Called by another model or a loop of somebody's own, a parallel model trains all the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.multi_gpu.later import b, keras, kinds, m, multi_gpu, tf

pytestmark = pytest.mark.multi_gpu

CLOSE = 1e-6


def spread(model: Any, devices: int) -> Any:
    """``model`` itself on one device."""
    if devices == 1:
        return model
    return multi_gpu.multi_gpu_model(model, list(b.DEVICES[:devices]), b.RATIOS[:devices])


def assert_trains_alike(
    build: Callable[[int], Any],
    data: tuple[Any, Any],
    *,
    within: float = CLOSE,
    evaluates: bool = True,
    **words: Any,
) -> None:
    """What ``build`` makes for one device and for three leaves the same behind."""
    x, y = data
    told = []
    for devices in (1, 3):
        model = build(devices)
        model.compile(keras.optimizers.SGD(0.05, momentum=0.9), **{"loss": "mse", **words})
        validated = {"validation_data": (x, y)} if evaluates else {}
        history = model.fit(
            x, y, batch_size=28, epochs=2, shuffle=False, verbose=0, **validated
        ).history
        predicted = model.predict(x, batch_size=28, verbose=0) if evaluates else []
        told.append([*history.values(), *keras.tree.flatten(predicted), *model.get_weights()])

    assert m.furthest(told[1], told[0]) <= within


def inner() -> Any:
    keras.utils.set_random_seed(3)
    return keras.Sequential(
        [
            keras.Input((b.FEATURES,)),
            keras.layers.Dense(8, activation="tanh", kernel_regularizer="l2"),
            kinds.AddsLoss(),
            keras.layers.Dense(4, activity_regularizer="l2"),
        ]
    )


def between_layers(devices: int, build: Callable[[], Any] = inner) -> Any:
    part = spread(build(), devices)
    keras.utils.set_random_seed(4)
    rows = keras.Input((b.FEATURES,))
    return keras.Model(rows, keras.layers.Dense(1)(part(keras.layers.Dense(b.FEATURES)(rows))))


def given_masks(devices: int) -> Any:
    keras.utils.set_random_seed(3)
    pooled = keras.layers.GlobalAveragePooling1D()  # over what a mask leaves
    part = keras.Sequential([keras.Input((5, 4)), pooled, keras.layers.Dense(4)])
    part = spread(part, devices)
    keras.utils.set_random_seed(4)
    words = keras.Input((5,))
    embedded = keras.layers.Embedding(10, 4, mask_zero=True)(words)
    return keras.Model(words, keras.layers.Dense(b.CLASSES)(part(embedded)))


def giving_masks(devices: int) -> Any:
    part = spread(b.masked(), devices)
    keras.utils.set_random_seed(4)
    words = keras.Input((5,))
    return keras.Model(words, keras.layers.GlobalAveragePooling1D()(part(words)))


def of_several(devices: int) -> Any:
    part = spread(b.of_two_inputs_and_outputs(), devices)
    keras.utils.set_random_seed(4)
    wide, narrow = keras.Input((b.FEATURES,)), keras.Input((2,))
    told = part({"wide": wide, "narrow": keras.layers.Dense(2)(narrow)})
    joined = keras.layers.Concatenate()([told["kind"], told["size"]])
    return keras.Model({"wide": wide, "narrow": narrow}, keras.layers.Dense(1)(joined))


def mixed(devices: int) -> Any:
    keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        return between_layers(devices, b.dense)
    finally:
        keras.mixed_precision.set_global_policy("float32")


def with_a_step_of_its_own(devices: int) -> Any:
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
    model(b.rows()[0])
    return model


def numbers(rows: int = 56) -> tuple[Any, Any]:
    """Two batches of 28, or with 57 rows a third one of a single row, and of three devices."""
    x, _, _ = b.rows(rows)
    return x, x[:, :1]


def kinds_of_sentences() -> tuple[Any, Any]:
    words, _, _ = b.sentences()
    return words[:56], np.eye(b.CLASSES)[words[:56, 0] % b.CLASSES]


class TestWithinAnotherModel:
    def test_between_its_layers(self) -> None:
        assert_trains_alike(between_layers, numbers(57))

    def test_where_nothing_is_compiled(self) -> None:
        assert_trains_alike(between_layers, numbers(), evaluates=False, run_eagerly=True)

    def test_of_a_model_with_a_step_of_its_own(self) -> None:
        assert_trains_alike(with_a_step_of_its_own, numbers(), evaluates=False)

    def test_that_gives_it_masks(self) -> None:
        assert_trains_alike(given_masks, kinds_of_sentences())

    def test_that_is_given_masks(self) -> None:
        assert_trains_alike(giving_masks, kinds_of_sentences())

    def test_by_several_inputs_and_outputs(self) -> None:
        x, y = numbers()

        assert_trains_alike(of_several, ({"wide": x, "narrow": x[:, :2]}, y))

    def test_in_mixed_precision(self) -> None:
        assert_trains_alike(mixed, numbers(), within=1e-2, evaluates=False)

    def test_with_layers_that_are_frozen(self) -> None:
        def frozen(devices: int) -> Any:
            model = between_layers(devices)
            model.layers[2].trainable = False
            return model

        assert_trains_alike(frozen, numbers(), evaluates=False)

    def test_that_cannot_be_saved_and_says_what_can(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match=r"serialize\(model\) returns it"):
            between_layers(2).save(tmp_path / "outer.keras")

    def test_that_cannot_be_made_parallel_once_more_however_deep_it_is(self) -> None:
        outer = keras.Sequential([keras.Input((b.FEATURES,)), between_layers(2)])

        with pytest.raises(ValueError, match="is parallel already"):
            multi_gpu.multi_gpu_model(outer, ["CPU:1", "CPU:2"])


class TestInALoopOfSomebodysOwn:
    @pytest.mark.parametrize("compiled", ["nothing", "the step", "the call"])
    def test_it_is_given_the_gradients(self, compiled: str) -> None:
        x, y = numbers()
        told = []
        for devices in (1, 3):
            model = spread(inner(), devices)
            optimizer = keras.optimizers.Adam(0.01)
            call = tf.function(model) if compiled == "the call" else model

            def step(model: Any = model, call: Any = call, optimizer: Any = optimizer) -> Any:
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean(tf.square(call(x)[:, :1] - y))
                variables = model.trainable_variables
                gradients = tape.gradient(loss, [variable.value for variable in variables])
                optimizer.apply(gradients, variables)
                return loss

            stepped = tf.function(step) if compiled == "the step" else step
            optimizer.build(model.trainable_variables)
            losses = [float(stepped()) for _ in range(3)]
            told.append([losses, *model.get_weights()])

        assert m.furthest(told[1], told[0]) <= CLOSE
        assert told[0][0][2] < told[0][0][0]

    def test_its_statistics_follow(self) -> None:
        """As in a step of its own: the mean of what each replica saw."""
        x, _, _ = b.rows()
        model = b.parallel(b.normalized(), ratios=[1, 1, 1])
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

    def test_inputs_are_given_theirs(self) -> None:
        x = tf.constant(b.rows()[0])
        told = []
        for devices in (1, 3):
            model = spread(inner(), devices)
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = tf.reduce_sum(tf.square(model(x)))
            told.append(tape.gradient(loss, x))

        assert m.furthest([told[1]], [told[0]]) <= 1e-5
