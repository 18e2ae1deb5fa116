"""Batches on torch: read ahead in a thread, copied from pinned memory on a side stream."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from itertools import chain, islice
from typing import Any, Final, NamedTuple

import torch
from torch.utils.data import DataLoader

from trainer_hooks.prefetch.ahead import Host, ahead, read_ahead
from trainer_hooks.prefetch.kinds import keras_backend, warn_of_no_gpu
from trainer_hooks.ring.guard import captures_left_alone

_DTYPES_ALIKE: Final = frozenset(
    ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
)
"""NumPy types that torch has, too."""


class Copied(NamedTuple):
    """A batch being copied to a device, and the event at its end."""

    batch: Any
    arrived: Any


class NotCopied:
    """An object with ``.to`` and unknown tensors."""

    def __init__(self, thing: Any) -> None:  # noqa: ANN401
        self.thing = thing


class TorchHost(Host):
    """Leaves batches on the host; the reading thread has the training thread's gradient mode."""

    def around(self) -> AbstractContextManager[object]:
        """Whether gradients are recorded is per thread."""
        return _with_gradients(torch.is_grad_enabled())


class SynchronousHost(TorchHost):
    """Copies to devices without CUDA streams, synchronously in the thread."""

    def __init__(self, device: Any) -> None:  # noqa: ANN401
        self._device = device

    def copy_to_device(self, batch: Any) -> Any:  # noqa: ANN401
        return mapped(batch, lambda leaf: _moved(leaf, self._device))


class CudaHost(TorchHost):
    """Copies from pinned memory on a side stream, during computation on the current stream.

    The current stream waits for the copy, the host does not. ``record_stream`` keeps the memory
    of a batch until the current stream is done with it. An object with ``.to`` that is no
    container is copied on the current stream when it is returned, because its memory is unknown.

    Args:
        device: A CUDA device with an index.
        converts_arrays: Whether NumPy arrays become tensors, as Keras would convert them.
    """

    def __init__(self, device: Any, *, converts_arrays: bool) -> None:  # noqa: ANN401
        self._device = device
        self._converts_arrays = converts_arrays
        self._stream = torch.cuda.Stream(device)

    def around(self) -> AbstractContextManager[object]:
        """The training thread may capture a CUDA graph while this thread pins and copies."""
        return _with_captures_left_alone(super().around())

    def copy_to_device(self, batch: Any) -> Copied:  # noqa: ANN401
        with torch.cuda.stream(self._stream):
            copied = mapped(batch, self._copied)
            arrived = torch.cuda.Event()
            arrived.record(self._stream)
        return Copied(copied, arrived)

    def receive(self, copy: Copied) -> Any:  # noqa: ANN401
        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(copy.arrived)
        return mapped(copy.batch, lambda leaf: self._used_on(stream, leaf))

    def copy_and_wait(self, batch: Any) -> Any:  # noqa: ANN401
        with captures_left_alone():
            copy = self.copy_to_device(batch)
            copy.arrived.synchronize()  # the stream that will use it is unknown here
        return self.receive(copy)

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
    """The batch with every leaf changed, in new containers of the same types.

    Leaves are all objects but mappings, lists and tuples, and tuples with ``.to``.
    """
    if isinstance(batch, torch.Tensor):
        return change(batch)
    if isinstance(batch, Mapping):
        return _mapping_like(batch, {key: mapped(value, change) for key, value in batch.items()})
    if not isinstance(batch, (list, tuple)) or hasattr(batch, "to"):
        return change(batch)
    values = [mapped(value, change) for value in batch]
    if hasattr(batch, "_fields"):  # a named tuple
        return type(batch)(*values)
    return values if type(batch) is list else type(batch)(values)


def _mapping_like(batch: Any, values: dict[Any, Any]) -> Any:  # noqa: ANN401
    if type(batch) is dict:
        return values
    if not hasattr(batch, "update"):
        return type(batch)(values)
    twin = copy.copy(batch)  # with its other attributes
    twin.update(values)
    return twin


