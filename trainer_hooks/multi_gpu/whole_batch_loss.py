"""Losses of parts of a batch that add up to the loss of the whole batch.

Each replica's loss is weighted by its part of the samples, which is right for a mean over samples.
A sum, a mean over sample weights, or a mean over unmasked values has another divisor: such a loss
is corrected here, so that the sum over the replicas is that of the whole batch.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import keras
import tensorflow as tf

from trainer_hooks.multi_gpu.batch_split import Setting, Tensor
from trainer_hooks.taps.keras_private import mask_of

_MEANS = ("sum_over_batch_size", "mean")


class PartWeight(threading.local):
    """This replica's part of the batch while its step is traced; replicas are threads."""

    value: Tensor = None

    @contextmanager
    def of(self, weight: Tensor) -> Iterator[None]:
        """Set this replica's part, a float32 scalar from 0 to 1, within the context."""
        self.value = weight
        try:
            yield
        finally:
            self.value = None


class _FunctionLoss(keras.losses.Loss):  # type: ignore[misc]  # Keras has no types
    """Wraps a loss function as ``compile`` does; Keras' own class for it is private."""

    def __init__(self, function: Setting, name: str | None) -> None:
        super().__init__(name=name)
        self._function = function

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        return self._function(*_of_one_rank(y_true, y_pred))


def _of_one_rank(some: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Align ranks that differ by a last axis of size 1."""
    ranks = len(getattr(some, "shape", ())), len(getattr(others, "shape", ()))
    if ranks[0] == ranks[1] + 1 and some.shape[-1] == 1:
        if ranks[1] == 1:
            return some, keras.ops.expand_dims(others, -1)
        return keras.ops.squeeze(some, -1), others
    if ranks[1] == ranks[0] + 1 and others.shape[-1] == 1:
        one, other = _of_one_rank(others, some)
        return other, one
    return some, others


class WholeBatchLoss(keras.losses.Loss):  # type: ignore[misc]  # Keras has no types
    """``inner``, corrected so that values times each replica's part add up to the whole batch's."""

    def __init__(self, inner: Setting, part: PartWeight) -> None:
        super().__init__(name=inner.name, reduction=inner.reduction, dtype=inner.dtype)
        # The same class and settings, but observed; copy.copy would use its configuration.
        self._inner = object.__new__(type(inner))
        self._inner.__dict__.update(inner.__dict__, call=self._observed(inner.call))
        self._part = part
        self._is_one_number = True

    def _observed(self, call: Setting) -> Setting:
        def observed(y_true: Tensor, y_pred: Tensor) -> Tensor:
            values = call(y_true, y_pred)
            self._is_one_number = len(values.shape) == 0
            return values

        return observed

    def __call__(self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor = None) -> Tensor:
        """The value of ``inner`` with its divisor corrected."""
        self._is_one_number = True  # a custom ``__call__`` returns one
        value = self._inner(y_true, y_pred, sample_weight)
        if self._part.value is None:
            return value
        return value * tf.cast(self._correction(y_pred, sample_weight), value.dtype)

    def _correction(self, y_pred: Tensor, sample_weight: Tensor) -> Tensor:
        part = self._part.value
        if self.reduction == "sum":
            return keras_scale() * tf.math.divide_no_nan(1.0, part)
        mask = mask_of(y_pred)
        if self._is_one_number and mask is None and sample_weight is None:
            return keras_scale()  # Keras neither averages nor scales then
        counted = self._divisor(mask, sample_weight)
        if counted is None:
            return 1.0
        counted = tf.where(part > 0, counted, 0.0)  # a borrowed sample does not count
        of_all = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, counted)
        return tf.math.divide_no_nan(counted, of_all * part)

    def _divisor(self, mask: Tensor, sample_weight: Tensor) -> Tensor:
        """The divisor of ``inner`` where that is not the number of samples; else ``None``."""
        if self.reduction in _MEANS:
            return None if mask is None else tf.reduce_sum(tf.cast(mask, tf.float32))
        weights = None if sample_weight is None else tf.cast(sample_weight, tf.float32)
        if mask is None:
            return None if weights is None else tf.reduce_sum(weights)
        kept = tf.cast(mask, tf.float32)
        if weights is not None:
            missing = len(kept.shape) - len(weights.shape)
            kept *= tf.reshape(weights, tf.concat([tf.shape(weights), [1] * missing], 0))
        return tf.reduce_sum(kept)


def added_loss(value: Tensor, part: Tensor) -> Tensor:
    """A loss that a layer added, corrected so that times each part it is the whole batch's.

    Args:
        value: A scalar is assumed to be a mean over samples; Keras sums up a tensor.
        part: This replica's part of the batch, float32 scalar, 0 to 1.
    """
    if len(value.shape) == 0:
        return value
    return tf.reduce_sum(value) * tf.cast(tf.math.divide_no_nan(1.0, part), value.dtype)


def keras_scale() -> Tensor:
    """The factor that Keras applies to means, not to sums, in this context: 1 / replicas."""
    return keras.losses.MeanAbsoluteError()(tf.ones([1, 1]), tf.zeros([1, 1]))


def over_whole_batch(loss: Setting, part: PartWeight) -> Setting:
    """``loss`` as given to ``compile``, with each loss in it wrapped in a ``WholeBatchLoss``.

    Raises:
        ValueError: A loss has no reduction.
    """

    def one(given: Setting) -> Setting:
        if given is None:
            return None
        found = keras.losses.get(given)
        if not isinstance(found, keras.losses.Loss):
            name = getattr(found, "__name__", "")  # a lambda's is no valid scope
            found = _FunctionLoss(found, name=name if name.isidentifier() else None)
        if found.reduction in (None, "none"):
            raise ValueError(
                f"the loss {found.name!r} has no reduction, and without one the losses of several "
                "GPUs cannot be combined; give it reduction='sum_over_batch_size' or 'sum'"
            )
        return WholeBatchLoss(found, part)

    return keras.tree.map_structure(one, loss, none_is_leaf=True)
