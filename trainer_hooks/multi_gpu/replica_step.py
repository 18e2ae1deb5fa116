"""What each replica does in a step: forward; in training backward and its part in the update."""

from __future__ import annotations

import keras
import tensorflow as tf

from trainer_hooks.multi_gpu.batch_split import ReplicaPart
from trainer_hooks.multi_gpu.replica_state import Changes, ForwardState, store, store_summed
from trainer_hooks.multi_gpu.replica_times import busy_seconds, own_begin
from trainer_hooks.multi_gpu.tensors import Setting, Tensor, Tensors
from trainer_hooks.multi_gpu.whole_batch_loss import PartWeight, added_loss, keras_scale


class ReplicaStep:
    """One step, called once in the context of each replica.

    Args:
        replicas: The model, made and compiled in the scope of the strategy.
        part_weight: Told this replica's part of the batch while its losses are computed.
    """

    def __init__(self, replicas: keras.Model, part_weight: PartWeight) -> None:
        self._replicas = replicas
        self._part_weight = part_weight

    def infer(
        self, inputs: Tensors, part: ReplicaPart, *, training: bool | None
    ) -> tuple[Tensors, Tensors]:
        """This replica's outputs, and its part of each loss that the layers added."""
        held = ForwardState(self._replicas, part)
        with keras.StatelessScope(state_mapping=held.mapping, collect_losses=True) as scope:
            outputs = self._replicas(inputs, training=training)
        added = tuple(
            added_loss(loss, part.weight) * tf.cast(part.weight, loss.dtype)
            for loss in scope.losses
        )
        store_summed(held.changes(scope))
        return outputs, added

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
        held = ForwardState(self._replicas, part)
        variables = self._replicas.trainable_variables
        weights = [tf.convert_to_tensor(v.value) for v in variables]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(weights)
            with self._part_weight.of(part.weight):
                mapping = [*zip(variables, weights, strict=True), *held.mapping]
                y_pred, loss, scope = self._forward(data, part, mapping)
            loss = loss * tf.cast(part.weight, loss.dtype) / tf.cast(keras_scale(), loss.dtype)
            scaled = self._replicas.optimizer.scale_loss(loss)
        # A layer may give a weight another value before it uses it, as SpectralNormalization.
        used = [scope.get_current_value(variable) for variable in variables]
        gradients = tape.gradient(scaled, used)
        took = tf.zeros([], tf.float64)
        if begun_at is not None:
            took = busy_seconds(begun_at, loss, gradients)
        changes = held.changes(scope)
        renewed = tuple(
            (variable.value, now * tf.cast(part.in_average, now.dtype))
            for variable, now, before in zip(variables, used, weights, strict=True)
            if now is not before
        )
        self._update(gradients, Changes((*renewed, *changes.summed), changes.same))
        return y_pred, loss, took

    def _forward(
        self, data: Tensors, part: ReplicaPart, mapping: list[tuple[Setting, Tensor]]
    ) -> tuple[Tensors, Tensor, keras.StatelessScope]:
        x, y, sample_weight = data
        with keras.StatelessScope(state_mapping=mapping, collect_losses=True) as scope:
            y_pred = self._replicas(x, training=True)
            # Taken out before the loss is computed: that may wait for the other replicas, whose
            # forward pass makes the layers forget what they added here.
            added = [scope.losses.pop() for _ in [*scope.losses]]
            if added:
                self._replicas.add_loss(tf.zeros([]))  # there may be no other
            loss = self._replicas.compute_loss(x, y, y_pred, sample_weight, training=True)
        for value in added:
            whole = added_loss(value, part.weight)
            loss += tf.cast(whole, loss.dtype) * tf.cast(keras_scale(), loss.dtype)
        return y_pred, loss, scope

    def _update(self, gradients: list[Tensor], changes: Changes) -> None:
        """Add up the gradients and what goes with them, and store what comes of it."""
        present = [gradient for gradient in gradients if gradient is not None]
        to_add = [*present, *(value for _, value in changes.summed)]
        added_up = []
        if to_add:
            context = tf.distribute.get_replica_context()
            added_up = context.all_reduce(tf.distribute.ReduceOp.SUM, to_add)
        store(changes, added_up[len(present) :])
        if not gradients:
            return  # all is frozen
        summed = iter(added_up[: len(present)])
        self._replicas.optimizer.apply(
            [None if gradient is None else next(summed) for gradient in gradients],
            self._replicas.trainable_variables,
        )
