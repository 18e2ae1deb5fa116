"""Batches that only are read ahead: Keras on TensorFlow brings them to the device itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trainer_hooks.prefetch.ahead import Host, ahead


def prefetched(data: Iterable[Any], depth: int, device: object) -> Any:  # noqa: ANN401
    """Read ahead in a thread.

    Raises:
        ValueError: A device was asked for.
    """
    if device is not None:
        raise ValueError(
            f"only a tf.data.Dataset can be brought to {device!r} on TensorFlow: make one of "
            "this data, with tf.data.Dataset.from_generator, or leave the device out"
        )
    return ahead(data, depth, Host())
