"""A training in a process of its own, which ends as by a power cut, or tells what it has trained.

python -m tests.multi_gpu.killed_training DEVICES BACKUP STEP|never WEIGHTS
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf


def main(devices: str, backup: str, killed_at: str, told: str) -> None:
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
    )
    from tests.multi_gpu import builders_parallel as b

    steps = iter(range(1, 1_000))

    def killed(batch: int, logs: Any) -> None:
        if str(next(steps)) == killed_at:
            os.kill(os.getpid(), signal.SIGKILL)

    model = b.dense()
    if devices != "1":
        model = b.parallel(model)
    model.compile(keras.optimizers.Adam(0.05), loss="sparse_categorical_crossentropy")
    x, y, _ = b.rows()
    callbacks = [
        keras.callbacks.BackupAndRestore(backup, save_freq=2),
        keras.callbacks.LambdaCallback(on_train_batch_end=killed),
    ]
    model.fit(x, y, batch_size=28, epochs=2, shuffle=False, verbose=0, callbacks=callbacks)
    state = [*model.get_weights(), *map(keras.ops.convert_to_numpy, model.optimizer.variables)]
    np.savez(told, *state)


if __name__ == "__main__":
    main(*sys.argv[1:])
