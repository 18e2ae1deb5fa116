"""Models and data whose last batch is odd, and what training on them leaves behind."""

from __future__ import annotations

import threading
from typing import Any

import keras
import numpy as np


class Towers(keras.layers.Layer):  # type: ignore[misc]
    """The multi-GPU model of old: each of two towers normalizes its own half of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = keras.layers.BatchNormalization(center=False, scale=False)

    def build(self, shape: Any) -> None:
        self.norm.build(shape)

    def call(self, rows: Any, training: bool = False) -> Any:
        half = keras.ops.shape(rows)[0] // 2
        parts = [self.norm(part, training=training) for part in (rows[:half], rows[half:])]
        return keras.ops.concatenate(parts)


def a_model(*layers: Any, loss: Any = "mse", rate: float = 0.1) -> Any:
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((3,)), *layers, keras.layers.Dense(1)])
    # TensorFlow takes longer to make a graph than these tests take.
    eagerly = keras.backend.backend() == "tensorflow"
    model.compile(optimizer=keras.optimizers.SGD(rate), loss=loss, run_eagerly=eagerly)
    return model


def rows_and_targets(count: int) -> tuple[Any, Any]:
    rows = np.random.default_rng(3).normal(size=(count, 3)).astype("float32")
    return rows, rows.sum(1, keepdims=True)


def moving_statistics(model: Any) -> Any:
    return np.concatenate([np.ravel(weight) for weight in model.non_trainable_weights])


class Source(keras.utils.PyDataset):  # type: ignore[misc]
    """Batches of a size, and which threads requested them."""

    def __init__(self, count: int, size: int, **workers: Any) -> None:
        super().__init__(**workers)
        self.rows, self.targets = rows_and_targets(count)
        self.size, self.ended, self.threads = size, 0, set[str]()
        self.asked: list[int] = []

    def __len__(self) -> int:
        return -(-len(self.rows) // self.size)

    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        self.threads.add(threading.current_thread().name)
        part = slice(index * self.size, (index + 1) * self.size)
        return self.rows[part], self.targets[part]

    def on_epoch_end(self) -> None:
        self.ended += 1


class Steps(keras.callbacks.Callback):  # type: ignore[misc]
    """Counts the steps of each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[int] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.steps.append(0)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps[-1] += 1


def iter_once(batch: Any) -> Any:
    """A generator of one batch, which fit uses as it is."""
    yield batch


def slowly(rows: Any) -> Any:
    """On JAX: passes rows on after some ten milliseconds of work for the device."""
    import jax

    small = 1e-3 * jax.numpy.ones((300, 300))
    product = jax.lax.fori_loop(0, 40, lambda _, many: many @ small, small)
    return rows + 0 * jax.lax.stop_gradient(product[0, 0])
