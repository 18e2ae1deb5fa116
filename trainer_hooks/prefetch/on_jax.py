"""Batches on JAX: a thread reads ahead and starts asynchronous copies."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import numpy as np

from trainer_hooks.prefetch.ahead import Host, ahead
from trainer_hooks.prefetch.kinds import keras_backend


class JaxHost(Host):
    """Puts the arrays of a batch on one device or several.

    Args:
        device: As for ``jax.device_put``; None for the default device without committing the
            arrays to it: a step may use them anywhere.
    """

    def __init__(self, device: Any = None) -> None:  # noqa: ANN401
        self._device = device

    def around(self) -> AbstractContextManager[object]:
        """The default device is per thread: use the training thread's."""
        default = jax.config.jax_default_device
        return nullcontext() if default is None else jax.default_device(default)

    def copy_to_device(self, batch: Any) -> Any:  # noqa: ANN401
        device = self._device
        if device is None or isinstance(device, (jax.Device, jax.sharding.Sharding)):
            return jax.tree.map(lambda leaf: _put(leaf, device), batch)
        return jax.device_put(batch, device)  # a tree in the shape of the batch


def prefetched(data: Iterable[Any], depth: int, device: object) -> Any:  # noqa: ANN401
    """Read ahead, and put on a device.

    Raises:
        TypeError: Not a device of JAX.
    """
    return ahead(data, depth, host_for(device))


def host_for(device: object) -> Host:
    """With a Keras distribution, which places batches itself, they stay on the host."""
    if device is not None:
        _check(device)
    elif keras_backend() == "jax" and sys.modules["keras"].distribution.distribution() is not None:
        return Host()
    return JaxHost(device)


def _put(leaf: Any, device: Any) -> Any:  # noqa: ANN401
    """Numbers, strings and None stay unchanged: a step may need them so."""
    if isinstance(leaf, (jax.Array, np.ndarray, np.generic)) and leaf.dtype.kind not in "OSU":
        return jax.device_put(leaf, device)
    return leaf


def _check(device: object) -> None:
    known = (jax.Device, jax.sharding.Sharding)
    leaves = jax.tree.leaves(device, is_leaf=lambda leaf: isinstance(leaf, known))
    if leaves and all(isinstance(leaf, known) for leaf in leaves):
        return
    raise TypeError(
        f"{device!r} is not a device of JAX: give one of jax.devices(), a Sharding, or a tree of "
        "these in the shape of a batch"
    )
