"""Batches of one size, so that no GPU is ever left without samples.

>>> from trainer_hooks.batches import fixed_batches
>>> [len(batch) for batch in fixed_batches(iter([]), 8)]
[]

Neither importing nor calling this imports a framework that is not in use.
"""

from __future__ import annotations

import sys
from typing import Any

from trainer_hooks.batches.batch_rule import checked_rule
from trainer_hooks.batches.batch_trees import array_of, is_a, is_array, leaves_of, map_leaves
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

    A short last batch can leave a GPU without any sample, which makes the moving statistics of
    its BatchNorm layers NaN. Here it is one of

    ``"drop"``
        left out: up to ``batch_size - 1`` samples of each epoch are not used.
    ``"repeat"``
        filled up with its own samples in turn, which then count more than once.
    ``"pad"``
        filled up likewise, but the copies have sample weight 0, so that the loss and its gradients
        are those of the short batch. Keras divides a weighted loss by the number of *all* samples,
        so the weights of the real samples in a short batch are multiplied by ``batch_size`` / (real
        samples).

    ``"pad"`` is exact where losses are means (``reduction="sum_over_batch_size"``, Keras' default)
    by sample, step or pixel, as Keras' own are; for a loss that does the sum itself, pass sample
    weights of your own, which keep their shape. Losses that are sums need ``reduction="sum"``,
    which leaves the weights of real samples unchanged. With ``mean_with_sample_weight``, both are
    exact on one device, with one loss per sample. Remaining differences from the short batch:
    BatchNorm uses the copies. Metrics without weights count them: use ``weighted_metrics=``. Over
    an epoch the logged loss, and unless ``reduction="sum"`` the weighted metrics, count that batch
    as a full one. With Keras' masks the loss is exact only if the same part of the copies is
    masked. All batches have sample weights, so Keras refuses ``class_weight``: multiply it in.

    Copies are for training. ``evaluate`` (also for ``validation_data``) would count them, and
    refuses batches with copies: pass it the original data. Later stages of tf.data hide the
    copies from it, so do this last; ``prefetch_to_device`` may follow.

    Accepted data and results:

    * ``tf.data.Dataset`` of samples or of batches (which are rebatched): a dataset with a static
      batch size, and its cardinality where it can be known (not after a ``map`` over batches that
      may be short). Elements are samples where one part is a single number or the parts' first
      axes differ in length; they are batches where all first axes are unknown, or there is a
      ``batch`` stage; otherwise they are refused.
    * ``keras.utils.PyDataset``: another one, with its workers, that forwards the epoch callbacks.
      To count batches, the first and the last one are read once. All but the last must be equally
      large; if they have ``batch_size`` samples, each is read once per epoch.
    * torch ``DataLoader``: another one over the same dataset, sampler and workers; ``tail``
      replaces its ``drop_last``. For an ``IterableDataset`` or a custom batch sampler, one without
      ``len()`` that rebatches in this process.
    * A generator or another iterator of batches: a generator, for one pass; it may be endless.
    * Arrays ``(x, y)`` or ``(x, y, sample_weight)`` in a tuple, ``x`` alone, or a dict of inputs,
      nested at will; and sequences of batches (a list, or anything with ``len()`` and indices): a
      ``PyDataset`` if Keras is imported, else something like it.
    * Any other iterable: an iterable, as often as its source. Keras' ``fit`` does not accept
      that; its method ``forever()`` makes a generator for ``fit(..., steps_per_epoch=...)``.

    Batches are ``(inputs, targets)``, ``(inputs, targets, sample_weights)`` or inputs alone, with
    samples along the first axis; existing weights are kept. An empty source yields no batch.

    Args:
        data: See above.
        batch_size: Samples in each batch, of all GPUs together.
        multiple_of: How many GPUs share a batch; ``batch_size`` must be a multiple of it.
        tail: What to do with a short last batch: ``"drop"``, ``"repeat"`` or ``"pad"``.
        reduction: ``"mean"`` or ``"sum"``: the reduction of the losses that ``"pad"`` keeps exact.
        shuffle: For arrays only: use a new order each epoch, from NumPy's global random state.
            (``fit`` itself shuffles the order of batches, not their samples.)

    Raises:
        ValueError: An argument is not allowed, or the data are none of the kinds above.

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
            "shuffle=True is for arrays; shuffle other data at their source, such as by tf.data's "
            ".shuffle() or DataLoader(shuffle=True)"
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
    """Whether these are arrays as ``fit`` accepts them; a list is a list of batches."""
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
    """A ``PyDataset`` for ``fit``, if Keras is imported."""
    if sys.modules.get("keras") is None:
        return batches
    from trainer_hooks.batches.py_datasets import FixedPyDataset

    return FixedPyDataset(batches)
