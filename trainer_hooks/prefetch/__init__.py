"""The next batches are read, and brought to the device, while a step is at work.

>>> from trainer_hooks.prefetch import prefetch_to_device
>>> batches = [[1, 2], [3, 4]]
>>> prefetch_to_device(batches, depth=0)
Traceback (most recent call last):
ValueError: depth is how many batches are to be ready: a whole number of 1 or more, not 0

Importing this brings no framework along: each is spoken to in a file of its own,
which is imported when data for it comes.
"""

from __future__ import annotations

import operator
from typing import Any

from trainer_hooks.prefetch.kinds import kind_of

__all__ = ["prefetch_to_device"]


def prefetch_to_device(data: Any, depth: int = 2, device: Any = None) -> Any:  # noqa: ANN401
    """The same batches in the same order, the next of them ready before they are asked for.

    ============================  ==============================================================
    ``tf.data.Dataset``           TensorFlow's own: prefetched on the device. Must be the last
                                  stage. ``device="CPU:0"`` for ``multi_gpu_model`` and
                                  strategies: they send each GPU its own part from the host.
    iterable, on JAX              a thread reads ahead and calls ``jax.device_put``.
    ``DataLoader`` or iterable,   a thread reads ahead, pins the memory, and copies on a CUDA
    on torch                      stream of its own. Without CUDA it only reads ahead. (A
                                  ``DataLoader`` for JAX: say so, by its device.)
    Keras ``PyDataset``           a thread reads ahead in the order in which Keras will ask, on
                                  JAX and torch to the device. One with ``workers`` > 1 keeps
                                  Keras' queue: its threads then bring batches to the device.
    generator or iterator         as an iterable; what comes back can be iterated over once, too.
    any iterable, with Keras      a thread reads ahead; batches stay on the host, as Keras
    on TensorFlow                 brings them to the device itself.
    ============================  ==============================================================

    What comes back has the attributes of ``data`` that a loader has (``len()``,
    ``batch_size``, ``num_workers``, ...), is a ``DataLoader`` where that was one,
    and starts anew as often as ``data`` does. An error of ``data`` is raised
    where its batch would have come. Whoever stops early ends the reading: it
    waits for the batch that is just being read, for 5 seconds at most. (What is
    kept, as Keras on TensorFlow keeps a generator, may go on: ``close()`` it.)

    A batch is not copied on a CPU, and the next one is made while it is used:
    data that fills the same array again and again must hand out copies. It runs in
    another thread, so that what it draws from a random generator that the
    training draws from, too, may come in another order; the order of a shuffling
    ``DataLoader`` stays.

    Args:
        data: Batches: arrays or tensors, in tuples, lists and mappings however deep;
            on torch also objects that have ``.to``.
        depth: How many batches may be ready, or on their way, beside the one in
            use; each takes memory of the device. 1 suffices for a source of even
            pace, more for one with hiccups.
        device: Where to. On TensorFlow a name such as ``"GPU:0"``; on JAX a
            ``jax.Device``, a ``Sharding``, or a tree of these like a batch; on
            torch what ``torch.device`` takes. None: the first visible GPU, on
            JAX the default device; where there is none, batches are only
            read ahead, which a warning says once.

    Raises:
        ValueError: ``depth`` is less than 1, or there is no such device.
        TypeError: ``depth`` is no number, ``data`` no batches, ``device`` none of
            its framework; or ``data`` could be for several frameworks.
    """
    ahead = _checked_depth(depth)
    kind = kind_of(data, device)
    return kind.backend().prefetched(data, ahead, device)


def _checked_depth(depth: object) -> int:
    what = "depth is how many batches are to be ready: a whole number of 1 or more, not "
    try:
        if isinstance(depth, bool):
            raise TypeError
        whole = operator.index(depth)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{what}{depth!r}") from None
    if whole < 1:
        raise ValueError(f"{what}{whole}")
    return whole
