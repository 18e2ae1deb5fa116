"""Batches of one size, so that no GPU of a training is ever left without samples.

>>> from trainer_hooks.batches import fixed_batches
>>> [len(batch) for batch in fixed_batches(iter([]), 8)]
[]

Importing this brings no framework along; nor does calling it, beyond those in use.
"""

from __future__ import annotations

import sys
from typing import Any

from trainer_hooks.batches.batch_rule import checked_rule
from trainer_hooks.batches.leaves import array_of, is_a, is_array, leaves_of, map_leaves
from trainer_hooks.batches.rebatching import (
    ArraySamples,
    BatchedSamples,
    FixedBatches,
    IndexedBatches,
    rebatched,
)

__all__ = ["fixed_batches"]


def fixed_batches(
    data: Any,  # noqa: ANN401
    batch_size: int,
    multiple_of: int = 1,
    tail: str = "drop",
    *,
    reduction: str = "mean",
    shuffle: bool = False,
) -> Any:  # noqa: ANN401
    """The same samples in batches of exactly ``batch_size``, for ``fit`` on several GPUs.

    An odd last batch can leave a GPU with no sample at all, and the moving statistics of its
    BatchNorm layers NaN. Here it is one of

    ``"drop"``
        left out: up to ``batch_size - 1`` samples of each epoch are not seen.
    ``"repeat"``
        filled up with its own samples in turn: those count more than once.
    ``"pad"``
        filled up likewise, but the copies have a sample weight of 0, so that the loss and
        its gradients are those of the short batch. Keras divides a weighted loss by the
        number of *all* samples, so in the batch that was short the weights of the real
        samples are multiplied by ``batch_size`` / (real samples).

    ``"pad"`` is exact where losses are means (``reduction="sum_over_batch_size"``, Keras'
    default) by sample, step or pixel, as Keras' own are; to a loss that sums these up itself give
    sample weights of your own, which keep their shape. Losses that are sums need
    ``reduction="sum"``: then the weights of real samples stay as they are. With
    ``mean_with_sample_weight``, both are exact on one device, for one loss a sample. What differs
    from the short batch all the same: BatchNorm sees the copies. Metrics without weights count
    them: give ``weighted_metrics=``. Over an epoch the logged loss, and unless
    ``reduction="sum"`` the weighted metrics, count that batch as a whole one. With Keras'
    masks the loss is exact only if of the copies the same part is masked. All batches have
    sample weights, so Keras refuses ``class_weight``: multiply it in.

    Copies are for training. ``evaluate``, of ``validation_data`` too, would count them as samples,
    and refuses batches that have some: give it the data as they are. It does not know what
    another stage of tf.data has made of them, so do this last; ``prefetch_to_device`` may follow.

    What is given, and what comes back:

    * ``tf.data.Dataset`` of samples or of batches (which are batched anew): a dataset with a
      static batch size, and its cardinality where that can be known (not after a ``map`` over
      batches that may be short). Elements are samples where one part is a single number or the
      parts' first axes differ in length; they are batches where all first axes are unknown, or
      a ``batch`` stage is seen; else it is refused.
    * ``keras.utils.PyDataset``: another, with its workers, that tells it of each epoch. To know
      how many batches there are, the first and the last one are read once. All but the
      last must be equally large; if they are of ``batch_size``, each is read once an epoch.
    * torch ``DataLoader``: another over the same dataset, sampler and workers; ``tail``
      takes the place of its ``drop_last``. For an ``IterableDataset`` or a batch sampler of one's
      own, one that cuts and joins its batches in this process, without ``len()``.
    * A generator or another iterator of batches: a generator, for one pass; it may be endless.
    * Arrays ``(x, y)`` or ``(x, y, sample_weight)`` in a tuple, ``x`` alone, or a dict of inputs,
      each nested at will; and sequences of batches (a list, or anything with ``len()``
      and numbers): a ``PyDataset`` if Keras is imported, else the like of it.
    * Anything else that can be gone through: an object for ``for``, as often as its source.
      Keras' ``fit`` has no kind of data for that; its method ``forever()`` makes a generator for
      ``fit(..., steps_per_epoch=...)``.

    Batches are ``(inputs, targets)``, ``(inputs, targets, sample_weights)`` or inputs alone, with
    samples along the first axis; weights of one's own are kept. An empty source gives no batch.

    Args:
        data: See above.
        batch_size: Samples in each batch: of all GPUs together.
        multiple_of: How many GPUs share a batch; ``batch_size`` must be a multiple of it.
        tail: What to do with a short last batch: ``"drop"``, ``"repeat"`` or ``"pad"``.
        reduction: ``"mean"`` or ``"sum"``: how the losses are reduced that ``"pad"`` keeps exact.
        shuffle: For arrays only: cut them in a new order each epoch, by NumPy's common random
            numbers. (``fit`` itself shuffles the order of whole batches, not what is in them.)

    Raises:
        ValueError: A number or word is none that is allowed, or the data are of no kind above.

    Example:
        ::

            batches = fixed_batches((x, y), 256, multiple_of=4, tail="pad", shuffle=True)
            model.fit(batches, epochs=10)
    """
    rule = checked_rule(batch_size, multiple_of, tail, reduction)
    if is_arrays(data):
        return _for_keras(
            IndexedBatches(ArraySamples(map_leaves(array_of, data), shuffle=shuffle), rule)
        )
    if shuffle:
        raise ValueError(
            "shuffle=True is for arrays; shuffle other data where they are made, such as by "
            "tf.data's .shuffle() or DataLoader(shuffle=True)"
        )
    if is_a(data, "tensorflow", "data.Dataset"):
        from trainer_hooks.batches.tensorflow_datasets import fixed_dataset

        return fixed_dataset(data, rule)
    if is_a(data, "keras", "utils.PyDataset"):
        from trainer_hooks.batches.py_datasets import FixedFromPyDataset

        return FixedFromPyDataset(data, rule)
    if is_a(data, "torch", "utils.data.DataLoader"):
        from trainer_hooks.batches.torch_loaders import fixed_loader

        return fixed_loader(data, rule)
    return _from_batches(data, rule)


def is_arrays(data: object) -> bool:
    """Whether these are arrays as ``fit`` takes them; a list is one of batches."""
    if isinstance(data, tuple) and len(data) not in (1, 2, 3):
        return False
    if isinstance(data, list):
        return False
    leaves = leaves_of(data)
    return bool(leaves) and all(is_array(leaf) for leaf in leaves)


def _from_batches(data: Any, rule: Any) -> Any:  # noqa: ANN401
    is_other = isinstance(data, (str, bytes, dict, tuple)) or is_a(
        data, "tensorflow", "distribute.DistributedDataset"
    )
    if hasattr(data, "__next__"):
        return rebatched(data, rule)
    if hasattr(data, "__len__") and hasattr(data, "__getitem__") and not is_other:
        return _for_keras(IndexedBatches(BatchedSamples(data), rule))
    if hasattr(data, "__iter__") and not is_other:
        return FixedBatches(data, rule)
    raise ValueError(
        f"batches cannot be made of {type(data).__name__}: give a tf.data.Dataset (before it is "
        "distributed), a PyDataset, a DataLoader, arrays (x, y), or something that yields batches"
    )


def _for_keras(batches: IndexedBatches) -> Any:  # noqa: ANN401
    """What ``fit`` takes, where there is a ``fit``."""
    if sys.modules.get("keras") is None:
        return batches
    from trainer_hooks.batches.py_datasets import FixedPyDataset

    return FixedPyDataset(batches)