@contextmanager
def _with_captures_left_alone(mode: AbstractContextManager[object]) -> Iterator[None]:
    with captures_left_alone(), mode:
        yield


@contextmanager
def _with_gradients(recorded: bool) -> Iterator[None]:
    with torch.set_grad_enabled(recorded):
        yield


def _pinned(tensor: Any) -> Any:  # noqa: ANN401
    """Pinned memory can be copied asynchronously."""
    if tensor.device.type != "cpu" or tensor.layout != torch.strided or tensor.is_pinned():
        return tensor
    return tensor.pin_memory()


def _moved(thing: Any, device: Any) -> Any:  # noqa: ANN401
    if not hasattr(thing, "to"):
        return thing
    try:
        return thing.to(device, non_blocking=True)
    except TypeError:  # it has no such argument
        return thing.to(device)


class PrefetchedLoader(DataLoader):  # type: ignore[misc]
    """A loader whose batches are read ahead; otherwise like the original.

    It is a ``DataLoader`` for Keras' type checks. The original starts its workers and draws its
    shuffling seed in the training thread, at the same times as without: the order is unchanged.
    """

    def __init__(self, loader: Any, depth: int, host: Host) -> None:  # noqa: ANN401
        # Without super().__init__(): this has no dataset and no workers.
        for name, value in (("_loader", loader), ("_depth", depth), ("_host", host)):
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name.startswith("__") or name == "_loader":  # not set yet in a copy
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __setattr__(self, name: str, value: object) -> None:
        """Set it on the original, which is what is iterated over."""
        setattr(self._loader, name, value)

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        return read_ahead(iter(self._loader), self._depth, self._host, begin=_with_first_read)


def prefetched(data: Iterable[Any], depth: int, device: object) -> Any:  # noqa: ANN401
    """Read ahead, and copy to a CUDA device where there is one.

    Raises:
        ValueError: There is no such device.
        TypeError: Not a device of torch.
    """
    host = host_for(device)
    if isinstance(data, DataLoader):
        return PrefetchedLoader(data, depth, host)
    return ahead(data, depth, host)


def host_for(device: Any) -> Host:  # noqa: ANN401
    """The host for a device; on a CPU batches are not copied."""
    wanted = _default() if device is None else _known(device)
    if wanted.type == "cuda":
        return CudaHost(wanted, converts_arrays=keras_backend() == "torch")
    return TorchHost() if wanted.type == "cpu" else SynchronousHost(wanted)


def _with_first_read(batches: Iterator[Any]) -> Iterator[Any]:
    """Read the first batch now, which draws the seed of the order."""
    first = list(islice(batches, 1))
    return chain(_popped(first), batches)


def _popped(batches: list[Any]) -> Iterator[Any]:
    """Yield each without keeping it."""
    while batches:
        yield batches.pop(0)


def _default() -> Any:  # noqa: ANN401
    if keras_backend() not in (None, "torch"):
        return torch.device("cpu")  # Keras takes batches of a loader from the host
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    warn_of_no_gpu("torch")
    return torch.device("cpu")


def _known(device: Any) -> Any:  # noqa: ANN401
    try:
        # A number is a GPU, also where this torch sees none.
        wanted = torch.device("cuda", device) if type(device) is int else torch.device(device)
    except (RuntimeError, TypeError) as error:
        message = f"{device!r} is not a device of torch, such as 'cuda:0' or 'cpu'"
        raise (TypeError if isinstance(error, TypeError) else ValueError)(message) from None
    if wanted.type != "cuda":
        return wanted
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count == 0:
        raise ValueError(f"there is no device {str(wanted)!r}: torch sees no GPU")
    index = torch.cuda.current_device() if wanted.index is None else wanted.index
    if index >= count:
        raise ValueError(
            f"there is no device {str(wanted)!r}: torch sees {count}, the last 'cuda:{count - 1}'"
        )
    return torch.device("cuda", index)
