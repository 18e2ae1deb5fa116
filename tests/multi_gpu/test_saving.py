"""The template is what is saved, and it always has the trained weights."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.multi_gpu.later import builders, keras, middle_builders, multi_gpu
from tests.needs import in_make_truth

pytestmark = pytest.mark.multi_gpu


def equal(some: Any, others: Any) -> bool:
    """Whether two models' weights are the same, bit for bit."""
    pairs = zip(some.get_weights(), others.get_weights(), strict=True)
    return all(one.tobytes() == other.tobytes() for one, other in pairs)


def near(some: Any, others: Any) -> bool:
    return bool(
        builders.furthest(some.get_weights(), others.get_weights()) <= builders.SINGLE_PRECISION
    )


def compiled(model: Any) -> Any:
    model.compile(keras.optimizers.Adam(0.05), loss="sparse_categorical_crossentropy")
    return model


def fitted(template: Any) -> Any:
    model = compiled(builders.parallel(template))
    x, y, _ = builders.rows()
    model.fit(x, y, batch_size=28, epochs=2, verbose=0)
    return model


def again(model: Any, folder: Path) -> Any:
    """Saved and loaded."""
    model.save(folder / "model.keras")
    return keras.models.load_model(folder / "model.keras")


@pytest.fixture(scope="module")
def trained() -> Any:
    return fitted(builders.normalized())


class TestTheTemplate:
    def test_has_its_weights_only_on_the_gpus_whatever_cpu_relocation_is(self) -> None:
        template, (x, y, _) = builders.dense(), builders.rows()
        merge_on_gpu: dict[str, Any] = {"cpu_merge": False, "cpu_relocation": True}
        model = compiled(
            multi_gpu.multi_gpu_model(template, list(builders.DEVICES), **merge_on_gpu)
        )
        model.train_on_batch(x, y)

        local = model._parts.strategy.experimental_local_results
        for variable in template.variables:
            copies = [copy.device[-5:] for copy in local(variable.value)]
            assert copies == ["CPU:1", "CPU:2", "CPU:3"]
        assert equal(template, model)

    def test_keeps_the_users_own_compile(self, tmp_path: Path) -> None:
        template, (x, y, _) = builders.dense(), builders.rows()
        template.compile("sgd", "mse")
        model = compiled(builders.parallel(template))
        model.train_on_batch(x, y)

        loaded, own = (again(each, tmp_path) for each in (model, template))
        assert (loaded.loss, own.loss) == ("sparse_categorical_crossentropy", "mse")
        kinds = type(loaded.optimizer), type(own.optimizer)
        assert kinds == (keras.optimizers.Adam, keras.optimizers.SGD)
        assert int(loaded.optimizer.iterations.numpy()) == 1
        assert template.loss == "mse"
        assert equal(loaded, own)


class TestAParallelModel:
    def test_is_serialized_to_the_single_one_bit_for_bit(self, trained: Any) -> None:
        """Row 7 of the acceptance table."""
        x, _, _ = builders.rows()

        single = multi_gpu.serialize(trained)

        assert equal(single, trained)
        assert type(single) is keras.Sequential
        again = builders.normalized()
        again.set_weights(trained.get_weights())
        assert single.predict(x, verbose=0).tobytes() == again.predict(x, verbose=0).tobytes()

    def test_is_saved_as_the_single_one_with_the_state_of_the_optimizer(
        self, trained: Any, tmp_path: Path
    ) -> None:
        loaded = again(trained, tmp_path)

        assert type(loaded) is keras.Sequential
        assert equal(loaded, trained)
        assert loaded.optimizer.iterations.numpy() == trained.optimizer.iterations.numpy() == 6
        for kept, had in zip(loaded.optimizer.variables, trained.optimizer.variables, strict=True):
            assert np.array_equal(kept.numpy(), had.value.numpy()), kept.path

    @in_make_truth
    def test_continues_from_a_backup_within_an_epoch_as_on_one_device(self, tmp_path: Path) -> None:
        for devices in (1, 3):
            with pytest.raises(ZeroDivisionError):
                with_backups(devices, tmp_path, ends_at=5)

        models = [with_backups(devices, tmp_path) for devices in (1, 3)]

        assert int(models[0].optimizer.iterations.numpy()) > 3
        assert near(*models)
        states = (middle_builders.numbers(model.optimizer.variables) for model in models)
        assert builders.furthest(*states) <= builders.SINGLE_PRECISION


def with_backups(devices: int, folder: Path, *, ends_at: int = 0) -> Any:
    """A model trained with a backup after every second step; continues from a backup, if any."""
    steps = count(1)

    def end(batch: int, logs: Any) -> None:
        if next(steps) == ends_at:
            raise ZeroDivisionError

    model = compiled(builders.dense() if devices == 1 else builders.parallel(builders.dense()))
    x, y, _ = builders.rows()
    callbacks = [
        keras.callbacks.BackupAndRestore(str(folder / str(devices)), save_freq=2),
        keras.callbacks.LambdaCallback(on_train_batch_end=end),
    ]
    model.fit(x, y, batch_size=28, epochs=2, shuffle=False, verbose=0, callbacks=callbacks)
    return model


class TestAFileThatCannotBeUsed:
    """The weights, the optimizer and the compile state stay complete."""

    def test_other_architecture_is_refused_or_loaded_where_it_fits(self, tmp_path: Path) -> None:
        keras.utils.set_random_seed(5)
        layers = keras.layers
        hidden, wider = layers.Dense(8, activation="relu"), layers.Dense(builders.CLASSES + 1)
        donor = keras.Sequential([keras.Input((builders.FEATURES,)), hidden, wider])
        donor.save_weights(tmp_path / "other.weights.h5")
        model = fitted(builders.dense())
        before = [weight.copy() for weight in model.get_weights()]
        steps = int(model.optimizer.iterations.numpy())

        with pytest.raises(ValueError, match="shape"):
            model.load_weights(tmp_path / "other.weights.h5")
        assert builders.furthest(model.get_weights(), before) == 0

        with pytest.warns(UserWarning, match="could not be loaded"):
            model.load_weights(tmp_path / "other.weights.h5", skip_mismatch=True)
        now = model.get_weights()
        assert np.array_equal(now[0], donor.get_weights()[0])
        assert np.array_equal(now[2], before[2])
        assert int(model.optimizer.iterations.numpy()) == steps
        assert equal(model.template, model)
        for variable in model.template.variables:
            copies = model._parts.strategy.experimental_local_results(variable.value)
            assert all(np.array_equal(copy, copies[0]) for copy in copies)

    @in_make_truth
    def test_full_disk_ends_only_the_fit(self, tmp_path: Path) -> None:
        full = tmp_path / "full.keras"
        full.symlink_to("/dev/full")
        template, (x, y, _) = builders.dense(), builders.rows()
        model, one = compiled(builders.parallel(template)), compiled(builders.dense())
        arguments = {"batch_size": 28, "shuffle": False, "verbose": 0}
        checkpoint = keras.callbacks.ModelCheckpoint(str(full), save_freq=2)

        with pytest.raises(OSError, match="No space"):
            model.fit(x, y, callbacks=[checkpoint], **arguments)
        assert not template.compiled
        model.fit(x[56:], y[56:], **arguments)  # the batch that was not reached
        one.fit(x, y, **arguments)

        assert near(template, one)
