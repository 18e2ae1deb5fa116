"""What cannot be made parallel is refused with a sentence that says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from tests.multi_gpu.later import b, keras, kinds, multi_gpu, tf
from trainer_hooks import fixed_batches

pytestmark = pytest.mark.multi_gpu

TWO = ["CPU:1", "CPU:2"]


def assert_refused(match: str, *, model: Any = None, **words: Any) -> None:
    with pytest.raises(ValueError, match=match):
        multi_gpu.multi_gpu_model(b.dense() if model is None else model, **words)


class TestGpus:
    def test_that_are_not_there_at_all(self) -> None:
        for words in ({}, {"gpus": 2}, {"gpus": [0, 1]}):
            assert_refused(
                r"sees no GPU here; to try without one .* gpus=\['CPU:0', 'CPU:1'\]", **words
            )

    def test_by_a_name_that_is_no_device(self) -> None:
        assert_refused(
            "there is no device GPU:7 here; TensorFlow sees CPU:0, CPU:1", gpus=["GPU:7"]
        )

    def test_named_twice(self) -> None:
        assert_refused("gpus names CPU:1 twice", gpus=["CPU:1", "/device:cpu:1"])

    @pytest.mark.parametrize("gpus", [True, 1.5, "CPU:1", {"CPU:1"}, [None], ["gpu one"], [1.0]])
    def test_that_name_nothing(self, gpus: Any) -> None:
        assert_refused("neither", gpus=gpus)

    def test_in_an_empty_list(self) -> None:
        assert_refused("gpus is an empty list", gpus=[])


class TestRatios:
    @pytest.mark.parametrize("ratios", [[1], [1, 2, 3]])
    def test_of_another_number(self, ratios: list[int]) -> None:
        assert_refused(f"{len(ratios)} for 2 GPUs were given", gpus=TWO, ratios=ratios)

    @pytest.mark.parametrize("ratio", [0, -1, float("nan"), float("inf"), None])
    def test_that_are_no_positive_finite_numbers(self, ratio: Any) -> None:
        assert_refused("ratios must be positive, finite numbers", gpus=TWO, ratios=[1, ratio])

    @pytest.mark.parametrize("ratios", ["32", "3:2", {"CPU:1": 3, "CPU:2": 2}])
    def test_that_are_no_list(self, ratios: Any) -> None:
        kind = type(ratios).__name__

        assert_refused(rf"such as \[3, 2\]; .* is of type {kind}", gpus=TWO, ratios=ratios)
        model = b.parallel(b.dense(), TWO, [3, 2])
        with pytest.raises(ValueError, match="ratios must be a list"):
            model.ratios = ratios
        assert model.ratios == (3, 2)

    def test_that_are_text(self) -> None:
        assert_refused("'3' is text: leave out the quotes", gpus=TWO, ratios=["3", "2"])


class TestTooFewSamples:
    def test_for_one_fixed_batch_say_how_many_there_are_and_what_to_do(
        self,
    ) -> None:
        model = b.parallel(b.dense())
        model.compile("sgd", "sparse_categorical_crossentropy")

        with pytest.raises(ValueError, match=r'40 samples and a batch needs 100.*tail="repeat"'):
            model.fit(fixed_batches(b.rows(40), 100), verbose=0)


class TestAModel:
    def test_that_is_parallel_already(self) -> None:
        parallel = b.parallel(b.dense())

        assert_refused(
            "is parallel already; change the split by model.ratios", model=parallel, gpus=TWO
        )

    def test_that_is_none(self) -> None:
        assert_refused("takes a Keras model, not str", model="dense", gpus=TWO)

    def test_without_weights_yet(self) -> None:
        assert_refused(
            "has no weights yet", model=keras.Sequential([keras.layers.Dense(1)]), gpus=TWO
        )

    def test_with_a_step_or_a_loss_of_its_own(self) -> None:
        assert_refused("has a train_step of its own", model=b.with_own(b.OwnStep), gpus=TWO)
        assert_refused("has a compute_loss of its own", model=b.with_own(b.OwnLoss), gpus=TWO)

    def test_that_remembers_the_rows_of_the_batch_before(self) -> None:
        assert_refused("keeps a state for each row of a batch", model=kinds.stateful(), gpus=TWO)

    def test_with_a_variable_that_keras_does_not_know_is_warned_of(self) -> None:
        with pytest.warns(
            RuntimeWarning, match="'counts' keeps a tf.Variable of its own.*add_weight"
        ):
            b.parallel(kinds.counting_by_itself())

    def test_made_in_the_scope_of_a_strategy(self) -> None:
        with tf.distribute.MirroredStrategy(TWO).scope():
            model = b.dense()
            assert_refused("outside of any strategy.scope", model=model, gpus=TWO)
        assert_refused("outside of any strategy.scope", model=model, gpus=TWO)

    def test_is_not_serialized_where_nothing_is_parallel(self) -> None:
        with pytest.raises(ValueError, match="is not a parallel model"):
            multi_gpu.serialize(b.dense())


class TestCompile:
    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            ({"jit_compile": True}, "jit_compile=True would run every part .* on one GPU"),
            ({"steps_per_execution": 4}, "steps_per_execution=4 cannot be spread over GPUs"),
        ],
    )
    def test_refuses(self, words: dict[str, Any], sentence: str) -> None:
        with pytest.raises(ValueError, match=sentence):
            b.parallel(b.dense()).compile(loss="mse", **words)

    def test_refuses_what_an_optimizer_can_do_on_one_device_only(self) -> None:
        model = b.parallel(b.dense())

        with pytest.raises(ValueError, match=r"SGD\(gradient_accumulation_steps=...\) cannot"):
            model.compile(keras.optimizers.SGD(0.1, gradient_accumulation_steps=2), loss="mse")
        averaging = keras.optimizers.SGD(0.1, use_ema=True, ema_overwrite_frequency=2)
        with pytest.raises(ValueError, match="ema_overwrite_frequency"):
            model.compile(averaging, loss="mse")

    def test_refuses_an_optimizer_that_cannot_be_made_again(self) -> None:
        class Closed(keras.optimizers.SGD):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__(0.1)

        with pytest.raises(ValueError, match=r"Closed cannot be made again .* raised TypeError"):
            b.parallel(b.dense()).compile(Closed(), loss="mse")

    def test_refuses_a_loss_that_is_never_one_number(self) -> None:
        with pytest.raises(ValueError, match="has no reduction"):
            b.parallel(b.dense()).compile(loss=keras.losses.MeanSquaredError(reduction=None))

    def test_never_lets_xla_put_all_parts_on_one_device(self) -> None:
        model = b.parallel(b.dense())

        model.compile(loss="mse", jit_compile="auto")

        assert model.jit_compile is False


class TestData:
    def test_that_is_sparse_is_refused(self) -> None:
        model = b.parallel(b.dense())
        batch = tf.data.Dataset.from_tensors(tf.sparse.from_dense(b.rows(4)[0]))

        with pytest.raises(ValueError, match=r"give it dense, by tf\.sparse\.to_dense"):
            model.predict(batch, verbose=0)


class TestAnotherBackend:
    def test_is_told_what_to_set(self) -> None:
        code = "from trainer_hooks.multi_gpu import multi_gpu_model"
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "KERAS_BACKEND": "jax"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

        assert done.returncode == 1
        assert "needs Keras on TensorFlow, and Keras' backend is jax here" in done.stderr
