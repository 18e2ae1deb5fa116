"""Logical CPU devices that stand in for GPUs: a script for several GPUs runs as it is without one.

::

    GPUMON_STAND_IN_GPUS=2 python train.py

TensorFlow makes its devices once, when a script makes its first tensor or model. A script that
imports ``multi_gpu_model`` later than that starts again from the top, with the devices made first.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NoReturn

import tensorflow as tf

STAND_INS: Final = "GPUMON_STAND_IN_GPUS"
"""Set to a number N, GPUs 0 to N-1 of a script are as many logical CPU devices."""

_MOST: Final = 64
_STARTED_AGAIN: Final = "GPUMON_STAND_INS_COME_FIRST"
"""Set in the second start of a script: there is no third."""


def stand_ins() -> tuple[str, ...]:
    """The devices that stand in for GPUs 0, 1 and so on; empty: the real GPUs are used.

    Raises:
        ValueError: ``$GPUMON_STAND_IN_GPUS`` is not a number from 1 to 64.
    """
    wanted = os.environ.get(STAND_INS, "")
    if not wanted:
        return ()
    if not wanted.isdecimal() or not 1 <= int(wanted) <= _MOST:
        raise ValueError(
            f"${STAND_INS} must be a number of devices from 1 to {_MOST}, not {wanted!r}"
        )
    # CPU:0 stays the host, which splits and merges.
    return tuple(f"CPU:{number}" for number in range(1, int(wanted) + 1))


def names_of(devices: Iterable[str]) -> tuple[str, ...]:
    """What a user calls these devices: a stand-in has the name of its GPU, such as ``"GPU:0"``."""
    gpus = {device: f"GPU:{gpu}" for gpu, device in enumerate(stand_ins())}
    return tuple(gpus.get(device, device) for device in devices)


def make_stand_ins() -> None:
    """Make the devices that ``$GPUMON_STAND_IN_GPUS`` asks for, where it does.

    Where TensorFlow has made its devices already, a script (``python train.py``) starts again:
    this does not return.

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
    """The path of the script that this process runs, if it is one that can start again."""
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    is_module = getattr(main, "__spec__", None) is not None
    if path is None or is_module or os.environ.get(_STARTED_AGAIN) or not Path(path).is_file():
        return None
    is_installed = Path(path).parent == Path(sys.executable).parent  # such as pytest's
    return None if is_installed else path


def _start_again(script: str, words: Sequence[str]) -> NoReturn:
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
        [sys.executable, "-m", __name__, script, *words],
        {**os.environ, "PYTHONPATH": found_in, _STARTED_AGAIN: "1"},
    )


def run(script: str, words: Sequence[str]) -> None:
    """Make the stand-ins, then run a script with these arguments."""
    make_stand_ins()
    sys.argv = [script, *words]
    sys.path[0] = str(Path(script).resolve().parent)
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    run(sys.argv[1], sys.argv[2:])
