"""One ``MirroredStrategy`` for each set of devices, none of which disturbs another."""

from __future__ import annotations

import functools
from itertools import count
from typing import Final

import tensorflow as tf

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
    """
    numbered = type(
        "NumberedStrategy",
        (tf.distribute.MirroredStrategy,),
        {"_collective_key_base": next(_bases)},
    )
    return numbered(list(devices))
