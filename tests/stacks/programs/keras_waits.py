"""What Keras waits for, on the backend of ``KERAS_BACKEND``."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np

from tests.stacks.programs.cycle import run_in_turn, turn

INPUTS, LABELS = np.zeros((400, 8), "float32"), np.zeros((400, 1), "float32")


class Slow(keras.utils.PyDataset):  # type: ignore[misc, unused-ignore]
    def __len__(self) -> int:
        return 4

    def __getitem__(self, number: int) -> Any:
        time.sleep(0.1)
        return INPUTS[:4], LABELS[:4]


class Sleeps(keras.callbacks.Callback):  # type: ignore[misc, unused-ignore]
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        time.sleep(0.1)


def py_dataset() -> None:
    MODEL.fit(Slow(), verbose=0)


def py_dataset_with_workers() -> None:
    MODEL.fit(Slow(workers=2), verbose=0)


def callback() -> None:
    MODEL.fit(INPUTS[:4], LABELS[:4], epochs=3, verbose=0, callbacks=[Sleeps()])


def evaluate() -> None:
    for _ in turn():
        MODEL.evaluate(INPUTS, LABELS, verbose=0, batch_size=2)


def predict() -> None:
    for _ in turn():
        MODEL.predict(INPUTS, verbose=0, batch_size=2)


def save() -> None:
    for _ in turn():
        MODEL.save(FOLDER / "model.keras")


if __name__ == "__main__":
    MODEL = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
    MODEL.compile("sgd", "mse")
    with tempfile.TemporaryDirectory() as name:
        FOLDER = Path(name)
        run_in_turn(py_dataset, py_dataset_with_workers, callback, evaluate, predict, save)
