"""A training run on three devices in its own process, killed within an epoch.

python -m tests.multi_gpu.killed_training BACKUP
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from itertools import count
from typing import Any

import keras
import tensorflow as tf


def trained(devices: int, backup: str, *, ended_by: Callable[[], Any] | None = None) -> Any:
    """A model trained with a backup after every second step; continues from a backup, if any."""
    from tests.multi_gpu import builders_parallel as b

    steps = count(1)

    def end(batch: int, logs: Any) -> None:
        if ended_by is not None and next(steps) == 5:
            ended_by()

    model = b.dense() if devices == 1 else b.parallel(b.dense())
    model.compile(keras.optimizers.Adam(0.05), loss="sparse_categorical_crossentropy")
    x, y, _ = b.rows()
    callbacks = [
        keras.callbacks.BackupAndRestore(backup, save_freq=2),
        keras.callbacks.LambdaCallback(on_train_batch_end=end),
    ]
    model.fit(x, y, batch_size=28, epochs=2, shuffle=False, verbose=0, callbacks=callbacks)
    return model


if __name__ == "__main__":
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
    )
    trained(3, sys.argv[1], ended_by=lambda: os.kill(os.getpid(), signal.SIGKILL))
