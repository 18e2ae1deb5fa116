"""The devices of a parallel model: their names, stand-ins for GPUs, and the strategy over them.

A script for several GPUs runs unchanged on a machine without one::

    GPUMON_STAND_IN_GPUS=2 python train.py

Logical CPU devices then stand in for GPUs. TensorFlow creates its devices once, with a script's
first tensor or model. A script that imports ``multi_gpu_model`` later than that is started again
from the top, with the stand-ins created first.
"""

from __future__ import annotations

import functools
import os
import re
import runpy
import sys
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Final, NoReturn

import keras
import tensorflow as tf

from trainer_hooks.multi_gpu.batch_split import Tensors
from trainer_hooks.taps.keras_private import KEY_BASE

STAND_INS: Final = "GPUMON_STAND_IN_GPUS"
"""Set to a number N, GPUs 0 to N-1 of a script are logical CPU devices."""

_MOST_STAND_INS: Final = 64
_STARTED_AGAIN: Final = "GPUMON_STAND_INS_COME_FIRST"
"""Set in the second start of a script: there is no third."""

_NAME: Final = re.compile(r"(?:/?device:|/)?(gpu|cpu):(\d+)", re.IGNORECASE)


def device_names(gpus: int | Sequence[int | str] | None) -> tuple[str, ...]:
    """The devices that a batch is split over.

    Args:
        gpus: How many of the visible GPUs; or their indices, or names such as ``"GPU:1"``
            or ``"CPU:1"`` (a logical device), in the order of the ratios; ``None`` for all.

    Returns:
        TensorFlow's names of existing devices, such as ``("GPU:0", "GPU:1")``. Where CPU devices
        stand in for GPUs, ``"GPU:0"`` means the first of them.

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


def stand_ins() -> tuple[str, ...]:
    """The devices that stand in for GPUs 0, 1 and so on; empty where the real GPUs are used.

    Raises:
        ValueError: ``$GPUMON_STAND_IN_GPUS`` is not a number from 1 to 64.
    """
    wanted = os.environ.get(STAND_INS, "")
    if not wanted:
        return ()
    if not wanted.isdecimal() or not 1 <= int(wanted) <= _MOST_STAND_INS:
        raise ValueError(
            f"${STAND_INS} must be a number of devices from 1 to {_MOST_STAND_INS}, not {wanted!r}"
        )
    # CPU:0 stays the host, which splits and merges.
    return tuple(f"CPU:{number}" for number in range(1, int(wanted) + 1))


def names_of(devices: Iterable[str]) -> tuple[str, ...]:
    """What users call these devices: a stand-in has the name of its GPU, such as ``"GPU:0"``."""
    gpus = {device: f"GPU:{gpu}" for gpu, device in enumerate(stand_ins())}
    return tuple(gpus.get(device, device) for device in devices)


def make_stand_ins() -> None:
    """Create the devices of ``$GPUMON_STAND_IN_GPUS``.

    Where TensorFlow has created its devices already, a script (``python train.py``) is started
    again: this does not return.

    Raises:
        ValueError: The number is wrong; or it is too late, and this process is no script.
    """
    wanted = stand_ins()
    if not wanted:
        return
    host = tf.config.list_physical_devices("CPU")[0]
    if tf.config.get_logical_device_configuration(host) is None:
        devices = [tf.config.LogicalDeviceConfiguration()] * (len(wanted) + 1)
        try:
            tf.config.set_logical_device_configuration(host, devices)
        except RuntimeError as error:
            script = _script()
            if script is None:
                raise ValueError(
                    f"${STAND_INS}={len(wanted)} comes too late, because TensorFlow has started: "
                    "import multi_gpu_model before the first model or tensor is made"
                ) from error
            _start_again(script, sys.argv[1:])


def _script() -> str | None:
    """The path of this process' script, if it is one that can start again."""
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    is_module = getattr(main, "__spec__", None) is not None
    if path is None or is_module or os.environ.get(_STARTED_AGAIN) or not Path(path).is_file():
        return None
    is_installed = Path(path).parent == Path(sys.executable).parent  # such as pytest's
    return None if is_installed else path


def _start_again(script: str, arguments: Sequence[str]) -> NoReturn:
    sys.stderr.write(
        f"gpumon: {script} imports multi_gpu_model after TensorFlow has made its devices, so it "
        f"starts again with those of ${STAND_INS}\n"
    )
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    here = str(Path(__file__).resolve().parents[2])  # the script may have added it to sys.path
    found_in = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), here)))
    os.execve(
        sys.executable,
        [sys.executable, "-m", __name__, script, *arguments],
        {**os.environ, "PYTHONPATH": found_in, _STARTED_AGAIN: "1"},
    )


def run_on_stand_ins(script: str, arguments: Sequence[str]) -> None:
    """Create the stand-ins, then run a script with these arguments."""
    make_stand_ins()
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).resolve().parent)
    runpy.run_path(script, run_name="__main__")


_KEYS_PER_STRATEGY: Final = 1_000
_key_bases = count(_KEYS_PER_STRATEGY, _KEYS_PER_STRATEGY)


@functools.cache
def strategy_over(devices: tuple[str, ...]) -> tf.distribute.MirroredStrategy:
    """The strategy over these devices; always the same one for the same devices.

    TensorFlow numbers the device groups of each strategy from 1. Two strategies in one process
    then use one number for different devices, and the operations that join them fail or take each
    other's values: so each strategy gets numbers of its own here.

    Args:
        devices: TensorFlow's names, such as ``("GPU:0", "GPU:1")``.

    Returns:
        A strategy with the attribute ``active_fits``; see ``shared_weights.trained_here``.
    """
    numbered = type(
        "NumberedStrategy",
        (tf.distribute.MirroredStrategy,),
        {KEY_BASE: next(_key_bases)},
    )
    strategy = numbered(list(devices))
    strategy.active_fits = []
    return strategy


def per_replica(strategy: tf.distribute.MirroredStrategy, values: Iterable[Tensors]) -> Tensors:
    """Arguments for ``strategy.run``: one per replica, in the order of the devices."""
    each = list(values)
    return strategy.experimental_distribute_values_from_function(
        lambda context: each[context.replica_id_in_sync_group]
    )


def results_of(strategy: tf.distribute.MirroredStrategy, returned: Tensors) -> list[Tensors]:
    """What ``strategy.run`` returned, per replica in the same order, each in its structure."""
    count = strategy.num_replicas_in_sync
    flat = [
        [None] * count if value is None else strategy.experimental_local_results(value)
        for value in keras.tree.flatten(returned)
    ]
    return [
        keras.tree.pack_sequence_as(returned, [values[at] for values in flat])
        for at in range(count)
    ]


if __name__ == "__main__":
    run_on_stand_ins(sys.argv[1], sys.argv[2:])
