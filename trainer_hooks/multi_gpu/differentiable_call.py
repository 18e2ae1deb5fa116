"""Calling the replicas where somebody else has the tape: a model around, a loop of one's own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from trainer_hooks.multi_gpu.batch_split import (
    ReplicaPart,
    Setting,
    Tensor,
    Tensors,
    mask_of,
    masked,
)
from trainer_hooks.multi_gpu.device_names import dealt, of_each
from trainer_hooks.multi_gpu.replica_step import ReplicaStep, Taped
from trainer_hooks.multi_gpu.shared_weights import value_of


def differentiable_call(
    step: ReplicaStep,
    strategy: tf.distribute.MirroredStrategy,
    given: Sequence[tuple[Tensors, ReplicaPart]],
    *,
    weights: Sequence[Setting],
    training: bool | None,
) -> list[Tensors]:
    """What each replica computes of its part, differentiable in the weights and the inputs.

    A tape does not see what replicas do, for they are threads. Here it sees one operation, of
    the weights as they lie on the first device and of the parts of the batch.

    Args:
        step: Of the replicas.
        strategy: Over their devices.
        given: For each replica its inputs and which part of the batch they are.
        weights: The trainable variables that all replicas compute with.
        training: As the model was called.

    Returns:
        Of each replica its outputs and added losses, as ``ReplicaStep.infer`` tells them.
    """
    inputs, facts = zip(*given, strict=True)
    first_device = strategy.extended.worker_devices[0]
    taped = [Taped() for _ in given]
    computed: list[Tensors] = []

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def compute(*sources: Tensor) -> tuple[list[Tensor], Callable[..., list[Tensor]]]:
        parts = _in_place_of(inputs, sources[len(weights) :])
        infer = functools.partial(step.infer, training=training)
        told = strategy.run(infer, args=dealt(strategy, zip(parts, facts, taped, strict=True)))
        computed.extend(of_each(strategy, told))

        def back(*of_outputs: Tensor) -> list[Tensor]:
            each = map(keras.tree.flatten, keras.tree.pack_sequence_as(computed, of_outputs))
            told = strategy.run(step.gradients, args=dealt(strategy, zip(each, taped, strict=True)))
            gradients = of_each(strategy, told)
            of_weights = zip(*(own[: len(weights)] for own in gradients), strict=True)
            with tf.device(first_device):
                # Only there: TensorFlow loses what is added up over devices in a gradient.
                summed = [None if own[0] is None else tf.add_n(own) for own in of_weights]
            return [*summed, *(one for own in gradients for one in own[len(weights) :])]

        flat: list[Tensor] = keras.tree.flatten(computed)
        return flat, back

    with tf.device(first_device):
        values = [tf.convert_to_tensor(value_of(variable)) for variable in weights]
        outputs = compute(*values, *keras.tree.flatten(inputs))
    told: list[Tensors] = _in_place_of(computed, outputs)
    return told


def _in_place_of(old: Tensors, new: Sequence[Tensor]) -> Tensors:
    """``new`` in the structure of ``old``, each with the mask of the one that it replaces."""
    replaced = zip(new, keras.tree.flatten(old), strict=True)
    fresh = [masked(tensor, mask_of(former)) for tensor, former in replaced]
    return keras.tree.pack_sequence_as(old, fresh)
