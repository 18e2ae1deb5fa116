"""Rebatches a ``tf.data.Dataset``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import tensorflow as tf

from trainer_hooks.batches.batch_rule import BatchRule, only_for_training, unpacked

_MOST_STAGES: Final = 64
_BATCHES: Final = frozenset({"Batch", "PaddedBatch", "ParallelBatch"})
_UNBATCHES: Final = frozenset({"FlatMap", "Interleave", "ParallelInterleave", "Unbatch"})
_KEEPS_LENGTHS: Final = frozenset({"Cache", "Options", "Prefetch", "Shuffle"})
"""Stages that keep the lengths and the number of elements."""


def fixed_dataset(dataset: Any, rule: BatchRule) -> Any:  # noqa: ANN401
    """A dataset of the same samples in batches by the rule, with a static batch size.

    Raises:
        ValueError: It is unclear whether the elements are samples or batches, or ``"pad"`` finds
            no targets.
    """
    if rule.tail == "pad":
        unpacked(dataset.element_spec)
    batched = _holds_batches(dataset)
    samples = _samples_in(dataset, batched=batched)
    drop = rule.tail == "drop"
    if batched:
        rebatched = dataset.rebatch(rule.batch_size, drop_remainder=drop)
    else:
        rebatched = dataset.batch(rule.batch_size, drop_remainder=drop)
    if not drop:
        rebatched = rebatched.map(lambda *batch: _finished(batch, dataset.element_spec, rule))
    if int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
        return rebatched.apply(
            tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        )
    if samples is not None:
        batches = tf.data.experimental.assert_cardinality(rule.count(samples))
        rebatched = rebatched.apply(batches)
    return only_for_training(rebatched, rule.tail) if rule.fills_up(samples) else rebatched


def _holds_batches(dataset: Any) -> bool:  # noqa: ANN401
    """Whether its elements are batches: by their shapes, else by its stages."""
    shapes = [spec.shape for spec in _specs(dataset)]
    if any(shape.rank == 0 for shape in shapes):
        return False  # one number per sample
    if all(shape.rank is not None for shape in shapes):
        lengths = {shape[0] for shape in shapes}
        if len(lengths) > 1:
            return False
        if lengths == {None}:
            return True
    if any(kind in _BATCHES for kind, _ in _stages(dataset, until=_UNBATCHES)):
        return True
    raise ValueError(
        "the elements of this tf.data.Dataset may be samples or batches, "
        f"{dataset.element_spec}: call its .unbatch() first if they are batches, and "
        f".batch(...) if they are samples"
    )


def _samples_in(dataset: Any, *, batched: bool) -> int | None:  # noqa: ANN401
    """Number of samples; ``None`` where it is unknown without iterating."""
    elements = int(dataset.cardinality())
    if elements < 0:
        return None
    if not batched:
        return elements
    each = _specs(dataset)[0].shape[:1]
    if each.is_fully_defined():
        return elements * int(each[0])
    for kind, stage in _stages(dataset):
        if kind in _BATCHES:
            # With drop_remainder its batches would have a static length.
            samples = int(stage._input_dataset.cardinality())
            return samples if samples >= 0 else None
        if kind not in _KEEPS_LENGTHS:
            break
    return None


def _specs(dataset: Any) -> list[Any]:  # noqa: ANN401
    every = tf.nest.flatten(dataset.element_spec)
    return [spec for spec in every if getattr(spec, "shape", None) is not None]


def _stages(
    dataset: Any,  # noqa: ANN401
    until: frozenset[str] = frozenset(),
) -> Iterator[tuple[str, Any]]:
    """Its stages by kind, the last one first, as far as each has one source.

    Stages are private to TensorFlow: where a release renames them, fewer are found.
    """
    stage = dataset
    for _ in range(_MOST_STAGES):
        kind = type(stage).__name__.strip("_").removesuffix("V2").removesuffix("Dataset")
        source = getattr(stage, "_input_dataset", None)
        if source is None or kind in until:
            return
        yield kind, stage
        stage = source


def _finished(batch: tuple[Any, ...], spec: Any, rule: BatchRule) -> Any:  # noqa: ANN401
    """One batch, completed within the graph; ``batch`` is unpacked by ``map``."""
    full = batch if isinstance(spec, tuple) else batch[0]
    size = rule.batch_size
    rows = tf.shape(tf.nest.flatten(full)[0])[0]
    in_turn = tf.range(size) % rows

    def filled(leaf: Any) -> Any:  # noqa: ANN401
        if isinstance(leaf, tf.SparseTensor):
            raise ValueError(
                f'sparse tensors cannot be filled up (tail="{rule.tail}"): use tail="drop", or '
                "make them dense with tf.sparse.to_dense"
            )
        many = tf.cond(rows == size, lambda: leaf, lambda: tf.gather(leaf, in_turn))
        if isinstance(leaf, tf.RaggedTensor):
            return many
        return tf.ensure_shape(many, [size, *leaf.shape[1:]])

    full = tf.nest.map_structure(filled, full)
    return _weighted(full, rows, rule) if rule.tail == "pad" else full


def _weighted(batch: Any, rows: Any, rule: BatchRule) -> Any:  # noqa: ANN401
    inputs, targets, weights = unpacked(batch)
    of_real = rule.batch_size / rows if rule.reduction == "mean" else tf.ones([], tf.float64)
    factors = tf.where(tf.range(rule.batch_size) < rows, of_real, 0)

    def weighted(leaf: Any) -> Any:  # noqa: ANN401
        kept = leaf if leaf.dtype.is_floating else tf.cast(leaf, tf.float32)
        by_row = tf.reshape(factors, [-1] + [1] * (len(leaf.shape) - 1))
        return kept * tf.cast(by_row, kept.dtype)

    def fresh(target: Any) -> Any:  # noqa: ANN401
        shape = [-1] + [1] * (len(target.shape) - 1)
        return tf.reshape(tf.cast(factors, tf.float32), shape)

    if weights is None:
        return inputs, targets, tf.nest.map_structure(fresh, targets)
    return inputs, targets, tf.nest.map_structure(weighted, weights)
