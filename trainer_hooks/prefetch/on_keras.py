"""A ``PyDataset`` of Keras, read ahead in the order in which Keras is about to ask for it."""

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
    """Another ``PyDataset``, whose next batches are read while a step is at work.

    Keras may shuffle the order of batches, and asks for them by number: its
    generator, which calls ``__getitem__``, knows the numbers to come. Keras has
    a queue of its own, too, but after the look at the first batch
    (to learn shapes) it hands out on JAX and torch some batches twice and others never; where
    ``data`` has workers, that queue is the user's choice, and stays as it is.
    """

    def __init__(self, data: Any, depth: int, host: Host) -> None:  # noqa: ANN401
        self._data = data
        self._depth = depth
        # A process of a worker has no device: that belongs to the training's.
        self._host = Host() if data.use_multiprocessing else host
        self._epoch: _Epoch | None = None
        super().__init__(
            workers=data.workers,
            use_multiprocessing=data.use_multiprocessing,
            max_queue_size=data.max_queue_size,
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
        order = quietly(order_of, sys._getframe(1))
        if order is None:  # a worker of Keras' queue, or a loop of one's own
            return self._host.place_and_wait(self._data[index])
        if self._epoch is None or not self._epoch.goes_on_with(index, order):
            self._end_epoch()
            self._epoch = _Epoch(self._data, index, order, self._depth, self._host)
        return self._epoch.take()

    def on_epoch_begin(self) -> None:
        self._data.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self._end_epoch()  # or it would read what the next epoch may change
        self._data.on_epoch_end()

    def _end_epoch(self) -> None:
        if self._epoch is not None:
            self._epoch.batches.close()
        self._epoch = None


class _Epoch:
    """The batches of one generator of Keras, from one of them on.

    Args:
        data: A ``PyDataset``.
        index: The number of the first.
        order: The numbers of all of them; a ``count`` of those that have no end.
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
        self._to_ask = _from(index, order)
        self._next = next(self._to_ask)
        to_read = _from(index, order)
        self.batches = read_ahead((data[number] for number in to_read), depth, host)

    def goes_on_with(self, index: int, order: Sequence[int] | count[int]) -> bool:
        """Whether this is what comes next, and by the same generator."""
        same = order is self._order or (isinstance(order, count) and isinstance(self._order, count))
        return same and index == self._next

    def take(self) -> Any:  # noqa: ANN401
        """The batch that comes next; what its source raised, is raised here."""
        self._next = next(self._to_ask, -1)
        return next(self.batches)


def _from(index: int, order: Sequence[int] | count[int]) -> Iterator[int]:
    if isinstance(order, count):
        return count(index)
    return iter(order[order.index(index) :])


def prefetched(data: Any, depth: int, device: object) -> Any:  # noqa: ANN401
    """Its batches read ahead, on the device of the backend.

    Raises:
        ValueError: There is no such device, or Keras runs on TensorFlow, which takes such
            batches on the host only.
        TypeError: It is no device of the backend.
    """
    kind = KIND_ON.get(keras_backend() or "")
    if kind is not None:
        return PrefetchedPyDataset(data, depth, kind.backend().host_for(device))
    if device not in HOST_NAMES:
        raise ValueError(
            f"a PyDataset cannot be brought to {device!r} where Keras runs on TensorFlow, which "
            "does so itself: leave the device out"
        )
    return PrefetchedPyDataset(data, depth, Host())
