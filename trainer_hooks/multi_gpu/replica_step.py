"""What each replica does in a training step: forward, backward, and its part in the update."""

from __future__ import annotations

import keras
import tensorflow as tf

from trainer_hooks.multi_gpu.batch_split import ReplicaPart
from trainer_hooks.multi_gpu.replica_times import busy_seconds, own_begin
from trainer_hooks.multi_gpu.tensors import Tensor, Tensors
from trainer_hooks.multi_gpu.whole_batch_loss import PartWeight, keras_scale

_SEED_STATE = "seed_generator_state"


class ReplicaStep:
    """One training step, called once in the context of each replica.

    The layers run stateless: what a step would do to BatchNorm's statistics or to a random
    seed comes back as values, and is put together before it is stored.

    Args:
        replicas: The model, made and compiled in the scope of the strategy.
        part_weight: Told this replica's part of the batch while its losses are computed.
    """

    def __init__(self, replicas: keras.Model, part_weight: PartWeight) -> None:
        self._replicas = replicas
        self._part_weight = part_weight

    def train(
        self, data: Tensors, part: ReplicaPart, *, begun_at: Tensor | None
    ) -> tuple[Tensors, Tensor, Tensors]:
        """Train on this replica's part of the batch.

        Args:
            data: ``(x, y, sample_weight)`` of this replica.
            part: Which part of the batch that is.
            begun_at: When the batch was there, as ``tf.timestamp`` tells time; ``None``: nobody
                asks how long this replica takes.

        Returns:
            What the model made of ``x``; this replica's part of the batch's loss, a scalar;
            and how many seconds it worked, or 0.
        """
        if begun_at is not None:
            begun_at = own_begin(begun_at)
        weights = [tf.convert_to_tensor(v.value) for v in self._replicas.trainable_variables]
        before = [_own_value(v, part.replica) for v in self._replicas.non_trainable_variables]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(weights)
            with self._part_weight.of(part.weight):
                y_pred, loss, after = self._forward(data, weights, before)
            loss = loss * tf.cast(part.weight, loss.dtype) / tf.cast(keras_scale(), loss.dtype)
            scaled = self._replicas.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, weights)
        took = tf.zeros([], tf.float64)
        if begun_at is not None:
            took = busy_seconds(begun_at, loss, gradients)
        self._update(gradients, before, after, part.in_average)
        return y_pred, loss, took

    def _forward(
        self, data: Tensors, weights: list[Tensor], before: list[Tensor]
    ) -> tuple[Tensors, Tensor, Tensors]:
        x, y, sample_weight = data
        state = self._replicas.non_trainable_variables
        values = [
            *zip(self._replicas.trainable_variables, weights, strict=True),
            *zip(state, before, strict=True),
        ]
        with keras.StatelessScope(state_mapping=values, collect_losses=True) as scope:
            y_pred = self._replicas(x, training=True)
            # Taken out before the loss is computed: that may wait for the other replicas, whose
            # forward pass makes the layers forget what they added here.
            added = [scope.losses.pop() for _ in [*scope.losses]]
            loss = self._replicas.compute_loss(x, y, y_pred, sample_weight, training=True)
            after = [scope.get_current_value(variable) for variable in state]
        for part in added:
            loss += tf.cast(part, loss.dtype) * tf.cast(keras_scale(), loss.dtype)
        return y_pred, loss, after

    def _update(
        self, gradients: list[Tensor], before: list[Tensor], after: list[Tensor], in_average: Tensor
    ) -> None:
        """Add up the gradients, average the statistics, and store what comes of them."""
        context = tf.distribute.get_replica_context()
        averaged, stepped = [], []
        state = zip(self._replicas.non_trainable_variables, before, after, strict=True)
        for variable, old, new in state:
            if new is None or new is old:
                continue
            if new.dtype.is_floating:
                averaged.append((variable.value, new * tf.cast(in_average, new.dtype)))
            else:  # a seed or a counter: every replica takes the same step
                stepped.append((variable.value, variable.value + (new - old)))
        present = [gradient for gradient in gradients if gradient is not None]
        added_up = context.all_reduce(
            tf.distribute.ReduceOp.SUM, [*present, *(value for _, value in averaged)]
        )
        summed = iter(added_up[: len(present)])
        self._replicas.optimizer.apply(
            [None if gradient is None else next(summed) for gradient in gradients],
            self._replicas.trainable_variables,
        )
        variables = [variable for variable, _ in [*averaged, *stepped]]
        values = [*added_up[len(present) :], *(value for _, value in stepped)]
        if variables:
            context.merge_call(_store, args=(variables, values))


def _store(strategy: tf.distribute.Strategy, variables: list[Tensor], values: list[Tensor]) -> None:
    for variable, value in zip(variables, values, strict=True):
        strategy.extended.update(variable, _assign, args=(value,), group=False)


def _assign(variable: Tensor, value: Tensor) -> Tensor:
    return variable.assign(value)


def _own_value(variable: Tensor, replica: Tensor) -> Tensor:
    """The value of a variable; of a random seed, one that is this replica's own.

    Otherwise Dropout would leave out the same places of every replica's part.
    """
    value = tf.convert_to_tensor(variable.value)
    if variable.name.startswith(_SEED_STATE):
        return value + tf.stack([tf.cast(replica, value.dtype), tf.zeros([], value.dtype)])
    return value
