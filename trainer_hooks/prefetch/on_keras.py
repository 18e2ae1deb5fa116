"""A Keras ``PyDataset``, read ahead in the order that Keras will use."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import keras

from trainer_hooks.prefetch.ahead import HOST_NAMES, Host, read_ahead
from trainer_hooks.prefetch.kinds import KIND_ON, keras_backend
from trainer_hooks.ring.guard import quietly
from trainer_hooks.taps.keras_private import order_of


class PrefetchedPyDataset(keras.utils.PyDataset):  # type: ignore[misc]
    """A ``PyDataset`` whose next batches are read during a step.

    Keras may shuffle batches, and requests them by index: its generator, which calls
    ``__getitem__``, knows the next indices. Keras' own queue, after reading the first batch for
    its shapes, returns some batches twice and others never on JAX and torch; where ``data`` has
    workers, that queue is the user's choice and stays.
    """

    def __init__(self, data: Any, depth: int, host: Host) -> None:  # noqa: ANN401
        self._data = data
        self._depth = depth
        # Worker processes have no device.
        self._host = Host() if data.use_multiprocessing else host
        self._epoch: _Epoch | None = None
        super().__init__(
            workers=data.workers,
            use_multiprocessing=data.use_multiprocessing,
            max_queue_size=data.max_queue_size,
        )

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name.startswith("__") or name == "_data":  # not set yet in a copy
            raise AttributeError(name)
        return getattr(self._data, name)

    @property
    def num_batches(self) -> int | None:
        batches: int | None = self._data.num_batches
        return batches

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> Any:  # noqa: ANN401
        order = quietly(order_of, sys._getframe(1))
        if order is None:  # a worker of Keras' queue, or a custom loop
            return self._host.copy_and_wait(self._data[index])
        if self._epoch is None or not self._epoch.continues_with(index, order):
            self._end_epoch()
            self._epoch = _Epoch(self._data, index, order, self._depth, self._host)
        return self._epoch.next_batch()

    def on_epoch_begin(self) -> None:
        self._data.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self._end_epoch()  # the next epoch may change the data
        self._data.on_epoch_end()

    def _end_epoch(self) -> None:
        if self._epoch is not None:
            self._epoch.batches.close()
        self._epoch = None


class _Epoch:
    """The batches of one Keras generator, from one index on.

    Args:
        data: A ``PyDataset``.
        index: The index of the first batch.
        order: All indices; a ``count`` if endless.
    """

    def __init__(
        self,
        data: Any,  # noqa: ANN401
        index: int,
        order: Sequence[int] | count[int],
        depth: int,
        host: Host,
    ) -> None:
        self._order = order
        self._indices = _from(index, order)
        self._next = next(self._indices)
        to_read = _from(index, order)
        self.batches = read_ahead((data[number] for number in to_read), depth, host)

    def continues_with(self, index: int, order: Sequence[int] | count[int]) -> bool:
        """Whether this is the next index, of the same generator."""
        same = order is self._order or (isinstance(order, count) and isinstance(self._order, count))
        return same and index == self._next

    def next_batch(self) -> Any:  # noqa: ANN401
        """The next batch; raises the error of its source."""
        self._next = next(self._indices, -1)
        return next(self.batches)


def _from(index: int, order: Sequence[int] | count[int]) -> Iterator[int]:
    if isinstance(order, count):
        return count(index)
    return iter(order[order.index(index) :])


def prefetched(data: Any, depth: int, device: object) -> Any:  # noqa: ANN401
    """Read batches ahead, to the device of the backend.

    Raises:
        ValueError: There is no such device, or Keras runs on TensorFlow, which takes these batches
            from the host.
        TypeError: Not a device of the backend.
    """
    kind = KIND_ON.get(keras_backend() or "")
    if kind is not None:
        return PrefetchedPyDataset(data, depth, kind.backend().host_for(device))
    if device not in HOST_NAMES:
        raise ValueError(
            f"a PyDataset cannot be prefetched to {device!r} where Keras runs on TensorFlow, which "
            "copies batches itself: leave the device out"
        )
    return PrefetchedPyDataset(data, depth, Host())
