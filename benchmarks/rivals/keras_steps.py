"""Keras' calls of a step, over and over, around a step that does nothing.

A step as Keras makes it on JAX and on torch: its own ``CallbackList``, the
iterator that the training run fetches from, and the model's train function, called
in the order of ``fit``. No threads and no tensors, so that what a hook adds to
the thread that trains is a difference of microseconds and no more.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import keras

WARM_UP = 200
Batch = tuple[Any, Any]


class _Feeder:
    """As Keras' iterator over an epoch: its adapter makes the loader."""

    def __init__(self, batch: Batch) -> None:
        self.data_adapter = _Adapter(batch)


class _Adapter:
    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def get_torch_dataloader(self) -> _Loader:
        return _Loader(self._batch)


class _Loader:
    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def __iter__(self) -> Iterator[Batch]:
        return itertools.repeat(self._batch)


def loop_us(model: Any, callbacks: list[Any], batch: Batch, steps: int) -> float:  # noqa: ANN401
    """CPU microseconds of the thread that trains, a step."""
    model.train_function = None
    model.make_train_function()
    listed = keras.callbacks.CallbackList(
        callbacks, model=model, params={"steps": WARM_UP + steps, "verbose": 0, "epochs": 1}
    )
    return _fit(model, listed, _Feeder(batch), steps) / steps / 1e3


def _fit(
    model: Any,  # noqa: ANN401
    callbacks: Any,  # noqa: ANN401
    epoch_iterator: _Feeder,  # hooks find it by its name, as in Keras' own ``fit``
    steps: int,
) -> int:
    """Nanoseconds of CPU that the steps took."""
    callbacks.on_train_begin()
    callbacks.on_epoch_begin(0)
    batches = iter(epoch_iterator.data_adapter.get_torch_dataloader())
    one_step = {"jax": _step_on_jax, "torch": _step_on_torch}[keras.backend.backend()]
    began_ns = 0
    for step in range(WARM_UP + steps):
        if step == WARM_UP:
            began_ns = time.thread_time_ns()
        one_step(model, callbacks, batches, step)
    spent_ns = time.thread_time_ns() - began_ns
    callbacks.on_epoch_end(0, {})
    callbacks.on_train_end({})
    return spent_ns


def _step_on_jax(model: Any, callbacks: Any, batches: Iterator[Batch], step: int) -> None:  # noqa: ANN401
    callbacks.on_train_batch_begin(step)
    logs, _ = model.train_function(None, batches)
    if not callbacks._async_train:  # else it is on another thread
        callbacks.on_train_batch_end(step, logs)


def _step_on_torch(model: Any, callbacks: Any, batches: Iterator[Batch], step: int) -> None:  # noqa: ANN401
    data = [next(batches)]
    callbacks.on_train_batch_begin(step)
    logs = model.train_function(data)
    if not callbacks._async_train:
        callbacks.on_train_batch_end(step, logs)
