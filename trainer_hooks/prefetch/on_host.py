"""Batches that only are read ahead: Keras on TensorFlow brings them to the device itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from trainer_hooks.prefetch.ahead import Host, ahead

HOST_NAMES: Final = (None, "CPU:0", "/CPU:0")
"""Where such data are in any case; what it is called for data that go elsewhere is fine, too."""


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
