"""Which framework data is for, without importing any."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from enum import Enum
from importlib import import_module
from typing import Any, Final

from trainer_hooks.batches.batch_trees import is_a
from trainer_hooks.ring.guard import QuietWarningOnce


class Kind(Enum):
    """Kinds of data; the value is the module that handles it."""

    TF_DATA = "on_tensorflow"
    JAX = "on_jax"
    TORCH = "on_torch"
    PY_DATASET = "on_keras"
    HOST = "ahead"

    def backend(self) -> Any:  # noqa: ANN401 (a module, with ``prefetched``)
        """The module, which imports its framework."""
        return import_module(f"trainer_hooks.prefetch.{self.value}")


KIND_ON: Final = {"jax": Kind.JAX, "torch": Kind.TORCH}
"""The frameworks that can copy any batches to a device."""


def kind_of(data: Any, device: Any = None) -> Kind:  # noqa: ANN401
    """The kind of ``data``, which is not iterated over.

    Raises:
        TypeError: It yields no batches, or may be for JAX or for torch.
    """
    if is_a(data, "tensorflow", "data.Dataset"):
        return Kind.TF_DATA
    if is_a(data, "tensorflow", "distribute.DistributedDataset"):
        raise TypeError(
            "this data is spread over devices by a strategy, which prefetches it already: "
            "prefetch before it is distributed, with device='CPU:0'"
        )
    if is_a(data, "keras", "utils.PyDataset"):
        return Kind.PY_DATASET
    _refuse_what_is_no_data(data)
    if (kind := _kind_of_device(device)) is not None:
        return kind
    return Kind.TORCH if is_a(data, "torch", "utils.data.DataLoader") else _kind_that_runs()


def keras_backend() -> str | None:
    """Keras' backend: ``tensorflow``, ``jax`` or ``torch``; None if Keras is not imported."""
    keras = sys.modules.get("keras")
    try:
        return str(keras.backend.backend()) if keras is not None else None
    except AttributeError:  # partly imported, or another version
        return None


def _refuse_what_is_no_data(data: object) -> None:
    is_one_array = hasattr(data, "shape") and hasattr(data, "dtype")
    if is_one_array or isinstance(data, (str, bytes, bytearray, Mapping)):
        raise TypeError(
            f"data must yield batches, and a {type(data).__name__} is a single object: give a "
            "tf.data.Dataset, a DataLoader, a PyDataset, a list or a generator"
        )
    if isinstance(data, tuple) and data and all(hasattr(part, "shape") for part in data):
        raise TypeError(
            "data must yield batches, and a tuple of arrays does not: give "
            "fixed_batches((x, y), batch_size)"
        )
    if not isinstance(data, Iterable):
        raise TypeError(
            f"data must be iterable, and a {type(data).__name__} is not: give "
            "a tf.data.Dataset, a DataLoader, a PyDataset, a list or a generator"
        )


def _kind_of_device(device: object) -> Kind | None:
    """By the device: an object of its framework, or one of torch's names."""
    origin = type(device).__module__.partition(".")[0]
    if origin in ("jax", "jaxlib"):
        return Kind.JAX
    if origin == "torch" or (isinstance(device, str) and device.startswith("cuda")):
        return Kind.TORCH
    return None


def _kind_that_runs() -> Kind:
    backend = keras_backend()
    if backend is not None:
        return KIND_ON.get(backend, Kind.HOST)
    loaded = [kind for name, kind in KIND_ON.items() if name in sys.modules]
    if len(loaded) == 1:
        return loaded[0]
    if loaded:
        raise TypeError(
            "both JAX and torch are loaded, and this data may be for either: pass a device, "
            "such as jax.devices()[0] or torch.device('cuda')"
        )
    raise TypeError(
        "neither JAX, torch nor Keras is loaded, so there is no device for the batches: "
        "import the framework first"
    )


_warn = QuietWarningOnce()


def warn_of_no_gpu(framework: str) -> None:
    """Warn once that batches stay on the host."""
    _warn(
        f"prefetch_to_device: {framework} sees no GPU, so batches are only read ahead and "
        "stay on the host",
    )
