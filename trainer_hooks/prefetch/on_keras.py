"""A ``PyDataset`` of Keras, which Keras' own queue reads ahead."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import Any

import keras

from trainer_hooks.prefetch.ahead import Host
from trainer_hooks.prefetch.kinds import Kind, keras_backend

_BACKENDS = {"jax": Kind.JAX, "torch": Kind.TORCH}
_FEWEST_WORKERS_OF_A_QUEUE = 2
"""Keras fetches with fewer threads than that only while a step waits."""


class PrefetchedPyDataset(keras.utils.PyDataset):  # type: ignore[misc]
    """Another ``PyDataset`` with a queue in front of it; all else is as in the other.

    Where the other had no queue, its batches are still made one at a time. Where it has
    processes, they hand batches on as they are: a device belongs to the training's.
    """

    def __init__(self, data: Any, depth: int, host: Host) -> None:  # noqa: ANN401
        self._data = data
        self._host = Host() if data.use_multiprocessing else host
        one_at_a_time = data.workers < _FEWEST_WORKERS_OF_A_QUEUE and not data.use_multiprocessing
        self._turn: AbstractContextManager[object] = Lock() if one_at_a_time else nullcontext()
        fewest = 1 if data.use_multiprocessing else _FEWEST_WORKERS_OF_A_QUEUE
        super().__init__(
            workers=max(fewest, data.workers),
            use_multiprocessing=data.use_multiprocessing,
            # One more is made already while it waits for room, and a queue of 0 has no end.
            max_queue_size=max(1, depth - 1),
        )

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name.startswith("__") or name == "_data":  # a copy has none yet
            raise AttributeError(name)
        return getattr(self._data, name)

    @property
    def num_batches(self) -> int | None:
        batches: int | None = self._data.num_batches
        return batches

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> Any:  # noqa: ANN401
        with self._turn:
            batch = self._data[index]
        return self._host.place_and_wait(batch)

    def on_epoch_begin(self) -> None:
        self._data.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self._data.on_epoch_end()


def prefetched(data: Any, depth: int, device: object) -> Any:  # noqa: ANN401
    """Its batches by Keras' queue, on the device of the backend.

    Raises:
        ValueError: There is no such device, or Keras runs on TensorFlow, which takes such
            batches on the host only.
        TypeError: It is no device of the backend.
    """
    kind = _BACKENDS.get(keras_backend() or "")
    if kind is not None:
        return PrefetchedPyDataset(data, depth, kind.backend().host_for(device))
    if device is not None:
        raise ValueError(
            f"a PyDataset cannot be brought to {device!r} where Keras runs on TensorFlow, which "
            "does so itself: leave the device out"
        )
    return PrefetchedPyDataset(data, depth, Host())
