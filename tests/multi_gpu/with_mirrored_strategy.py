"""Runs in its own process: a plain MirroredStrategy, and models made before, with and after it.

TensorFlow numbers the device groups of each plain strategy from 1, so that a second strategy fails,
and after it every model on several devices of the process.
"""

from __future__ import annotations

import json
from typing import Any

import tensorflow as tf


def main() -> None:
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 4
    )
    import keras

    from tests.keras.builders_keras import phase_ns
    from tests.multi_gpu import builders_middle as middle_builders
    from tests.multi_gpu import builders_parallel as builders
    from trainer_hooks import PhaseTagger
    from trainer_hooks.batches import fixed_batches

    x, y = middle_builders.rows()

    def evaluated(model: Any, *callbacks: Any) -> Any:
        data = {"x": x, "y": y, "validation_data": (x, y), "shuffle": False}
        fitted = model.fit(**data, callbacks=callbacks, verbose=0)
        return [*fitted.history["val_loss"], *model.evaluate(x, y, verbose=0)]

    def refusal(act: Any, *data: Any, **named: Any) -> str:
        try:
            act(*data, verbose=0, **named)
        except ValueError as error:
            return str(error)
        return "none"

    before, one = middle_builders.made(2)[1], middle_builders.made(1)[1]
    with tf.distribute.MirroredStrategy(["CPU:1", "CPU:2"]).scope():
        mirrored = middle_builders.made(1)[1]
    expected = evaluated(one)
    losses = {"mirrored": evaluated(mirrored, PhaseTagger()), "before": evaluated(before)}
    losses["with it"] = evaluated(middle_builders.made(2)[1])
    keras.utils.clear_session()
    losses["cleared"] = evaluated(middle_builders.made(3)[1])
    results: dict[str, Any] = {
        name: builders.furthest([values], [expected]) for name, values in losses.items()
    }
    results["tagged"] = phase_ns()["validation"] > 0
    samples = tf.data.Dataset.from_tensor_slices((x, y))
    for kind, data in (("arrays", (x, y)), ("tf.data", samples)):
        copies = fixed_batches(data, 8, tail="pad")
        mirrored.fit(copies, verbose=0)
        results[kind] = [
            refusal(mirrored.evaluate, copies),
            refusal(mirrored.fit, x, y, validation_data=copies),
        ]
    print(json.dumps(results))


if __name__ == "__main__":
    main()
