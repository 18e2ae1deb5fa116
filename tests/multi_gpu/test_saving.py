"""The template is what is saved, and it always has what was trained."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.multi_gpu.later import b, keras, multi_gpu
from tests.programs import ran_python

pytestmark = pytest.mark.multi_gpu


def bits(weights: Any) -> list[bytes]:
    return [weight.tobytes() for weight in weights]


def equal(some: Any, others: Any) -> bool:
    """Whether two models' weights are the same, bit for bit."""
    return bits(some.get_weights()) == bits(others.get_weights())


def near(some: Any, others: Any) -> bool:
    pairs = zip(some.get_weights(), others.get_weights(), strict=True)
    return all(one == pytest.approx(other, abs=1e-6) for one, other in pairs)


def compiled(model: Any) -> Any:
    model.compile(keras.optimizers.Adam(0.05), loss="sparse_categorical_crossentropy")
    return model


def fitted(template: Any, *callbacks: Any, epochs: int = 2) -> Any:
    model = compiled(b.parallel(template))
    x, y, _ = b.rows()
    model.fit(x, y, batch_size=28, epochs=epochs, verbose=0, callbacks=list(callbacks))
    return model


def again(model: Any, folder: Path) -> Any:
    """Saved and loaded."""
    model.save(folder / "model.keras")
    return keras.models.load_model(folder / "model.keras")


@pytest.fixture(scope="module")
def trained() -> Any:
    return fitted(b.normalized())


class TestTheTemplate:
    def test_may_be_frozen_in_part_before_compile(self) -> None:
        template = b.dense()
        template.layers[0].trainable = False
        frozen = template.layers[0].get_weights()[0].copy()

        model = fitted(template)

        assert np.array_equal(model.template.layers[0].get_weights()[0], frozen)
        assert len(model.trainable_variables) == 2

    def test_has_its_weights_nowhere_but_on_the_gpus_wherever_they_are_to_be_relocated(
        self,
    ) -> None:
        template, (x, y, _) = b.dense(), b.rows()
        words: dict[str, Any] = {"cpu_merge": False, "cpu_relocation": True}
        model = compiled(multi_gpu.multi_gpu_model(template, list(b.DEVICES), **words))
        model.fit(x, y, verbose=0)

        local = model._parts.strategy.experimental_local_results
        for variable in template.variables:
            copies = [copy.device[-5:] for copy in local(variable.value)]
            assert copies == ["CPU:1", "CPU:2", "CPU:3"]
        assert equal(template, model)

    def test_that_its_owner_compiled_is_left_compiled_so(self, tmp_path: Path) -> None:
        """What the parallel model saves is compiled as that one, with its optimizer's state."""
        template, (x, y, _) = b.dense(), b.rows()
        template.compile("sgd", "mse")
        model = compiled(b.parallel(template))
        model.fit(x, y, verbose=0)

        loaded, own = (again(each, tmp_path) for each in (model, template))
        assert (loaded.loss, own.loss) == ("sparse_categorical_crossentropy", "mse")
        kinds = type(loaded.optimizer), type(own.optimizer)
        assert kinds == (keras.optimizers.Adam, keras.optimizers.SGD)
        assert int(loaded.optimizer.iterations.numpy()) == 2
        assert template.loss == "mse"
        assert equal(loaded, own)


