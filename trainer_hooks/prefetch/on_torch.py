"""Batches on torch: read ahead in a thread, copied on a stream of their own from pinned memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

import torch
from torch.utils.data import DataLoader

from trainer_hooks.prefetch.ahead import Host, ahead, read_ahead
from trainer_hooks.prefetch.kinds import keras_backend, say_that_there_is_no_gpu
from trainer_hooks.prefetch.torch_copies import CudaHost, PlainHost, TorchHost


class PrefetchedLoader(DataLoader):  # type: ignore[misc]
    """A loader whose batches are read ahead; all else is as in the loader it was made of.

    It is a ``DataLoader`` for those who look, as Keras does. The workers of the original are
    started, and what shuffles it is drawn, in the training's thread and at the
    very moments when it would be so without: the order stays what it was.
    """

    def __init__(self, loader: Any, depth: int, host: Host) -> None:  # noqa: ANN401
        # Not that of the base: this has no dataset of its own, nor workers.
        for name, value in (("_loader", loader), ("_depth", depth), ("_host", host)):
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name.startswith("__") or name == "_loader":  # a copy has none yet
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __setattr__(self, name: str, value: object) -> None:
        """As on the original, which alone is iterated over."""
        setattr(self._loader, name, value)

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        return read_ahead(iter(self._loader), self._depth, self._host, begin=_begun)


def prefetched(data: Iterable[Any], depth: int, device: object) -> Any:  # noqa: ANN401
    """Read ahead, and copy to a CUDA device where there is one.

    Raises:
        ValueError: There is no such device.
        TypeError: It is none of torch's.
    """
    host = host_for(device)
    if isinstance(data, DataLoader):
        return PrefetchedLoader(data, depth, host)
    return ahead(data, depth, host)


def host_for(device: Any) -> Host:  # noqa: ANN401
    """What brings batches to a device; on a CPU they are not even copied."""
    wanted = _default() if device is None else _known(device)
    if wanted.type == "cuda":
        return CudaHost(wanted, converts_arrays=keras_backend() == "torch")
    return TorchHost() if wanted.type == "cpu" else PlainHost(wanted)


def _begun(batches: Iterator[Any]) -> Iterator[Any]:
    """The same batches; the first is made now, and with it the seed of their order is drawn."""
    first = list(islice(batches, 1))
    return chain(_popped(first), batches)


def _popped(batches: list[Any]) -> Iterator[Any]:
    """Each once, held no longer."""
    while batches:
        yield batches.pop(0)


def _default() -> Any:  # noqa: ANN401
    if keras_backend() not in (None, "torch"):
        return torch.device("cpu")  # Keras takes the batches of a loader from the host
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    say_that_there_is_no_gpu("torch")
    return torch.device("cpu")


def _known(device: Any) -> Any:  # noqa: ANN401
    try:
        # A bare number is a GPU's, also where this torch has none to name.
        wanted = torch.device("cuda", device) if type(device) is int else torch.device(device)
    except (RuntimeError, TypeError) as error:
        message = f"{device!r} is no device of torch, which has names such as 'cuda:0' and 'cpu'"
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
