"""What each replica does in a step: forward; in training backward and its part in the update."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import keras
import tensorflow as tf

from trainer_hooks.multi_gpu.batch_split import (
    ReplicaPart,
    Setting,
    Tensor,
    Tensors,
)
from trainer_hooks.multi_gpu.device_names import dealt, of_each
from trainer_hooks.multi_gpu.replica_state import Changes, ForwardState, store, store_summed
from trainer_hooks.multi_gpu.replica_times import ReplicaTimes
from trainer_hooks.multi_gpu.whole_batch_loss import PartWeight, added_loss, keras_scale
from trainer_hooks.taps.keras_private import mask_of, masked, value_of


@dataclass(eq=False)
class Taped:
    """What one replica computed, and of what, for whoever wants to go back through it.

    Attributes:
        tape: Has watched it.
        outputs: Those of the model and the losses that layers added, flat.
        sources: The weights and then its inputs, flat.
    """

    tape: Setting = None
    outputs: Sequence[Tensor] = ()
    sources: Sequence[Tensor] = ()


class Replicas(keras.Model):  # type: ignore[misc]  # Keras has no types
    """The user's model as all devices train it, with losses for parts of a batch.

    To be compiled in the scope of the strategy, so that the user's own is left as it was.
    """

    def __init__(self, template: keras.Model) -> None:
        super().__init__(name=template.name, dtype=template.dtype_policy)
        self.template = template
        self.built = True

    @property
    def output_names(self) -> list[str]:
        """For losses given by name; none where the user's model does not say any."""
        names: list[str] = self.template.output_names
        return names

    def call(self, inputs: Tensors, training: bool | None = None) -> Tensors:
        """What the user's model computes."""
        return self.template(inputs, training=training)

    def build_losses(self, batch: Tensors, strategy: tf.distribute.MirroredStrategy) -> None:
        """Make what Keras counts the loss of each output with, where the variables are mirrored.

        It would otherwise be made while a replica's step is traced, outside of the scope.
        """

        def one_sample(tensor: Tensor) -> Callable[[], Tensor]:
            shape = [1, *(size or 1 for size in tensor.shape[1:])]
            return functools.partial(tf.zeros, shape, tensor.dtype)

        def build() -> None:
            x, y, _ = keras.tree.map_structure(lambda make: make(), made, none_is_leaf=False)
            with strategy.scope():
                with keras.StatelessScope():  # no metric of a layer counts this sample
                    y_pred = self(x, training=False)
                self.compute_loss(x, y, y_pred)

        made = keras.tree.map_structure(one_sample, batch, none_is_leaf=False)
        # A thread of its own is in no graph and in the context of no other strategy.
        with ThreadPoolExecutor(1) as executor:
            executor.submit(build).result()


class ReplicaStep:
    """One step, called once in the context of each replica.

    Args:
        replicas: Compiled, where it is to train.
        part_weight: Told this replica's part of the batch while its losses are computed.
        times: Has the clocks, for where somebody asks how long a replica works.
    """

    def __init__(self, replicas: keras.Model, part_weight: PartWeight, times: ReplicaTimes) -> None:
        self._replicas = replicas
        self._part_weight = part_weight
        self._times = times

    def infer(
        self,
        inputs: Tensors,
        part: ReplicaPart,
        taped: Taped | None = None,
        *,
        training: bool | None,
    ) -> tuple[Tensors, Tensor]:
        """Compute this replica's part of what the model is called with.

        Args:
            inputs: Of this replica.
            part: Which part of the batch that is.
            taped: To be filled, for ``gradients``; ``None``: nobody asks for those.
            training: As the model was called.

        Returns:
            Its outputs, and its part of each loss that the layers added.
        """
        held = ForwardState(self._replicas, part)
        variables = self._replicas.trainable_variables
        weights = [tf.convert_to_tensor(variable.value) for variable in variables]
        mapping = [*zip(variables, weights, strict=True), *held.mapping]
        with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
            if taped is not None:
                sources = [*weights, *keras.tree.flatten(inputs)]
                tape.watch([each for each in sources if each.dtype.is_floating])
            with keras.StatelessScope(state_mapping=mapping, collect_losses=True) as scope:
                outputs = self._replicas(inputs, training=training)
            added = tuple(
                added_loss(loss, part.weight) * tf.cast(part.weight, loss.dtype)
                for loss in scope.losses
            )
        if taped is not None:
            taped.tape, taped.sources = tape, sources
            taped.outputs = keras.tree.flatten((outputs, added))
        store_summed(held.changes(scope))
        return outputs, added

    def gradients(self, of_outputs: Sequence[Tensor], taped: Taped) -> list[Tensor]:
        """Go back through what ``infer`` did.

        Args:
            of_outputs: The gradients of ``taped.outputs``.
            taped: By ``infer``, of this replica.

        Returns:
            Those of ``taped.sources``; ``None`` for some.
        """
        told = taped.tape.gradient(taped.outputs, taped.sources, output_gradients=of_outputs)
        return [None if each is None else tf.convert_to_tensor(each) for each in told]

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
            begun_at = self._times.own_begin(begun_at)
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
            took = self._times.busy_seconds(begun_at, loss, gradients)
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
    the weights as they lie on the first device and of the parts of the batch, which ``given`` has
    for each replica. ``weights`` are the trainable variables that all of them compute with.

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
