"""Splits batches over replicas, inside the graph of a step.

The ratios are in a variable, so that new ratios need no new graph. The arithmetic is that of
``gpumon.core.attribution.batch_shares.split_counts``, in TensorFlow's operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import keras
import tensorflow as tf

from gpumon.core.attribution.batch_shares import checked_ratios, whole_ratios
from trainer_hooks.taps.keras_private import mask_of, masked

Tensor: TypeAlias = Any
"""A tensor, eager or in a graph."""

Tensors: TypeAlias = Any
"""One tensor, or a list, tuple or dictionary of structures; ``None`` for none."""

Setting: TypeAlias = Any
"""What Keras' own methods take or return, passed on unchanged."""


class Slices(NamedTuple):
    """How one batch of ``size`` samples is split; tensors of shape (replicas,) except ``size``.

    A replica without a sample borrows one, because layers and losses do not support empty
    batches; it has weight 0 and ``is_fed`` 0.

    Attributes:
        size: int64 scalar, samples in the batch.
        starts: int64, first sample of each replica.
        counts: int64, samples of each replica that count; they add up to ``size``.
        lengths: int64, samples that each replica gets: ``counts``, but at least 1.
        weights: float32, ``counts / size``: each replica's part of the mean over the batch.
        is_fed: float32, 1 where the replica has a sample of its own, else 0.
    """

    size: Tensor
    starts: Tensor
    counts: Tensor
    lengths: Tensor
    weights: Tensor
    is_fed: Tensor


class ReplicaPart(NamedTuple):
    """The position and weight of one replica's part of a batch; scalar tensors.

    Attributes:
        replica: uint32, its number.
        weight: float32, its part of the mean over the batch, 0 to 1.
        in_average: float32, its part of an average over the replicas that have a sample.
    """

    replica: Tensor
    weight: Tensor
    in_average: Tensor


class BatchSplit:
    """Splits batches by ratios that may change between runs of a compiled step."""

    def __init__(self, ratios: Sequence[float]) -> None:
        self._ratios = tuple(ratios)
        with tf.init_scope(), tf.device("CPU:0"):
            self._weights = tf.Variable(
                whole_ratios(ratios), dtype=tf.int64, trainable=False, name="gpumon_ratios"
            )

    @property
    def ratios(self) -> tuple[float, ...]:
        return self._ratios

    @ratios.setter
    def ratios(self, ratios: Sequence[float]) -> None:
        self._ratios = checked_ratios(ratios, len(self._ratios))
        self._weights.assign(whole_ratios(self._ratios))

    def slices_of(self, batch: Tensors) -> Slices:
        """Split ``batch``, a structure of tensors whose first axis is the batch.

        Raises:
            ValueError: It has no tensor.
        """
        first = next((part for part in keras.tree.flatten(batch) if part is not None), None)
        if first is None:
            raise ValueError("a batch without any tensor cannot be split over GPUs")
        with tf.device("CPU:0"):
            return self.slices(tf.shape(first, out_type=tf.int64)[0])

    def slices(self, size: Tensor) -> Slices:
        """Split ``size`` samples, an int64 scalar tensor of 1 or more."""
        weights = tf.convert_to_tensor(self._weights)
        replicas = tf.size(weights, out_type=tf.int64)
        counts = _largest_remainder(size, weights)
        one_each = 1 + _largest_remainder(tf.maximum(size - replicas, 0), weights)
        is_any_empty = tf.reduce_any(counts == 0) & (size >= replicas)
        counts = tf.where(is_any_empty, one_each, counts)
        starts = tf.minimum(tf.cumsum(counts, exclusive=True), size - 1)
        return Slices(
            size,
            starts,
            counts,
            tf.maximum(counts, 1),
            tf.cast(counts / size, tf.float32),
            tf.cast(counts > 0, tf.float32),
        )


def _largest_remainder(total: Tensor, weights: Tensor) -> Tensors:
    weight = tf.reduce_sum(weights)
    products = total * weights
    counts = products // weight
    left = total - tf.reduce_sum(counts)
    by_remainder = tf.argsort(products % weight, direction="DESCENDING", stable=True)
    rank = tf.cast(tf.math.invert_permutation(by_remainder), tf.int64)
    return counts + tf.cast(rank < left, tf.int64)


def parts_of(
    batch: Tensors, slices: Slices, replica_count: int
) -> list[tuple[Tensors, ReplicaPart]]:
    """Each replica's part of ``batch``, in the same structure, and its position and weight."""
    in_average = slices.is_fed / tf.reduce_sum(slices.is_fed)
    parts = []
    for replica in range(replica_count):
        start = slices.starts[replica]
        end = start + slices.lengths[replica]
        part = ReplicaPart(
            tf.constant(replica, tf.uint32), slices.weights[replica], in_average[replica]
        )
        parts.append((_rows(batch, start, end), part))
    return parts


def _rows(batch: Tensors, start: Tensor, end: Tensor) -> Tensors:
    def cut(rows: Tensor) -> Tensor:
        if isinstance(rows, tf.SparseTensor):
            raise ValueError(
                "a sparse batch cannot be split over GPUs; give it dense, by tf.sparse.to_dense"
            )
        if rows is None:
            return None
        mask = mask_of(rows)
        return masked(rows[start:end], None if mask is None else mask[start:end])

    return keras.tree.map_structure(cut, batch, none_is_leaf=False)


def merged(parts: Sequence[Tensors], slices: Slices) -> Tensors:
    """One structure for the whole batch, from the replicas' outputs for their parts."""

    def joined(*pieces: Tensors) -> Tensors:
        if pieces[0] is None:
            return None
        if len(pieces[0].shape) == 0:
            raise ValueError(
                "an output of the model is one number for a whole batch, and those of several GPUs "
                "cannot be combined; give it an axis for the samples"
            )
        real = [_real_rows(piece, slices.counts[at]) for at, piece in enumerate(pieces)]
        masks = [mask_of(piece) for piece in pieces]
        if any(mask is None for mask in masks):
            return tf.concat(real, axis=0)
        kept = [_real_rows(mask, slices.counts[at]) for at, mask in enumerate(masks)]
        return masked(tf.concat(real, axis=0), tf.concat(kept, axis=0))

    return keras.tree.map_structure(joined, *parts)


def _real_rows(piece: Tensor, count: Tensor) -> Tensor:
    """The output rows of a replica's own samples; a model may make several rows per sample."""
    rows = tf.shape(piece, out_type=tf.int64)[0]
    return piece[: tf.where(count > 0, rows, 0)]
