"""Reads the next batches and copies them to the device during a step.

>>> from trainer_hooks.prefetch import prefetch_to_device
>>> batches = [[1, 2], [3, 4]]
>>> prefetch_to_device(batches, depth=0)
Traceback (most recent call last):
ValueError: depth must be a number of batches, 1 or more, not 0

Importing this imports no framework: each has its own module, imported when it is needed.
"""

from __future__ import annotations

import operator
from typing import Any

from trainer_hooks.prefetch.kinds import kind_of

__all__ = ["prefetch_to_device"]


def prefetch_to_device(data: Any, depth: int = 2, device: Any = None) -> Any:  # noqa: ANN401
    """The same batches in the same order, with the next ones ready before they are needed.

    ============================  ==============================================================
    ``tf.data.Dataset``           TensorFlow's own: prefetched on the device. Must be the last
                                  stage. ``device="CPU:0"`` for ``multi_gpu_model`` and
                                  strategies, which send each GPU its part from the host.
    iterable, on JAX              a thread reads ahead and calls ``jax.device_put``.
    ``DataLoader`` or iterable,   a thread reads ahead, pins the memory, and copies on its own
    on torch                      CUDA stream. Without CUDA it only reads ahead. (For a
                                  ``DataLoader`` on JAX pass a JAX device.)
    Keras ``PyDataset``           a thread reads ahead in the order that Keras will use, on JAX
                                  and torch to the device. With ``workers`` > 1 Keras' queue
                                  stays: its threads then copy batches to the device.
    generator or iterator         like an iterable, for one pass.
    any iterable, with Keras      a thread reads ahead; batches stay on the host, because Keras
    on TensorFlow                 copies them to the device itself.
    ============================  ==============================================================

    The result has the attributes of ``data`` (``len()``, ``batch_size``, ``num_workers``, ...), is
    a ``DataLoader`` if ``data`` is one, and can be iterated over as often as ``data``. An error of
    ``data`` is raised in place of its batch. Stopping early ends the reading; this waits for the
    batch that is being read, for at most 5 seconds. (An iterator that is kept, as Keras on
    TensorFlow keeps a generator, may continue: ``close()`` it.)

    On a CPU batches are not copied, and the next one is made while the last is in use: data that
    reuses one array must yield copies. It is read in another thread, so a random generator that
    training also uses may give its numbers in another order; the order of a shuffling
    ``DataLoader`` is unchanged.

    Args:
        data: Batches: arrays or tensors, nested in tuples, lists and mappings; on torch also
            objects with ``.to``.
        depth: How many batches may be ready or in progress besides the one in use; each takes
            device memory. 1 is enough for a steady source, more for an irregular one.
        device: The target. On TensorFlow a name such as ``"GPU:0"``; on JAX a ``jax.Device``, a
            ``Sharding``, or a tree of these in the shape of a batch; on torch any argument of
            ``torch.device``. None: the first visible GPU, on JAX the default device; without one,
            batches are only read ahead, with one warning.

    Raises:
        ValueError: ``depth`` is less than 1, or there is no such device.
        TypeError: ``depth`` is no integer, ``data`` yields no batches, ``device`` does not belong
            to the framework, or ``data`` could be for several frameworks.
    """
    ahead = _checked_depth(depth)
    kind = kind_of(data, device)
    return kind.backend().prefetched(data, ahead, device)


def _checked_depth(depth: object) -> int:
    what = "depth must be a number of batches, 1 or more, not "
    try:
        if isinstance(depth, bool):
            raise TypeError
        count = operator.index(depth)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{what}{depth!r}") from None
    if count < 1:
        raise ValueError(f"{what}{count}")
    return count
