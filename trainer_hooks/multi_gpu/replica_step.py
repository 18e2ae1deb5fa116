"""The step of one replica: forward, and in training backward and its part in the update."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import keras
import tensorflow as tf

from trainer_hooks.multi_gpu.batch_split import (
    ReplicaPart,
    Setting,
    Tensor,
    Tensors,
)
from trainer_hooks.multi_gpu.devices import per_replica, results_of
from trainer_hooks.multi_gpu.replica_times import ReplicaTimes
from trainer_hooks.multi_gpu.shared_weights import metric_variables
from trainer_hooks.multi_gpu.whole_batch_loss import PartWeight, added_loss, keras_scale
from trainer_hooks.taps.keras_private import mask_of, masked, value_of

_SEED_STATE = "seed_generator_state"


class Changes(NamedTuple):
    """Pending updates: pairs of a mirrored variable and a tensor of its shape.

    Attributes:
        summed: The new value is the sum over the replicas.
        same: Every replica has computed the same new value.
    """

    summed: tuple[tuple[Tensor, Tensor], ...]
    same: tuple[tuple[Tensor, Tensor], ...]


class ForwardState:
    """What one replica's forward pass changes: statistics, random seeds, counters, layer metrics.

    The layers run stateless: their updates come back as values and are combined before they are
    stored. Statistics are averaged over the replicas that had a sample, a layer's metric counts
    every sample, a seed or a counter advances equally everywhere.
    """

    def __init__(self, model: keras.Model, part: ReplicaPart) -> None:
        self._part = part
        self._state = [
            (variable, _own_value(variable, part.replica))
            for variable in model.non_trainable_variables
        ]
        self._metrics = [
            (variable, tf.convert_to_tensor(variable.value)) for variable in metric_variables(model)
        ]

    @property
    def mapping(self) -> list[tuple[Setting, Tensor]]:
        """Pairs of variables and initial values for ``keras.StatelessScope``."""
        return [*self._state, *self._metrics]

    def changes(self, scope: keras.StatelessScope) -> Changes:
        summed, same = [], []
        for variable, old in self._state:
            new = scope.get_current_value(variable)
            if new is old:
                continue
            if new.dtype.is_floating:
                summed.append((variable.value, new * tf.cast(self._part.in_average, new.dtype)))
            elif new.dtype.is_bool:
                same.append((variable.value, new))
            else:  # a replica's own seed differs from the one that is stored
                same.append((variable.value, variable.value + (new - old)))
        is_fed = tf.sign(self._part.in_average)
        for variable, old in self._metrics:
            new = scope.get_current_value(variable)
            if new is not old:
                # The old value is counted once, split over the replicas that have a sample.
                there = tf.cast(tf.cast(old, tf.float32) * self._part.in_average, new.dtype)
                summed.append((variable.value, there + (new - old) * tf.cast(is_fed, new.dtype)))
        return Changes(tuple(summed), tuple(same))


def store(changes: Changes, sums: list[Tensor]) -> None:
    """Write the new values to all copies; called by each replica, with the sums of ``summed``."""
    variables = [variable for variable, _ in [*changes.summed, *changes.same]]
    if variables:
        values = [*sums, *(value for _, value in changes.same)]
        tf.distribute.get_replica_context().merge_call(_store, args=(variables, values))


def store_summed(changes: Changes) -> None:
    """Sum up over the replicas, then ``store``."""
    values = [value for _, value in changes.summed]
    context = tf.distribute.get_replica_context()
    store(changes, context.all_reduce(tf.distribute.ReduceOp.SUM, values) if values else [])


def _store(strategy: tf.distribute.Strategy, variables: list[Tensor], values: list[Tensor]) -> None:
    for variable, value in zip(variables, values, strict=True):
        strategy.extended.update(
            variable, lambda copy, new: copy.assign(new), args=(value,), group=False
        )


def _own_value(variable: Setting, replica: Tensor) -> Tensor:
    """The value of a variable; for a random seed, one of this replica's own.

    Otherwise Dropout would drop the same positions in every replica's part.
    """
    value = tf.convert_to_tensor(variable.value)
    if variable.name.startswith(_SEED_STATE):
        return value + tf.stack([tf.cast(replica, value.dtype), tf.zeros([], value.dtype)])
    return value


@dataclass(eq=False)
class Taped:
    """One replica's forward pass, recorded for a later backward pass.

    Attributes:
        outputs: The model's outputs and the losses that layers added, flat.
        sources: The weights, then the inputs, flat.
    """

    tape: Setting = None
    outputs: Sequence[Tensor] = ()
    sources: Sequence[Tensor] = ()


class Replicas(keras.Model):  # type: ignore[misc]  # Keras has no types
    """The user's model as the devices train it, with losses for parts of a batch.

    Compiled in the scope of the strategy, so that the user's own model stays unchanged.
    """

    def __init__(self, template: keras.Model) -> None:
        super().__init__(name=template.name, dtype=template.dtype_policy)
        self.template = template
        self.built = True

    @property
    def output_names(self) -> list[str]:
        names: list[str] = self.template.output_names
        return names

    def call(self, inputs: Tensors, training: bool | None = None) -> Tensors:
        return self.template(inputs, training=training)

    def build_losses(self, batch: Tensors, strategy: tf.distribute.MirroredStrategy) -> None:
        """Create Keras' metrics for the loss of each output in the scope of the strategy.

        They would otherwise be created outside of it, while a replica's step is traced.
        """

        def one_sample(tensor: Tensor) -> Callable[[], Tensor]:
            shape = [1, *(size or 1 for size in tensor.shape[1:])]
            return functools.partial(tf.zeros, shape, tensor.dtype)

        def build() -> None:
            x, y, _ = keras.tree.map_structure(lambda make: make(), made, none_is_leaf=False)
            with strategy.scope():
                with keras.StatelessScope():  # no layer metric counts this sample
                    y_pred = self(x, training=False)
                self.compute_loss(x, y, y_pred)

        made = keras.tree.map_structure(one_sample, batch, none_is_leaf=False)
        # A new thread is in no graph and in no context of another strategy.
        with ThreadPoolExecutor(1) as executor:
            executor.submit(build).result()


class ReplicaStep:
    """One step, called once in the context of each replica."""

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
        """Compute the outputs for this replica's part of the batch.

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
        """The backward pass of ``infer``.

        Returns:
            The gradients of ``taped.sources``; some may be ``None``.
        """
        found = taped.tape.gradient(taped.outputs, taped.sources, output_gradients=of_outputs)
        return [None if each is None else tf.convert_to_tensor(each) for each in found]

    def train(
        self, data: Tensors, part: ReplicaPart, *, arrived_at: Tensor | None
    ) -> tuple[Tensors, Tensor, Tensors]:
        """Train on this replica's part of the batch.

        Args:
            data: ``(x, y, sample_weight)`` of this replica.
            part: Its position and weight in the batch.
            arrived_at: The arrival time of the batch, as a ``tf.timestamp``; ``None`` where
                replicas are not timed.

        Returns:
            The model's outputs; this replica's part of the batch's loss, a scalar; and the
            seconds that it worked, or 0.
        """
        if arrived_at is not None:
            arrived_at = self._times.own_start(arrived_at)
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
        # A layer may replace a weight before it uses it, such as SpectralNormalization.
        used = [scope.get_current_value(variable) for variable in variables]
        gradients = tape.gradient(scaled, used)
        took = tf.zeros([], tf.float64)
        if arrived_at is not None:
            took = self._times.busy_seconds(arrived_at, loss, gradients)
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
            # Removed before the loss is computed: that may wait for the other replicas, whose
            # forward pass clears what the layers added here.
            added = [scope.losses.pop() for _ in [*scope.losses]]
            if added:
                self._replicas.add_loss(tf.zeros([]))  # there may be no other
            loss = self._replicas.compute_loss(x, y, y_pred, sample_weight, training=True)
        for value in added:
            of_part = added_loss(value, part.weight)
            loss += tf.cast(of_part, loss.dtype) * tf.cast(keras_scale(), loss.dtype)
        return y_pred, loss, scope

    def _update(self, gradients: list[Tensor], changes: Changes) -> None:
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
    """The forward pass of all replicas, differentiable in the weights and the inputs.

    A tape does not record replicas, because they are threads. Here it records one operation on
    the first device's weights and on the parts of the batch.

    Returns:
        Per replica, its outputs and added losses, as returned by ``ReplicaStep.infer``.
    """
    inputs, positions = zip(*given, strict=True)
    first_device = strategy.extended.worker_devices[0]
    taped = [Taped() for _ in given]
    computed: list[Tensors] = []

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def compute(*sources: Tensor) -> tuple[list[Tensor], Callable[..., list[Tensor]]]:
        parts = _in_place_of(inputs, sources[len(weights) :])
        infer = functools.partial(step.infer, training=training)
        returned = strategy.run(
            infer, args=per_replica(strategy, zip(parts, positions, taped, strict=True))
        )
        computed.extend(results_of(strategy, returned))

        def back(*of_outputs: Tensor) -> list[Tensor]:
            each = map(keras.tree.flatten, keras.tree.pack_sequence_as(computed, of_outputs))
            returned = strategy.run(
                step.gradients, args=per_replica(strategy, zip(each, taped, strict=True))
            )
            gradients = results_of(strategy, returned)
            of_weights = zip(*(own[: len(weights)] for own in gradients), strict=True)
            with tf.device(first_device):
                # On one device: TensorFlow loses gradients that are summed up over devices.
                summed = [None if own[0] is None else tf.add_n(own) for own in of_weights]
            return [*summed, *(gradient for own in gradients for gradient in own[len(weights) :])]

        flat: list[Tensor] = keras.tree.flatten(computed)
        return flat, back

    with tf.device(first_device):
        values = [tf.convert_to_tensor(value_of(variable)) for variable in weights]
        outputs = compute(*values, *keras.tree.flatten(inputs))
    replaced: list[Tensors] = _in_place_of(computed, outputs)
    return replaced


def _in_place_of(old: Tensors, new: Sequence[Tensor]) -> Tensors:
    """``new`` in the structure of ``old``, each tensor with the mask of the one it replaces."""
    replaced = zip(new, keras.tree.flatten(old), strict=True)
    fresh = [masked(tensor, mask_of(former)) for tensor, former in replaced]
    return keras.tree.pack_sequence_as(old, fresh)
