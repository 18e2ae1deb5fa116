"""The devices that the ``gpus`` of ``multi_gpu_model`` are: their names, and what runs on them."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Final

import keras
import tensorflow as tf

from trainer_hooks.multi_gpu.batch_split import Tensors
from trainer_hooks.multi_gpu.stand_ins import STAND_INS, names_of, stand_ins
from trainer_hooks.taps.keras_private import KEY_BASE

_NAME: Final = re.compile(r"(?:/?device:|/)?(gpu|cpu):(\d+)", re.IGNORECASE)


def device_names(gpus: int | Sequence[int | str] | None) -> tuple[str, ...]:
    """The devices that a batch is to be split over.

    Args:
        gpus: How many of the visible GPUs; or their indices, or names such as ``"GPU:1"``
            or ``"CPU:1"`` (a logical device), in the order of the ratios; ``None`` for all.

    Returns:
        TensorFlow's names, such as ``("GPU:0", "GPU:1")``; all of them exist. Where CPU devices
        stand in for GPUs, ``"GPU:0"`` means the first of these.

    Raises:
        ValueError: There is no such device, or none at all, or one is named twice.
    """
    logical = tf.config.list_logical_devices()
    known = [device.name.rsplit("device:", 1)[-1] for device in logical]
    visible = list(stand_ins()) or [name for name in known if name.startswith("GPU")]
    if gpus is None or (isinstance(gpus, int) and not isinstance(gpus, bool)):
        return _first(visible, gpus)
    if isinstance(gpus, (bool, str, bytes)) or not isinstance(gpus, Sequence):
        raise ValueError(
            f"gpus must be a number of GPUs, or a list of indices or of TensorFlow's device "
            f"names, and {gpus!r} is neither"
        )
    if not gpus:
        raise ValueError("gpus is an empty list: name at least one GPU, or leave gpus out for all")
    of_stand_in = dict(zip(names_of(stand_ins()), stand_ins(), strict=True))
    named = (_name(gpu, visible) for gpu in gpus)
    devices = tuple(of_stand_in.get(name, name) for name in named)
    for name, device in zip(names_of(devices), devices, strict=True):
        if device not in known:
            seen = ", ".join(names_of(known))
            raise ValueError(f"there is no device {name} here; TensorFlow sees {seen}")
        if devices.count(device) > 1:
            raise ValueError(
                f"gpus names {name} twice; each GPU can be given only one part of a batch"
            )
    return devices


def _first(visible: list[str], count: int | None) -> tuple[str, ...]:
    if not visible:
        raise ValueError(_no_gpu())
    if count is None:
        return tuple(visible)
    if not 1 <= count <= len(visible):
        seen = ", ".join(names_of(visible))
        listed = (
            f"; TensorFlow does not list the stand-ins of ${STAND_INS} as GPUs: leave gpus out"
            if stand_ins()
            else ""
        )
        raise ValueError(f"gpus={count}, and TensorFlow sees {len(visible)}: {seen}{listed}")
    return tuple(visible[:count])


def _name(gpu: object, visible: list[str]) -> str:
    if isinstance(gpu, int) and not isinstance(gpu, bool):
        if not visible:
            raise ValueError(_no_gpu())
        if not 0 <= gpu < len(visible):
            seen = ", ".join(names_of(visible))
            raise ValueError(f"gpus names GPU {gpu}, and TensorFlow sees {len(visible)}: {seen}")
        return visible[gpu]
    matched = _NAME.fullmatch(gpu) if isinstance(gpu, str) else None
    if matched is None:
        raise ValueError(
            f"{gpu!r} in gpus is neither the index of a GPU nor a name such as 'GPU:0' or 'CPU:1'"
        )
    return f"{matched[1].upper()}:{int(matched[2])}"


def _no_gpu() -> str:
    return (
        "TensorFlow sees no GPU here; to try without one name logical CPU devices, such as "
        f"gpus=['CPU:0', 'CPU:1'], or run the script as it is with {STAND_INS}=2"
    )


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
        {KEY_BASE: next(_bases)},
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