class TestAParallelModel:
    def test_is_serialized_to_the_single_one_with_equal_weights_and_outputs(
        self, trained: Any
    ) -> None:
        """Row 7 of the acceptance table."""
        x, _, _ = b.rows()

        single = multi_gpu.serialize(trained)

        assert equal(single, trained)
        assert type(single) is keras.Sequential
        again = b.normalized()
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

    def test_stores_weights_that_the_single_one_and_itself_can_load(
        self, trained: Any, tmp_path: Path
    ) -> None:
        trained.save_weights(tmp_path / "model.weights.h5")
        single, parallel = b.normalized(), b.parallel(b.normalized())

        single.load_weights(tmp_path / "model.weights.h5")
        parallel.load_weights(tmp_path / "model.weights.h5")

        assert equal(single, trained)
        assert equal(parallel, trained)
        assert equal(parallel.template, trained)

    def test_is_checkpointed_in_the_middle_of_fit(self, tmp_path: Path) -> None:
        whole = keras.callbacks.ModelCheckpoint(str(tmp_path / "whole-{epoch}.keras"))
        only = keras.callbacks.ModelCheckpoint(
            str(tmp_path / "only-{epoch}.weights.h5"), save_weights_only=True
        )
        kept: list[Any] = []
        keep: Any = keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: kept.append(keep.model.get_weights())
        )

        fitted(b.normalized(), whole, only, keep)

        for epoch, weights in enumerate(kept, start=1):
            loaded = keras.models.load_model(tmp_path / f"whole-{epoch}.keras")
            single = b.normalized()
            single.load_weights(tmp_path / f"only-{epoch}.weights.h5")
            for model in (loaded, single):
                assert bits(model.get_weights()) == bits(weights)

    def test_goes_on_in_the_middle_of_an_epoch_after_its_process_was_killed_as_on_one_device(
        self, tmp_path: Path
    ) -> None:
        def ends(killed_at: str) -> list[int]:
            def end(devices: int) -> int:
                words = str(devices), tmp_path / f"backup-{devices}", killed_at, told[devices]
                module = "tests.multi_gpu.killed_training"
                return ran_python("-m", module, *words, timeout_s=120).returncode

            with ThreadPoolExecutor() as executor:
                return list(executor.map(end, told))

        told = {devices: tmp_path / f"{devices}.npz" for devices in (1, 3)}

        assert ends("5") == [-signal.SIGKILL] * 2
        assert ends("never") == [0, 0]

        one, several = (np.load(path) for path in told.values())
        assert one.files == several.files
        assert int(one["arr_4"]) > 3  # weights, and then the steps that the optimizer has done
        for name in one.files:
            assert several[name] == pytest.approx(one[name], abs=1e-6)

    def test_has_no_configuration_of_its_own_and_says_why(self, trained: Any) -> None:
        with pytest.raises(ValueError, match=r"model.save\(...\)"):
            trained.get_config()

    def test_is_exported_as_the_single_one(self, trained: Any, tmp_path: Path) -> None:
        trained.export(str(tmp_path / "exported"), verbose=False)

        assert (tmp_path / "exported" / "saved_model.pb").is_file()


class TestAFileThatCannotBeUsed:
    """Nothing is half done: the weights, the optimizer and what they are compiled with stay."""

    @pytest.mark.parametrize("words", [{}, {"skip_mismatch": True}])
    def test_of_another_architecture_is_refused_or_taken_where_it_fits(
        self, words: dict[str, Any], tmp_path: Path
    ) -> None:
        keras.utils.set_random_seed(5)
        layers = keras.layers
        hidden, wider = layers.Dense(8, activation="relu"), layers.Dense(b.CLASSES + 1)
        donor = keras.Sequential([keras.Input((b.FEATURES,)), hidden, wider])
        donor.save_weights(tmp_path / "other.weights.h5")
        model = fitted(b.dense())
        first, *others = [weight.copy() for weight in model.get_weights()]
        steps = int(model.optimizer.iterations.numpy())

        warned = pytest.warns(UserWarning, match="could not be loaded")
        refused = pytest.raises(ValueError, match="shape")
        with warned if words else refused:
            model.load_weights(tmp_path / "other.weights.h5", **words)

        now = model.get_weights()
        assert np.array_equal(now[0], donor.get_weights()[0] if words else first)
        assert np.array_equal(now[2], others[1])
        assert int(model.optimizer.iterations.numpy()) == steps
        assert equal(model.template, model)
        for variable in model.template.variables:
            copies = model._parts.strategy.experimental_local_results(variable.value)
            assert all(np.array_equal(copy, copies[0]) for copy in copies)

    def test_on_a_disk_that_is_full_ends_the_fit_and_nothing_else(self, tmp_path: Path) -> None:
        full = tmp_path / "full.keras"
        full.symlink_to("/dev/full")
        template, (x, y, _) = b.dense(), b.rows()
        model, one = compiled(b.parallel(template)), compiled(b.dense())
        words = {"batch_size": 28, "shuffle": False, "verbose": 0}
        checkpoint = keras.callbacks.ModelCheckpoint(str(full), save_freq=2)

        with pytest.raises(OSError, match="No space"):
            model.fit(x, y, callbacks=[checkpoint], **words)
        assert not template.compiled
        model.fit(x[56:], y[56:], **words)  # the batch that was not reached
        one.fit(x, y, **words)

        assert near(template, one)
