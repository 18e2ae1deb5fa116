"""What cannot be made parallel is refused with a message that says what to do."""

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import Any

import pytest

from tests.multi_gpu.later import builders, keras, kinds, middle_builders, multi_gpu, tf
from tests.programs import ran_python
from trainer_hooks import fixed_batches

pytestmark = pytest.mark.multi_gpu

TWO = ["CPU:1", "CPU:2"]
NO_GPU = r"sees no GPU here; to try without one .* gpus=\['CPU:0', 'CPU:1'\]"
NO_NUMBER = "ratios must be positive, finite numbers"
NO_LIST = r"(?i)ratios must be a list.* such as \[3, 2\]; .* is of type \w*"


def assert_refused(match: str, *, model: Any = None, **arguments: Any) -> None:
    with pytest.raises(ValueError, match=match):
        multi_gpu.multi_gpu_model(builders.dense() if model is None else model, **arguments)


class TestGpus:
    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            *[(arguments, NO_GPU) for arguments in ({}, {"gpus": 2}, {"gpus": [0, 1]})],
            ({"gpus": ["GPU:7"]}, "there is no device GPU:7 here; TensorFlow sees CPU:0, CPU:1"),
            ({"gpus": ["CPU:1", "/device:cpu:1"]}, "gpus names CPU:1 twice"),
            *[
                ({"gpus": no}, "neither")
                for no in (True, 1.5, "CPU:1", {"CPU:1"}, [None], ["gpu one"], [1.0])
            ],
            ({"gpus": []}, "gpus is an empty list"),
        ],
    )
    def test_missing_gpus_are_refused(self, arguments: dict[str, Any], sentence: str) -> None:
        assert_refused(sentence, **arguments)


class TestRatios:
    @pytest.mark.parametrize(
        ("ratios", "sentence"),
        [
            ([1], "1 for 2 GPUs were given"),
            ([1, 2, 3], "3 for 2 GPUs were given"),
            *[([1, no], NO_NUMBER) for no in (0, -1, float("nan"), float("inf"), None)],
            *[(no, NO_LIST + type(no).__name__) for no in ("32", {"CPU:1": 3, "CPU:2": 2})],
            (["3", "2"], "'3' is text: leave out the quotes"),
        ],
    )
    def test_invalid_values_are_refused_and_change_nothing(
        self, ratios: Any, sentence: str
    ) -> None:
        model = builders.parallel(builders.dense(), TWO, [3, 2])

        assert_refused(sentence, gpus=TWO, ratios=ratios)
        with pytest.raises(ValueError, match=sentence):
            model.ratios = ratios
        assert model.ratios == (3, 2)


class TestTooFewSamples:
    def test_ratios_for_one_fixed_batch_are_refused(self) -> None:
        model = builders.parallel(builders.dense())
        model.compile("sgd", "sparse_categorical_crossentropy")

        with pytest.raises(ValueError, match=r'40 .*100.*tail="repeat"'):
            model.fit(fixed_batches(builders.rows(40), 100), verbose=0)


class TestAModel:
    @pytest.mark.parametrize(
        ("build", "sentence"),
        [
            (
                lambda: builders.parallel(builders.dense()),
                "is parallel already; change the split by model.ratio",
            ),
            (lambda: "dense", "takes a Keras model, not str"),
            (lambda: keras.Sequential([keras.layers.Dense(1)]), "has no weights yet"),
            (lambda: builders.with_own(builders.OwnStep), "has a train_step of its own"),
            (lambda: builders.with_own(builders.OwnLoss), "has a compute_loss of its own"),
            (lambda: kinds.stateful(), "keeps a state for each row of a batch"),
        ],
    )
    def test_model_that_cannot_be_split_is_refused(self, build: Any, sentence: str) -> None:
        assert_refused(sentence, model=build(), gpus=TWO)

    def test_variable_unknown_to_keras_causes_a_warning(self) -> None:
        with pytest.warns(
            RuntimeWarning, match="'counts' keeps a tf.Variable of its own.*add_weight"
        ):
            builders.parallel(kinds.counting_by_itself())

    def test_made_in_the_scope_of_a_strategy_is_refused(self) -> None:
        with tf.distribute.MirroredStrategy(TWO).scope():
            model = builders.dense()
            assert_refused("outside of any strategy.scope", model=model, gpus=TWO)
        assert_refused("outside of any strategy.scope", model=model, gpus=TWO)

    def test_serializing_a_model_that_is_not_parallel_is_refused(self) -> None:
        with pytest.raises(ValueError, match="multi_gpu_model"):
            multi_gpu.serialize(builders.dense())


