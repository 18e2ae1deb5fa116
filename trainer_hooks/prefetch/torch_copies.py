"""Copies of nested batches to a device, and the streams that CUDA makes them on."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, NamedTuple

import torch

from trainer_hooks.prefetch.ahead import Host

_DTYPES_ALIKE: Final = frozenset(
    ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
)
"""Of NumPy arrays: those that torch has, too."""


class Copied(NamedTuple):
    """A batch on its way to a device, and the event that it has arrived."""

    batch: Any
    arrived: Any


class NotCopied:
    """An object that alone knows what tensors it is made of."""

    def __init__(self, thing: Any) -> None:  # noqa: ANN401
        self.thing = thing


class TorchHost(Host):
    """Batches stay where they are, read in a thread that is in the mode of the training's."""

    def around(self) -> AbstractContextManager[object]:
        """Each thread has a mode of its own: recording gradients, or not."""
        return _with_gradients(torch.is_grad_enabled())


class PlainHost(TorchHost):
    """For devices without streams of CUDA: the thread copies, and has copied when it is done."""

    def __init__(self, device: Any) -> None:  # noqa: ANN401
        self._device = device

    def place(self, batch: Any) -> Any:  # noqa: ANN401
        return mapped(batch, lambda leaf: _moved(leaf, self._device))


class CudaHost(TorchHost):
    """Copies from pinned memory on a side stream, while the training's own stream computes.

    The training's stream waits for the copy, the host does not. Memory of a
    batch is not given to the next one before the training's stream is done
    with it: that is what ``record_stream`` is for. An object that has ``.to``
    and is no container is copied on the training's stream, when it is
    handed out: nobody else can tell which memory it takes.

    Args:
        device: A CUDA device with an index.
        converts_arrays: Whether NumPy arrays become tensors, as Keras would make them.
    """

    def __init__(self, device: Any, *, converts_arrays: bool) -> None:  # noqa: ANN401
        self._device = device
        self._converts_arrays = converts_arrays
        self._stream = torch.cuda.Stream(device)

    def place(self, batch: Any) -> Copied:  # noqa: ANN401
        with torch.cuda.stream(self._stream):
            copied = mapped(batch, self._copied)
            arrived = torch.cuda.Event()
            arrived.record(self._stream)
        return Copied(copied, arrived)

    def receive(self, placed: Copied) -> Any:  # noqa: ANN401
        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(placed.arrived)
        return mapped(placed.batch, lambda leaf: self._used_on(stream, leaf))

    def place_and_wait(self, batch: Any) -> Any:  # noqa: ANN401
        placed = self.place(batch)
        placed.arrived.synchronize()  # this thread's wait: which stream will use it is not known
        return self.receive(placed)

    def _copied(self, leaf: Any) -> Any:  # noqa: ANN401
        if self._converts_arrays and str(getattr(leaf, "dtype", "")) in _DTYPES_ALIKE:
            leaf = torch.as_tensor(leaf)
        if isinstance(leaf, torch.Tensor):
            return _pinned(leaf).to(self._device, non_blocking=True)
        if hasattr(leaf, "to"):
            return NotCopied(leaf.pin_memory() if hasattr(leaf, "pin_memory") else leaf)
        return leaf

    def _used_on(self, stream: Any, leaf: Any) -> Any:  # noqa: ANN401
        if isinstance(leaf, NotCopied):
            return _moved(leaf.thing, self._device)
        if isinstance(leaf, torch.Tensor) and leaf.device.type == self._device.type:
            leaf.record_stream(stream)
        return leaf


def mapped(batch: Any, change: Callable[[Any], Any]) -> Any:  # noqa: ANN401
    """The batch with every leaf changed; its containers are new ones of the same types.

    A leaf is what is no mapping, list or tuple, or has ``.to`` beside being a tuple.
    """
    if isinstance(batch, torch.Tensor):
        return change(batch)
    if isinstance(batch, Mapping):
        return _mapping_like(batch, {key: mapped(value, change) for key, value in batch.items()})
    if not isinstance(batch, (list, tuple)) or hasattr(batch, "to"):
        return change(batch)
    values = [mapped(value, change) for value in batch]
    if hasattr(batch, "_fields"):  # a named tuple takes them one by one
        return type(batch)(*values)
    return values if type(batch) is list else type(batch)(values)


def _mapping_like(batch: Any, values: dict[Any, Any]) -> Any:  # noqa: ANN401
    if type(batch) is dict:
        return values
    if not hasattr(batch, "update"):
        return type(batch)(values)
    twin = copy.copy(batch)  # with whatever else it holds
    twin.update(values)
    return twin


@contextmanager
def _with_gradients(recorded: bool) -> Iterator[None]:
    with torch.set_grad_enabled(recorded):
        yield


def _pinned(tensor: Any) -> Any:  # noqa: ANN401
    """In memory that a copy can be made of while the host does something else."""
    if tensor.device.type != "cpu" or tensor.layout != torch.strided or tensor.is_pinned():
        return tensor
    return tensor.pin_memory()


def _moved(thing: Any, device: Any) -> Any:  # noqa: ANN401
    if not hasattr(thing, "to"):
        return thing
    try:
        return thing.to(device, non_blocking=True)
    except TypeError:  # it was never told of such a word
        return thing.to(device)
