"""Trainings in whose middle a callback reads or saves weights, on one device or on several."""

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
"""Seven batches an epoch, all alike: a step is traced once."""
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
    """The same in batches: to cut arrays, Keras would trace functions for each call anew."""
    return tf.data.Dataset.from_tensor_slices(rows(seed=seed)).batch(BATCH)


def single_model() -> keras.Model:
    keras.utils.set_random_seed(3)
    return keras.Sequential([layers.Input((FEATURES,)), layers.Dense(1)])


def spread(model: Any, devices: int, ratios: Sequence[float] | None = None) -> Any:
    """``model`` itself on one device."""
    if devices == 1:
        return model
    return multi_gpu_model(model, gpus=list(DEVICES[:devices]), ratios=ratios)


def plain(model: Any) -> Any:
    """The model for one device."""
    return serialize(model) if hasattr(model, "template") else model


def made(devices: int, *, average: bool = False, eagerly: bool = False) -> tuple[Any, Any]:
    """The single-device model, and what trains it: on one device the same."""
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
    """As ``made``, as they were then; the same ones each time, so that no step is traced anew."""
    single, model, values = _made_once(devices, average=average)
    state = [*model.variables, *model.optimizer.variables]
    for variable, value in zip(state, values, strict=True):
        variable.assign(value)
    return single, model


@dataclass
class Trained:
    """One training, with all that was seen and left behind.

    Attributes:
        single: The single-device model; on one device the model itself.
        model: What trains.
        folder: For files of this training.
        seen: What callbacks saw on the way.
        history: Of each epoch.
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

    def by_fit(self, callbacks: Sequence[Any], *, validates: bool) -> None:
        told = {"validation_data": batched(seed=1)} if validates else {}
        history = self.model.fit(
            batched(seed=0), epochs=EPOCHS, verbose=0, callbacks=list(callbacks), **told
        ).history
        self.history = [
            dict(zip(history, row, strict=True)) for row in zip(*history.values(), strict=True)
        ]

    def by_batches(self, callbacks: Sequence[Any], *, validates: bool) -> None:
        """The loop that people write round ``train_on_batch``, with the callbacks called in it."""
        called = keras.callbacks.CallbackList(list(callbacks), model=self.model, epochs=EPOCHS)
        called.on_train_begin()
        for epoch in range(EPOCHS):
            called.on_epoch_begin(epoch)
            self.model.reset_metrics()
            for number, (x, y) in enumerate(batches()):
                called.on_train_batch_begin(number)
                logs = self.model.train_on_batch(x, y, return_dict=True)
                called.on_train_batch_end(number, logs)
            if validates:
                told = self.model.evaluate(batched(seed=1), verbose=0, return_dict=True)
                logs = {**logs, **{f"val_{name}": value for name, value in told.items()}}
            self.history.append(logs)
            called.on_epoch_end(epoch, logs)
            if self.model.stop_training:
                break
        called.on_train_end(logs)

    def left(self) -> dict[str, list[Any]]:
        """Numbers to compare: what was logged, seen, and is there in the end."""
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
"""Makes the callbacks of a training; told what to monitor."""


def checkpoints(name: str, **words: Any) -> Kind:
    def made(trained: Trained, monitor: str) -> list[Any]:
        path = str(trained.folder / name)
        return [keras.callbacks.ModelCheckpoint(path, monitor=monitor, **words)]

    return made


def backups(save_freq: Any) -> Kind:
    kept = {"save_freq": save_freq, "delete_checkpoint": False, "double_checkpoint": True}

    def made(trained: Trained, monitor: str) -> list[Any]:
        return [keras.callbacks.BackupAndRestore(str(trained.folder / "backup"), **kept)]

    return made


def reading(act: Callable[[Trained], None]) -> Kind:
    """Acts in the middle of every epoch and at its end."""

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


# What falls is taken for worse: it stops in the second epoch, and goes back to the first.
WORSE: dict[str, Any] = {"mode": "max", "patience": 1}

KINDS: dict[str, Kind] = {
    "checkpoints every third batch": checkpoints("{epoch}-{batch}.keras", save_freq=3),
    "checkpoints every epoch": checkpoints("{epoch}.keras"),
    "the best checkpoint": checkpoints("best.keras", save_best_only=True),
    "checkpoints of weights every third batch": checkpoints(
        "{epoch}-{batch}.weights.h5", save_freq=3, save_weights_only=True
    ),
    "checkpoints of weights every epoch": checkpoints("{epoch}.weights.h5", save_weights_only=True),
    "a backup every third batch": backups(3),
    "a backup every epoch": backups("epoch"),
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


def told_by_files(folder: Path) -> dict[str, list[Any]]:
    """All numbers in each file of a training: weights, and the state of the optimizer."""
    found: dict[str, list[Any]] = {}
    for path in sorted(folder.rglob("*")):
        told = str(path.relative_to(folder))
        if path.suffix == ".keras":
            with zipfile.ZipFile(path) as stored, stored.open("model.weights.h5") as file:
                found |= _numbers_in(file, told)
        elif path.suffix == ".h5":
            with path.open("rb") as file:
                found |= _numbers_in(file, told)
    return found


def _numbers_in(file: IO[bytes], told: str) -> dict[str, list[Any]]:
    """By their names in the file, which say what of the model loads them."""
    numbers: dict[str, list[Any]] = {}

    def note(name: str, found: Any) -> None:
        if isinstance(found, h5py.Dataset):
            numbers[f"{told}: {name}"] = [found[()]]

    with h5py.File(file) as stored:
        stored.visititems(note)
    return numbers


def differing(some: dict[str, list[Any]], others: dict[str, list[Any]]) -> dict[str, float]:
    """The groups of numbers that are not the same, and by how much."""
    assert some.keys() == others.keys()
    far = {name: furthest(some[name], others[name]) for name in others}
    return {name: off for name, off in far.items() if not off <= CLOSE}


def trains_alike(left: Callable[[int], Sequence[Any]], several: int) -> bool:
    """Whether what a training leaves behind is the same on one device and on several."""
    return furthest(left(several), left(1)) <= CLOSE
