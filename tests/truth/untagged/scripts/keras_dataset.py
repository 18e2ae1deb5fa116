"""Trains a Keras model from a PyDataset that makes each batch when it is asked."""

from __future__ import annotations

from typing import Any

import keras
import numpy

from tests.truth.untagged import board


class Waves(keras.utils.PyDataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 40

    def __getitem__(self, number: int) -> tuple[numpy.ndarray, numpy.ndarray]:
        rng = numpy.random.default_rng(number)
        waves = rng.normal(size=(64, 1 << 15))
        for _ in range(6):
            waves = numpy.fft.irfft(numpy.fft.rfft(waves) * 0.9)
        return waves[:, :32].astype("float32"), waves[:, :1].astype("float32")


class OnTheBoard(keras.Model):  # type: ignore[misc]
    """Its step takes the time of the board's work."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, rows: Any) -> Any:
        return self.dense(rows)

    def train_step(self, data: Any) -> Any:
        board.does("step")
        board.begins()
        results = super().train_step(data)
        board.compute(0.3)
        board.does("input_wait")
        return results


model = OnTheBoard()
model.compile(loss="mse", run_eagerly=True)
model.fit(Waves(), epochs=1000, verbose=0, shuffle=False)
