"""A batch split over devices trains as if one device had taken it whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.multi_gpu.later import b, keras

pytestmark = pytest.mark.multi_gpu

SINGLE_PRECISION = 1e-6


def crossentropy(reduction: str) -> Any:
    return keras.losses.SparseCategoricalCrossentropy(reduction=reduction)


def assert_trains_alike(training: Any, within: float = SINGLE_PRECISION) -> None:
    """Fit, evaluate and predict agree, and so do the weights and the steps taken."""
    one, several = training.on_one_and_on_several()

    furthest = several.furthest_from(one)

    assert {kind: far for kind, far in furthest.items() if not far <= within} == {}
    assert any(np.abs(weight).max() > 0 for weight in one.weights)


OPTIMIZERS = {
    "Adam with clipnorm": lambda: keras.optimizers.Adam(0.01, clipnorm=0.1),
    "momentum with global_clipnorm": lambda: keras.optimizers.SGD(
        0.05, momentum=0.9, global_clipnorm=0.5
    ),
    "AdamW with clipvalue and a schedule": lambda: keras.optimizers.AdamW(
        keras.optimizers.schedules.ExponentialDecay(0.01, 2, 0.5), clipvalue=0.05
    ),
    "moving averages of the weights": lambda: keras.optimizers.SGD(0.05, use_ema=True),
}


class TestWithoutBatchNormOrDropout:
    @pytest.mark.parametrize("name", OPTIMIZERS)
    def test_any_optimizer_takes_the_same_steps(self, name: str) -> None:
        compiled = {"optimizer": OPTIMIZERS[name]}
        is_first = name == "Adam with clipnorm"  # the others' evaluations are no others

        assert_trains_alike(b.Training(compiled=compiled, evaluates=is_first, predicts=is_first))

    @pytest.mark.parametrize("reduction", ["sum_over_batch_size", "sum", "mean_with_sample_weight"])
    def test_a_loss_may_be_reduced_in_any_way_over_weighted_samples(self, reduction: str) -> None:
        compiled = {"loss": crossentropy(reduction), "weighted_metrics": ["accuracy"]}
        slow = {"optimizer": lambda: keras.optimizers.SGD(0.002)}

        assert_trains_alike(b.Training(weighted=True, compiled={**compiled, **slow}), within=4e-6)

    def test_classes_may_be_weighted(self) -> None:
        weighted = {"class_weight": {0: 1.0, 1: 0.2, 2: 3.0}}

        assert_trains_alike(b.Training(fitted=weighted, evaluates=False))

    def test_layers_may_add_to_the_loss(self) -> None:
        assert_trains_alike(b.Training(build=lambda: b.dense(regularized=True)))
        assert_trains_alike(
            b.Training(
                build=lambda: b.dense(regularized=True),
                weighted=True,
                evaluates=False,
                compiled={"loss": crossentropy("mean_with_sample_weight")},
            )
        )

    def test_it_may_run_eagerly(self) -> None:
        assert_trains_alike(b.Training(compiled={"run_eagerly": True}))

    def test_callbacks_may_change_the_learning_rate_and_restore_weights(self) -> None:
        def with_callbacks() -> Any:
            return {
                "callbacks": [
                    keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (epoch + 1)),
                    keras.callbacks.EarlyStopping("loss", patience=5, restore_best_weights=True),
                ]
            }

        assert_trains_alike(b.Training(fitted=with_callbacks(), evaluates=False))

    def test_several_inputs_and_outputs_go_by_name(self) -> None:
        assert_trains_alike(
            b.Training(
                build=b.of_two_inputs_and_outputs,
                data=b.named_rows,
                predicts=True,
                compiled={
                    "loss": {"kind": "sparse_categorical_crossentropy", "size": "mse"},
                    "loss_weights": {"kind": 1.0, "size": 0.3},
                    "metrics": {"kind": ["accuracy"], "size": ["mae"]},
                },
            ),
        )

    def test_what_a_mask_leaves_out_counts_for_nothing(self) -> None:
        assert_trains_alike(
            b.Training(build=b.masked, data=b.sentences, compiled={"metrics": None})
        )

    def test_a_subclass_needs_no_configuration(self) -> None:
        assert_trains_alike(b.Training(build=b.subclassed))
        assert_trains_alike(b.Training(build=b.unrepeatable, evaluates=False))


class TestMixedPrecision:
    def test_comes_within_a_hundredth(self) -> None:
        compiled = {"optimizer": lambda: keras.optimizers.Adam(0.01)}
        training = b.Training(build=b.mixed, compiled=compiled, evaluates=False)

        one, several = training.on_one_and_on_several()

        for some, others in zip(several.weights, one.weights, strict=True):
            assert some == pytest.approx(others, rel=1e-2, abs=1e-2)
        assert several.history["loss"] == pytest.approx(one.history["loss"], rel=1e-2)
        assert several.iterations == one.iterations == 6


class TestEachReplica:
    def test_drops_out_places_of_its_own(self) -> None:
        model = b.parallel(b.only_dropout(), ratios=[1, 1, 1])
        model.compile(optimizer="sgd", loss=lambda y, y_pred: y_pred, metrics=None)
        seen = b.seen_in_training(model, np.ones((6, 64), "float32"))

        assert len({rows.tobytes() for rows in seen}) == len(seen) == 3

    def test_of_a_model_on_one_device_drops_out_what_that_model_would(self) -> None:
        training = b.Training(build=lambda: b.normalized(dropout=0.5), evaluates=False)
        one = training.on(training.build())

        alone = training.on(b.parallel(training.build(), devices=["CPU:1"], ratios=None))

        assert alone.furthest_from(one)["weights"] <= SINGLE_PRECISION
