"""Training on split batches has the results of training on one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.multi_gpu.later import builders, keras, kinds
from tests.needs import in_make_truth

pytestmark = [pytest.mark.multi_gpu, pytest.mark.versions]


def crossentropy(reduction: str) -> Any:
    return keras.losses.SparseCategoricalCrossentropy(reduction=reduction)


def scheduled() -> Any:
    rates = keras.optimizers.schedules.ExponentialDecay(0.01, 2, 0.5)
    return keras.optimizers.AdamW(rates, clipvalue=0.05)


def reduced(reduction: str) -> Any:
    loss = {"loss": crossentropy(reduction), "weighted_metrics": ["accuracy"]}
    slow = {"optimizer": lambda: keras.optimizers.SGD(0.002)}
    compiled = {**loss, **slow}
    return builders.Training(weighted=True, compiled=compiled, evaluates=False, within=4e-6)


def callbacks() -> list[Any]:
    return [
        keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (epoch + 1)),
        keras.callbacks.EarlyStopping("loss", patience=5, restore_best_weights=True),
    ]


WITHOUT_BATCH_NORM_OR_DROPOUT: dict[str, Callable[[], Any]] = {
    "Adam with clipnorm": lambda: builders.Training(
        compiled={"optimizer": lambda: keras.optimizers.Adam(0.01, clipnorm=0.1)}, evaluates=False
    ),
    "momentum with global_clipnorm, run eagerly": lambda: builders.Training(
        compiled={
            "optimizer": lambda: keras.optimizers.SGD(0.05, momentum=0.9, global_clipnorm=0.5),
            "run_eagerly": True,
        }
    ),
    "AdamW with clipvalue and a schedule, of a subclass without a configuration": (
        lambda: builders.Training(
            build=builders.unrepeatable, compiled={"optimizer": scheduled}, evaluates=False
        )
    ),
    "moving averages of the weights of a subclass": lambda: builders.Training(
        build=builders.subclassed,
        compiled={"optimizer": lambda: keras.optimizers.SGD(0.05, use_ema=True)},
        evaluates=False,
    ),
    "an optimizer that no configuration describes": lambda: builders.Training(
        compiled={"optimizer": kinds.sparing_scaled, "metrics": None}, evaluates=False
    ),
    "a mean over weighted samples": lambda: reduced("sum_over_batch_size"),
    "a sum over weighted samples": lambda: reduced("sum"),
    "a mean by their weights": lambda: reduced("mean_with_sample_weight"),
    "weighted classes, with callbacks that change the rate and restore weights": (
        lambda: builders.Training(
            fitted={"class_weight": {0: 1.0, 1: 0.2, 2: 3.0}, "callbacks": callbacks},
            evaluates=False,
        )
    ),
    "layers that add to the loss of weighted samples": lambda: builders.Training(
        build=lambda: builders.dense(regularized=True),
        weighted=True,
        compiled={"loss": crossentropy("mean_with_sample_weight")},
    ),
    "several inputs and outputs by name": lambda: builders.Training(
        build=builders.of_two_inputs_and_outputs,
        data=builders.named_rows,
        predicts=True,
        compiled={
            "loss": {"kind": "sparse_categorical_crossentropy", "size": "mse"},
            "loss_weights": {"kind": 1.0, "size": 0.3},
            "metrics": {"kind": ["accuracy"], "size": ["mae"]},
            "run_eagerly": False,
        },
    ),
    "what a mask leaves out": lambda: builders.Training(
        build=builders.masked, data=builders.sentences, compiled={"metrics": None}
    ),
    "statistics, counters and metrics of layers": lambda: builders.Training(build=kinds.keeping),
    "losses that are one number or one for each sample": lambda: builders.Training(
        kinds.adding, {"loss": lambda *given: kinds.one_number(*given)}, within=2e-6
    ),
    "one loss for undeclared outputs": lambda: builders.Training(
        build=kinds.two_heads,
        data=kinds.rows_for_two_heads,
        compiled={"loss": "mse", "metrics": None, "run_eagerly": False},
    ),
}

IN_MAKE_TRUTH = (
    "momentum with global_clipnorm, run eagerly",
    "AdamW with clipvalue and a schedule, of a subclass without a configuration",
    "moving averages of the weights of a subclass",
    "an optimizer that no configuration describes",
    "a mean over weighted samples",
)


class TestTraining:
    @pytest.mark.parametrize(
        "name",
        [
            pytest.param(name, marks=in_make_truth if name in IN_MAKE_TRUTH else ())
            for name in WITHOUT_BATCH_NORM_OR_DROPOUT
        ],
    )
    def test_has_the_same_numbers_and_steps(self, name: str) -> None:
        training = WITHOUT_BATCH_NORM_OR_DROPOUT[name]()

        one, several = training.on_one_and_on_several()

        furthest = several.furthest_from(one)
        assert {kind: far for kind, far in furthest.items() if not far <= training.within} == {}
        assert any(np.abs(weight).max() > 0 for weight in one.weights)

    @pytest.mark.parametrize(("optimizer", "devices"), [("sgd", 3), ("adam", 2)])
    def test_result_of_20_steps_is_within_5e_7(self, optimizer: str, devices: int) -> None:
        """Float32, batches of 57 samples."""
        x, y, _ = builders.rows(20 * builders.ROWS)
        weights = []
        for model in (
            builders.dense(),
            builders.parallel(
                builders.dense(),
                devices=builders.DEVICES[:devices],
                ratios=builders.RATIOS[:devices],
            ),
        ):
            model.compile(optimizer, "sparse_categorical_crossentropy")
            model.fit(x, y, batch_size=builders.ROWS, shuffle=False, verbose=0)
            assert int(model.optimizer.iterations) == 20
            weights.append(model.get_weights())

        assert builders.furthest(*weights) <= 5e-7

    def test_mixed_precision_is_within_a_hundredth(self) -> None:
        compiled = {"optimizer": lambda: keras.optimizers.Adam(0.01)}
        training = builders.Training(build=builders.mixed, compiled=compiled, evaluates=False)

        one, several = training.on_one_and_on_several()

        for some, others in zip(several.weights, one.weights, strict=True):
            assert some == pytest.approx(others, rel=1e-2, abs=1e-2)
        assert several.history["loss"] == pytest.approx(one.history["loss"], rel=1e-2)
        assert several.iterations == one.iterations == 6


class TestEachReplica:
    def test_has_its_own_dropout_positions(self) -> None:
        model = builders.parallel(builders.only_dropout(), ratios=[1, 1, 1])
        model.compile(optimizer="sgd", loss=lambda y, y_pred: y_pred, metrics=None)
        seen = builders.seen_in_training(model, np.ones((6, 64), "float32"))

        assert len({rows.tobytes() for rows in seen}) == len(seen) == 3

    @in_make_truth
    def test_one_device_has_the_dropout_of_the_model_alone(self) -> None:
        training = builders.Training(
            build=lambda: builders.normalized(dropout=0.5), evaluates=False
        )
        one = training.on_one()

        alone = training.on(builders.parallel(training.build(), devices=["CPU:1"], ratios=None))

        assert alone.furthest_from(one)["weights"] <= builders.SINGLE_PRECISION
