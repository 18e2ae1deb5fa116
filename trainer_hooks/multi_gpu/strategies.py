"""One ``MirroredStrategy`` for each set of devices, none of which disturbs another."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from itertools import count
from typing import Final

import keras
import tensorflow as tf

from trainer_hooks.multi_gpu.tensors import Tensors

_KEYS_EACH: Final = 1_000
_bases = count(_KEYS_EACH, _KEYS_EACH)


@functools.cache
def strategy_over(devices: tuple[str, ...]) -> tf.distribute.MirroredStrategy:
    """The strategy over these devices; the same one for the same devices.

    TensorFlow numbers the groups of devices of each strategy from 1. Two strategies in one
    process then mean different devices by one number, and the operations that join them fail or
    take the values of the other: so each has numbers of its own here.

    Args:
        devices: TensorFlow's names, such as ``("GPU:0", "GPU:1")``.

    Returns:
        With ``trainings``, which see, of ``shared_weights.trained_here``.
    """
    numbered = type(
        "NumberedStrategy",
        (tf.distribute.MirroredStrategy,),
        {"_collective_key_base": next(_bases)},
    )
    strategy = numbered(list(devices))
    strategy.trainings = []
    return strategy


def dealt(strategy: tf.distribute.MirroredStrategy, given: Iterable[Tensors]) -> Tensors:
    """What ``strategy.run`` is to give each replica, in the order of the devices."""
    each = list(given)
    return strategy.experimental_distribute_values_from_function(
        lambda context: each[context.replica_id_in_sync_group]
    )


def of_each(strategy: tf.distribute.MirroredStrategy, told: Tensors) -> list[Tensors]:
    """What each replica told ``strategy.run``, in that order, each in its own structure."""
    count = strategy.num_replicas_in_sync
    flat = [
        [None] * count if value is None else strategy.experimental_local_results(value)
        for value in keras.tree.flatten(told)
    ]
    return [
        keras.tree.pack_sequence_as(told, [values[at] for values in flat]) for at in range(count)
    ]
