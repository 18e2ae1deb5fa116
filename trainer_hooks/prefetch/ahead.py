"""What stands in the place of data that is read ahead, and what a framework adds to that.

Of itself it leaves batches on the host: Keras on TensorFlow brings them to the device itself.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from trainer_hooks.prefetch.reader import NoMoreBatchesError, Reader

Begin = Callable[[Iterator[Any]], Iterator[Any]]

HOST_NAMES: Final = (None, "CPU:0", "/CPU:0")
"""Where such data are in any case; what it is called for data that go elsewhere is fine, too."""


class Host:
    """Batches stay where they are. What a framework does otherwise, it overrides."""

    def around(self) -> AbstractContextManager[object]:
        """What the reading thread is inside of; called in the training's thread."""
        return nullcontext()

    def place(self, batch: Any) -> Any:  # noqa: ANN401
        """Start to bring a batch to the device; called in the reading thread."""
        return batch

    def receive(self, placed: Any) -> Any:  # noqa: ANN401
        """The batch, as it may be used now; called in the training's thread."""
        return placed

    def place_and_wait(self, batch: Any) -> Any:  # noqa: ANN401
        """Bring a batch there; called in a thread that hands it on by means of its own."""
        return self.receive(self.place(batch))


def read_ahead(
    source: Iterator[Any], depth: int, host: Host, begin: Begin = iter
) -> Generator[Any, None, None]:
    """A generator over an iterator whose next batches are read in a thread.

    Nothing is read before the first is asked for. Closing it, or letting go of
    it, ends the thread.

    Args:
        source: Where batches come from.
        depth: How many may be ready or being made, beside the one handed out.
        host: What is done with each.
        begin: Is handed the source in the training's thread when the first batch is asked for,
            and gives what the reading thread goes on with.
    """
    reader = Reader(begin(source), depth, host.place, host.around())
    del source  # the thread closes it, where it is a generator
    try:
        while True:
            try:
                placed = [reader.take()]
            except NoMoreBatchesError:
                return
            # Nothing here holds what is handed out: its memory is the caller's to free.
            yield host.receive(placed.pop())
    finally:
        reader.stop()


class Ahead:
    """Something to iterate over as often as the original; its attributes are the original's."""

    def __init__(self, data: Iterable[Any], depth: int, host: Host) -> None:
        self._data = data
        self._depth = depth
        self._host = host

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name.startswith("__") or name == "_data":  # a copy has none yet
            raise AttributeError(name)
        return getattr(self._data, name)

    def __iter__(self) -> Iterator[Any]:
        """The original is started here, in the caller's thread."""
        return read_ahead(iter(self._data), self._depth, self._host)


class SizedAhead(Ahead):
    """... that has a length."""

    def __len__(self) -> int:
        return len(self._data)  # type: ignore[arg-type]


def ahead(data: Iterable[Any], depth: int, host: Host) -> Any:  # noqa: ANN401
    """Batches read ahead: a generator of an iterator, else something to iterate over."""
    if isinstance(data, (types.GeneratorType, Iterator)):
        return read_ahead(iter(data), depth, host)
    return (SizedAhead if hasattr(data, "__len__") else Ahead)(data, depth, host)


def prefetched(data: Iterable[Any], depth: int, device: object) -> Any:  # noqa: ANN401
    """Read ahead in a thread.

    Raises:
        ValueError: A device other than the host was asked for.
    """
    if device not in HOST_NAMES:
        raise ValueError(
            f"only a tf.data.Dataset can be brought to {device!r} on TensorFlow: make one of "
            "this data, with tf.data.Dataset.from_generator, or leave the device out"
        )
    return ahead(data, depth, Host())
