"""A parallel model and the single model that it was made of share their weights."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.multi_gpu.later import builders, keras, kinds, middle_builders, multi_gpu, tf

pytestmark = pytest.mark.multi_gpu


@pytest.fixture(scope="module")
def trained() -> dict[int, Any]:
    """The single-device and the parallel model after an epoch, by number of devices."""
    made = {devices: middle_builders.made(devices, eagerly=devices == 1) for devices in (1, 2)}
    for _, model in made.values():
        for x, y in middle_builders.batches():
            model.train_on_batch(x, y)
    return made


def exported(single: Any, folder: Path) -> Any:
    single.export(str(folder / "exported"), verbose=False)
    loaded = tf.saved_model.load(str(folder / "exported"))
    return lambda x: loaded.serve(x)


READERS: dict[str, Callable[[Any, Path], Any]] = {
    "a call": lambda single, folder: single,
    "export": exported,
    "a pickle": lambda single, folder: pickle.loads(pickle.dumps(single)),
    "a traced function": lambda single, folder: tf.function(single),
}


class TestReadingTheSingleModelAfterTrainOnBatch:
    @pytest.mark.parametrize("reader", READERS)
    def test_gives_the_trained_weights(
        self, trained: dict[int, Any], reader: str, tmp_path: Path
    ) -> None:
        x, _ = middle_builders.rows(seed=2)

        output = READERS[reader](trained[2][0], tmp_path)(x)

        expected = trained[1][0](x)
        assert (
            builders.furthest([np.asarray(output)], [np.asarray(expected)]) <= middle_builders.CLOSE
        )

    def test_evaluates_it_as_its_owner_has_compiled_it(self, trained: dict[int, Any]) -> None:
        x, y = middle_builders.rows(seed=2)

        single, model = trained[2]
        single.compile(loss="mae")
        mae, losses = single.evaluate(x, y, verbose=0), model.evaluate(x, y, verbose=0)

        assert mae == pytest.approx(losses[1], abs=middle_builders.CLOSE)
        assert losses == pytest.approx(
            trained[1][1].evaluate(x, y, verbose=0), abs=middle_builders.CLOSE
        )


def test_a_model_that_shares_layers_and_predicted_before_has_the_trained_weights() -> None:
    x, y = middle_builders.rows()
    single = middle_builders.single_model()
    other = keras.Model(single.inputs, single.layers[-1].output)
    before = other.predict(x, verbose=0), single.predict(x, verbose=0)

    model = multi_gpu.multi_gpu_model(single, gpus=["CPU:1", "CPU:2"])
    model.compile("sgd", "mse")
    callbacks = keras.callbacks.CallbackList([keras.callbacks.History()], model=model)
    model.fit(x, y, verbose=0, callbacks=callbacks)

    assert len(callbacks.callbacks) == 1
    after = other.predict(x, verbose=0)
    assert after == pytest.approx(model.predict(x, verbose=0), abs=middle_builders.CLOSE)
    assert after == pytest.approx(single.predict(x, verbose=0), abs=middle_builders.CLOSE)
    assert np.abs(after - before[0]).max() > 1e-3


def test_a_model_compiled_by_xla_continues_without() -> None:
    x, y = middle_builders.rows()

    def trained(devices: int) -> Any:
        single = middle_builders.single_model()
        compiler = {"jit_compile": True} if devices > 1 else {"run_eagerly": True}
        single.compile("sgd", "mse", **compiler)
        single.fit(x, y, shuffle=False, verbose=0)
        middle_builders.spread(single, devices)
        single.fit(x, y, shuffle=False, verbose=0)
        return single

    single = trained(2)

    assert (
        builders.furthest(single.get_weights(), trained(1).get_weights()) <= middle_builders.CLOSE
    )
    with pytest.warns(UserWarning, match="doesn't support `jit_compile=True`"):
        single.compile("sgd", "mse", jit_compile=True)
    single.fit(x, y, verbose=0)


OTHER = 0.3


def other_weights(single: Any) -> list[Any]:
    return [np.full_like(weight, OTHER) for weight in single.get_weights()]


def by_load_weights(single: Any, model: Any, folder: Path) -> None:
    donor = middle_builders.single_model()
    donor.set_weights(other_weights(single))
    donor.save_weights(folder / "other.weights.h5")
    model.load_weights(folder / "other.weights.h5")


def by_assign(single: Any, model: Any, folder: Path) -> None:
    for variable in single.trainable_variables:
        variable.assign(np.full(variable.shape, OTHER))


def by_layers(single: Any, model: Any, folder: Path) -> None:
    for layer in single.layers:
        layer.set_weights(other_weights(layer))


SETTERS: dict[str, Callable[[Any, Any, Path], None]] = {
    "load_weights of the model": by_load_weights,
    "set_weights": lambda single, model, folder: single.set_weights(other_weights(single)),
    "set_weights of its layers": by_layers,
    "assign": by_assign,
}


Left = dict[str, list[Any]]


def left_by_a_fit(devices: int, setter: str, folder: Path) -> Left:
    """Numbers of a training run during whose fit the weights are set."""
    training, once = middle_builders.Trained(devices, folder), [True]

    def act(batch: int, logs: Any) -> None:
        if batch == 5 and once:
            once.clear()
            SETTERS[setter](training.single, training.model, training.folder)

    callback = keras.callbacks.LambdaCallback(on_train_batch_end=act)
    training.fit([callback], validates=True)
    assert not once
    return training.outcome()


@pytest.fixture(scope="module")
def fit_on_one(tmp_path_factory: pytest.TempPathFactory) -> Left:
    return left_by_a_fit(1, "set_weights", tmp_path_factory.mktemp("one"))


class TestSettingTheWeightsOfTheSingleModel:
    """All setters set the same numbers, so one run on one device is enough."""

    @pytest.mark.parametrize("setter", SETTERS)
    def test_takes_effect_during_a_fit(self, setter: str, fit_on_one: Left, tmp_path: Path) -> None:
        assert middle_builders.differing(left_by_a_fit(3, setter, tmp_path), fit_on_one) == {}

    def test_optimizer_that_trained_the_model_before_works(self) -> None:
        """With embeddings, whose gradients are sparse."""
        x, y, _ = builders.sentences()

        def outcome(devices: int) -> list[Any]:
            single = builders.masked()
            adam, loss = keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy"
            single.compile(adam, loss, run_eagerly=devices == 1)
            single.fit(x, y, shuffle=False, verbose=0)
            middle_builders.spread(single, devices, builders.RATIOS[:devices])
            single.fit(x, y, shuffle=False, verbose=0)
            return [*single.get_weights(), *middle_builders.numbers(single.optimizer.variables)]

        assert middle_builders.trains_alike(outcome, 3)

    def test_sets_the_copies_of_all_devices(self) -> None:
        single, model = middle_builders.made(3)
        single.set_weights(other_weights(single))

        for variable in single.variables:
            copies = model._parts.strategy.experimental_local_results(variable.value)
            assert [np.unique(copy) for copy in copies] == [[np.float32(OTHER)]] * 3


def in_another_thread(act: Callable[[], None]) -> None:
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


def test_another_thread_may_during_fit_read_and_set_another_model_but_not_set_this_one() -> None:
    (single, model), (another, _) = middle_builders.models(2), middle_builders.made(2)
    refused: list[str] = []
    read: list[Any] = []

    def act() -> None:
        read.extend(single.get_weights())
        another.set_weights(other_weights(another))
        for written in (single, model):
            with pytest.raises(RuntimeError) as error:
                written.set_weights(other_weights(single))
            refused.append(str(error.value))

    def in_the_middle(batch: int, logs: Any) -> None:
        if batch == 3:
            in_another_thread(act)

    x, y = middle_builders.rows()
    callback = keras.callbacks.LambdaCallback(on_train_batch_end=in_the_middle)
    model.fit(x, y, batch_size=middle_builders.BATCH, verbose=0, callbacks=[callback])

    assert len(read) == 2
    assert len(refused) == 2
    assert all("another thread" in error for error in refused)
    assert np.unique(another.get_weights()[0]) == [np.float32(OTHER)]
    in_another_thread(lambda: single.set_weights(other_weights(single)))
    assert np.unique(model.get_weights()[0]) == [np.float32(OTHER)]


def test_the_loop_of_the_ratio_repository_is_saved_by_the_single_model(tmp_path: Path) -> None:
    """Its script trains by ``train_on_batch`` and saves this way, as recommended by Keras 2."""
    ratio_repository = import_module("ratio_training_utils")
    x, y, _ = builders.rows(40)
    single = kinds.keeping()
    model = ratio_repository.multi_gpu_model(single, gpus=["CPU:1", "CPU:2"], ratios=[3, 2])
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
    for _ in range(4):
        model.train_on_batch(x, y)

    single.save(tmp_path / "single.keras")
    loaded = keras.models.load_model(
        tmp_path / "single.keras", custom_objects={"Keeps": kinds.Keeps}
    )

    predicted = model.predict(x, verbose=0)
    assert loaded.predict(x, verbose=0) == pytest.approx(predicted, abs=middle_builders.CLOSE)
    untrained = kinds.keeping().predict(x, verbose=0)
    assert np.abs(predicted - untrained).max() > 1e-2


@pytest.mark.versions
@pytest.mark.parametrize("scaled", [False, True], ids=["", "with a scaled loss"])
def test_numbers_of_the_optimizer_are_read_as_usual(scaled: bool) -> None:
    model = builders.parallel(builders.dense(), devices=["CPU:1", "CPU:2"], ratios=[3, 2])
    adam = keras.optimizers.Adam(0.25)
    adam = keras.optimizers.LossScaleOptimizer(adam) if scaled else adam
    model.compile(adam, "sparse_categorical_crossentropy")
    model.fit(*builders.rows()[:2], batch_size=28, verbose=0)

    assert float(model.optimizer.learning_rate) == 0.25
    assert int(model.optimizer.iterations) == 3
    model.optimizer.learning_rate = 0.5
    assert float(model.optimizer.learning_rate) == 0.5