def sgd(**arguments: Any) -> Any:
    return keras.optimizers.SGD(0.1, **arguments)


class TestCompile:
    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (lambda: {"jit_compile": True}, "jit_compile=True would run every part .* on one GPU"),
            (lambda: {"steps_per_execution": 4}, "steps_per_execution=4 cannot be spread over GPU"),
            (
                lambda: {"optimizer": sgd(gradient_accumulation_steps=2)},
                r"SGD\(gradient_accumulation_steps=...\) cannot",
            ),
            (
                lambda: {"optimizer": sgd(use_ema=True, ema_overwrite_frequency=2)},
                "ema_overwrite_frequency",
            ),
            (
                lambda: {"loss": keras.losses.MeanSquaredError(reduction=None)},
                "has no reduction",
            ),
            (lambda: {"optimizer": kinds.Closed()}, r"Closed .* TypeError"),
        ],
    )
    def test_refuses_what_needs_one_device(self, arguments: Any, sentence: str) -> None:
        with pytest.raises(ValueError, match=sentence):
            builders.parallel(builders.dense()).compile(**{"loss": "mse", **arguments()})

    def test_disables_xla(self) -> None:
        model = builders.parallel(builders.dense())

        model.compile(loss="mse", jit_compile="auto")

        assert model.jit_compile is False


class TestData:
    def test_sparse_input_is_refused(self) -> None:
        model = builders.parallel(builders.dense())
        batch = tf.data.Dataset.from_tensors(tf.sparse.from_dense(builders.rows(4)[0]))

        with pytest.raises(ValueError, match=r"tf\.sparse\.to_dense"):
            model.predict(batch, verbose=0)

    def test_padded_with_copies_is_refused_by_evaluate_only(self) -> None:
        (x, y), (_, model) = middle_builders.rows(), middle_builders.models(2)
        batches = fixed_batches((x, y), 8, tail="pad")

        model.fit(batches, verbose=0)
        with pytest.raises(ValueError, match="evaluate"):
            model.evaluate(batches, verbose=0)
        with pytest.raises(ValueError, match="evaluate"):
            model.fit(x, y, verbose=0, validation_data=batches)
        assert len(model.evaluate(x, y, batch_size=8, verbose=0)) == 2


@pytest.mark.parametrize(
    ("version", "is_refused"),
    [("3.7.0", True), ("3.13.2", True), ("3.14.0", False), ("3.16.0.dev2026102704", False)],
)
def test_a_keras_before_3_14_is_refused(
    version: str, is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("keras.__version__", version)
    sentence = (
        f"multi_gpu_model needs Keras 3.14 or newer, and this is Keras {version}: "
        "pip install -U keras"
    )

    with pytest.raises(ImportError, match=re.escape(sentence)) if is_refused else nullcontext():
        multi_gpu.multi_gpu_model(builders.dense(), gpus=TWO)


def test_another_backend_is_refused() -> None:
    code = "from trainer_hooks.multi_gpu import multi_gpu_model"
    done = ran_python("-c", code, environ={"KERAS_BACKEND": "jax"})

    assert done.returncode == 1
    assert "KERAS_BACKEND=tensorflow" in done.stderr
