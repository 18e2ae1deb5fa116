"""What a forward pass changes by itself: statistics, random seeds, counters, metrics of layers."""

from __future__ import annotations

from typing import NamedTuple

import keras
import tensorflow as tf

from trainer_hooks.multi_gpu.batch_split import ReplicaPart, Setting, Tensor
from trainer_hooks.multi_gpu.shared_weights import metric_variables

_SEED_STATE = "seed_generator_state"


class Changes(NamedTuple):
    """What is to be stored; pairs of a mirrored variable and a tensor of its shape.

    Attributes:
        summed: The new value is the sum over the replicas.
        same: Every replica has come to the new value by itself.
    """

    summed: tuple[tuple[Tensor, Tensor], ...]
    same: tuple[tuple[Tensor, Tensor], ...]


class ForwardState:
    """The state of one replica before its forward pass, and after.

    The layers run stateless: what they would do comes back as values, and is put together
    before it is stored. Statistics are averaged over the replicas that had a sample, a metric
    of a layer counts every sample, a seed or a counter takes the same step everywhere.

    Args:
        model: Made in the scope of the strategy.
        part: Which part of the batch this replica has.
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
        """Each variable and its value before, as ``keras.StatelessScope`` takes them."""
        return [*self._state, *self._metrics]

    def changes(self, scope: keras.StatelessScope) -> Changes:
        """What the layers did since, within ``scope``."""
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
                # What was there is counted once, by the replicas that have a sample together.
                there = tf.cast(tf.cast(old, tf.float32) * self._part.in_average, new.dtype)
                summed.append((variable.value, there + (new - old) * tf.cast(is_fed, new.dtype)))
        return Changes(tuple(summed), tuple(same))


def store(changes: Changes, sums: list[Tensor]) -> None:
    """Give all copies the new values; called by each replica, with the sums of what is summed."""
    variables = [variable for variable, _ in [*changes.summed, *changes.same]]
    if variables:
        values = [*sums, *(value for _, value in changes.same)]
        tf.distribute.get_replica_context().merge_call(_store, args=(variables, values))


def store_summed(changes: Changes) -> None:
    """As ``store``, where nothing else is to be added up over the replicas with it."""
    values = [value for _, value in changes.summed]
    context = tf.distribute.get_replica_context()
    store(changes, context.all_reduce(tf.distribute.ReduceOp.SUM, values) if values else [])


def _store(strategy: tf.distribute.Strategy, variables: list[Tensor], values: list[Tensor]) -> None:
    for variable, value in zip(variables, values, strict=True):
        strategy.extended.update(
            variable, lambda copy, new: copy.assign(new), args=(value,), group=False
        )


def _own_value(variable: Setting, replica: Tensor) -> Tensor:
    """The value of a variable; of a random seed, one that is this replica's own.

    Otherwise Dropout would leave out the same places of every replica's part.
    """
    value = tf.convert_to_tensor(variable.value)
    if variable.name.startswith(_SEED_STATE):
        return value + tf.stack([tf.cast(replica, value.dtype), tf.zeros([], value.dtype)])
    return value
