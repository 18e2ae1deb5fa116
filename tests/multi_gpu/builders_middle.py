"""Training runs during which a callback reads or saves weights, on one device or several."""

from __future__ import annotations

import functools
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import h5py
import keras
import numpy as np
import tensorflow as tf

from tests.multi_gpu.builders_parallel import SINGLE_PRECISION, furthest
from trainer_hooks.multi_gpu import multi_gpu_model, serialize

ROWS = 42
BATCH = 6
"""Seven equal batches per epoch, so that a step is traced once."""
EPOCHS = 3
FEATURES = 4
DEVICES = ("CPU:1", "CPU:2", "CPU:3")
RATIOS = (4, 3, 2)
CLOSE = SINGLE_PRECISION

layers = keras.layers


def rows(*, seed: int = 0) -> tuple[Any, Any]:
    """``(x, y)``: float32 (ROWS, FEATURES) and (ROWS, 1)."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(ROWS, FEATURES)).astype("float32")
    return x, (x.sum(axis=1, keepdims=True) + random.normal(size=(ROWS, 1))).astype("float32")


def batched(*, seed: int) -> tf.data.Dataset:
    """The same as a dataset: with arrays Keras would trace functions for each call."""
    return tf.data.Dataset.from_tensor_slices(rows(seed=seed)).batch(BATCH)


def single_model() -> keras.Model:
    keras.utils.set_random_seed(3)
    return keras.Sequential([layers.Input((FEATURES,)), layers.Dense(1)])


def spread(model: Any, devices: int, ratios: Sequence[float] | None = None) -> Any:
    """The parallel model; on one device ``model`` itself."""
    if devices == 1:
        return model
    return multi_gpu_model(model, gpus=list(DEVICES[:devices]), ratios=ratios)


def plain(model: Any) -> Any:
    """The single-device model."""
    return serialize(model) if hasattr(model, "template") else model


def made(devices: int, *, average: bool = False, eagerly: bool = False) -> tuple[Any, Any]:
    """The single-device model and the one that trains it; on one device the same."""
    single = single_model()
    model = spread(single, devices, RATIOS[:devices])
    optimizer = keras.optimizers.SGD(0.02, momentum=0.8, use_ema=average)
    model.compile(optimizer, loss="mse", metrics=["mae"], run_eagerly=eagerly)
    model.optimizer.build(model.trainable_variables)
    return single, model


@functools.cache
def _made_once(devices: int, *, average: bool) -> tuple[Any, Any, list[Any]]:
    single, model = made(devices, average=average)
    return single, model, numbers([*model.variables, *model.optimizer.variables])


def models(devices: int, *, average: bool = False) -> tuple[Any, Any]:
    """Like ``made``, but always the same models, reset, so that steps are traced once."""
    single, model, values = _made_once(devices, average=average)
    state = [*model.variables, *model.optimizer.variables]
    for variable, value in zip(state, values, strict=True):
        variable.assign(value)
    return single, model


@dataclass
class Trained:
    """A training run and its results.

    Attributes:
        single: The single-device model; on one device the model itself.
        model: The model that trains.
        folder: For its files.
        seen: Numbers seen by callbacks.
        history: Logs per epoch.
    """

    devices: int
    folder: Path
    average: bool = False
    single: Any = None
    model: Any = None
    seen: list[Any] = field(default_factory=list)
    history: list[dict[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.single, self.model = models(self.devices, average=self.average)

    def saw(self, *values: Any) -> None:
        self.seen += [np.array(value) for value in keras.tree.flatten(values)]

    def fit(self, callbacks: Sequence[Any], *, validates: bool) -> None:
        validated = {"validation_data": batched(seed=1)} if validates else {}
        history = self.model.fit(
            batched(seed=0), epochs=EPOCHS, verbose=0, callbacks=list(callbacks), **validated
        ).history
        self.history = [
            dict(zip(history, row, strict=True)) for row in zip(*history.values(), strict=True)
        ]

    def outcome(self) -> dict[str, list[Any]]:
        """All numbers to compare: logs, seen values and the final state."""
        return {
            "history": [value for logs in self.history for _, value in sorted(logs.items())],
            "seen": self.seen,
            "weights": self.model.get_weights(),
            "weights of the single model": self.single.get_weights(),
            "optimizer": numbers(self.model.optimizer.variables),
        }


def numbers(variables: Sequence[Any]) -> list[Any]:
    return [keras.ops.convert_to_numpy(variable) for variable in variables]


def batches() -> Iterator[tuple[Any, Any]]:
    x, y = rows()
    for start in range(0, ROWS, BATCH):
        yield x[start : start + BATCH], y[start : start + BATCH]


Kind = Callable[[Trained, str], list[Any]]
"""Makes the callbacks of a training run for a monitored metric."""


def checkpoints(name: str, **arguments: Any) -> Kind:
    def made(trained: Trained, monitor: str) -> list[Any]:
        path = str(trained.folder / name)
        return [keras.callbacks.ModelCheckpoint(path, monitor=monitor, **arguments)]

    return made


def backups(trained: Trained, monitor: str) -> list[Any]:
    kept = {"save_freq": 3, "delete_checkpoint": False, "double_checkpoint": True}
    return [keras.callbacks.BackupAndRestore(str(trained.folder / "backup"), **kept)]


def reading(act: Callable[[Trained], None]) -> Kind:
    """Calls ``act`` in the middle of every epoch and at its end."""

    def made(trained: Trained, monitor: str) -> list[Any]:
        def after_batch(batch: int, logs: Any) -> None:
            if batch == 5:
                act(trained)

        return [
            keras.callbacks.LambdaCallback(
                on_train_batch_end=after_batch, on_epoch_end=lambda epoch, logs: act(trained)
            )
        ]

    return made


def read_weights(trained: Trained) -> None:
    trained.saw(
        trained.model.get_weights(),
        trained.single.get_weights(),
        [layer.get_weights() for layer in trained.single.layers],
    )


def serialized(trained: Trained) -> None:
    trained.saw(plain(trained.model).get_weights())


def saved(trained: Trained) -> None:
    for name, model in (("model", trained.model), ("single", trained.single)):
        path = trained.folder / f"{name}.keras"
        model.save(path)
        trained.saw(keras.models.load_model(path).get_weights())
        path.unlink()


def predicted(trained: Trained) -> None:
    batches = batched(seed=2)
    for model in (trained.model, trained.single):
        trained.saw(model.predict(batches, verbose=0))


def evaluated(trained: Trained) -> None:
    trained.saw(trained.model.evaluate(batched(seed=2), verbose=0))


# A falling metric counts as worse: stops in the second epoch and restores the first.
WORSE: dict[str, Any] = {"mode": "max", "patience": 1}

KINDS: dict[str, Kind] = {
    "checkpoints every third batch": checkpoints("{epoch}-{batch}.keras", save_freq=3),
    "checkpoints of weights every epoch": checkpoints("{epoch}.weights.h5", save_weights_only=True),
    "a backup every third batch": backups,
    "early stopping": lambda _, monitor: [
        keras.callbacks.EarlyStopping(monitor, restore_best_weights=True, **WORSE)
    ],
    "a lower rate on a plateau": lambda _, monitor: [
        keras.callbacks.ReduceLROnPlateau(monitor, factor=0.5, **WORSE)
    ],
    "averages swapped in": lambda *_: [keras.callbacks.SwapEMAWeights(swap_on_epoch=True)],
    "get_weights": reading(read_weights),
    "serialize": reading(serialized),
    "save": reading(saved),
    "predict": reading(predicted),
    "evaluate": reading(evaluated),
}


def numbers_in_files(folder: Path) -> dict[str, list[Any]]:
    """All numbers in the saved files: weights and the state of the optimizer."""
    found: dict[str, list[Any]] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix == ".keras":
            with zipfile.ZipFile(path) as stored, stored.open("model.weights.h5") as file:
                found |= _numbers_in(file, name)
        elif path.suffix == ".h5":
            with path.open("rb") as file:
                found |= _numbers_in(file, name)
    return found


def _numbers_in(file: IO[bytes], prefix: str) -> dict[str, list[Any]]:
    """By their names in the file."""
    numbers: dict[str, list[Any]] = {}

    def note(name: str, found: Any) -> None:
        if isinstance(found, h5py.Dataset):
            numbers[f"{prefix}: {name}"] = [found[()]]

    with h5py.File(file) as stored:
        stored.visititems(note)
    return numbers


def differing(some: dict[str, list[Any]], others: dict[str, list[Any]]) -> dict[str, float]:
    """The groups of numbers that differ, and by how much."""
    assert some.keys() == others.keys()
    far = {name: furthest(some[name], others[name]) for name in others}
    return {name: off for name, off in far.items() if not off <= CLOSE}


def trains_alike(outcome: Callable[[int], Sequence[Any]], several: int) -> bool:
    """Whether the results are the same on one device and on several."""
    return furthest(outcome(several), outcome(1)) <= CLOSE
