"""Runs fits in turns on sleeping devices, in TensorFlow's environment, and prints JSON.

    python -m benchmarks.rivals.ratio_fits --part overhead --step-ms 50 --rounds 5

For each case and round: the seconds from the start of each step to the next on the first device,
and the CPU time of the process per sample. ``bench_ratio_model`` starts this.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple

os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf

from tests.multi_gpu import slow_devices as slow

DEVICES = ("CPU:1", "CPU:2", "CPU:3", "CPU:4")
slow.threads_for_sleepers()
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * (len(DEVICES) + 1),
)

import keras  # noqa: E402
import numpy as np  # noqa: E402

from trainer_hooks.multi_gpu import multi_gpu_model  # noqa: E402

PER_DEVICE = 50
STEPS = 20
FEATURES = 32


class Case(NamedTuple):
    """A compiled model, its batch size and its devices."""

    model: Any
    batch: int
    devices: slow.SlowDevices


Builder = Callable[[slow.SlowDevices], Any]


def deep_classifier(devices: slow.SlowDevices) -> Any:  # noqa: ANN401
    """Twenty dense layers with BatchNorm: 122 variables, 40 of them moving statistics."""
    layers = keras.layers
    block = [[layers.Dense(32), layers.BatchNormalization(), layers.ReLU()] for _ in range(20)]
    last = [devices.layer(), layers.Dense(10, activation="softmax")]
    return keras.Sequential([layers.Input((FEATURES,)), *chain(*block), *last])


def one(step_s: float, build: Builder = slow.slow_classifier) -> Case:
    """Plain Keras on one device that takes ``step_s`` per step."""
    devices = slow.SlowDevices([step_s / PER_DEVICE])
    return Case(_compiled(build(devices)), PER_DEVICE, devices)


def mirrored(step_s: float, count: int, build: Builder) -> Case:
    """Plain MirroredStrategy with equal parts."""
    devices = slow.SlowDevices([step_s / PER_DEVICE] * count)
    with tf.distribute.MirroredStrategy(list(DEVICES[:count])).scope():
        model = _compiled(build(devices))
    return Case(model, PER_DEVICE * count, devices)


def ratio(
    step_s: float,
    ratios: Sequence[int],
    build: Builder = slow.slow_classifier,
    *,
    is_timed: bool = False,
) -> Case:
    """The ratio model on devices as unequal as the ratios: each takes ``step_s`` per step."""
    count = len(ratios)
    batch = PER_DEVICE * count
    devices = slow.SlowDevices([step_s * sum(ratios) / (part * batch) for part in ratios])
    model = multi_gpu_model(build(devices), gpus=list(DEVICES[:count]), ratios=ratios)
    if is_timed:
        model.time_replicas()
    return Case(_compiled(model), batch, devices)


def _compiled(model: Any) -> Any:  # noqa: ANN401
    model.compile(
        optimizer=keras.optimizers.SGD(0.01),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model


def overhead(step_s: float, build: Builder = slow.slow_classifier) -> dict[str, Case]:
    """The same model and global batch on two devices in several ways, and on one device."""
    return {
        "one": one(step_s, build),
        "mirrored": mirrored(step_s, 2, build),
        "even": ratio(step_s, (1, 1), build),
        "3:2": ratio(step_s, (3, 2), build),
        "timed": ratio(step_s, (3, 2), build, is_timed=True),
    }


def deep(step_s: float) -> dict[str, Case]:
    """The same for a model with many variables."""
    return overhead(step_s, deep_classifier)


def scaling(step_s: float) -> dict[str, Case]:
    """One to four devices that take ``step_s`` each for equally many samples."""
    more = {str(count): ratio(step_s, (1,) * count) for count in range(2, len(DEVICES) + 1)}
    return {"1": one(step_s), **more}


Round = dict[str, Any]


def measure(cases: dict[str, Case], rounds: int, steps: int) -> dict[str, list[Round]]:
    """Fit each case once to trace it, then all in turns."""
    figures: dict[str, list[Round]] = {name: [] for name in cases}
    for case in cases.values():
        _fit(case, 2)
    for _ in range(rounds):
        for name, case in cases.items():
            figures[name].append(_fit(case, steps))
    return figures


def _fit(case: Case, steps: int, *callbacks: Any) -> Round:  # noqa: ANN401
    x = np.random.default_rng(0).random((case.batch * steps, FEATURES)).astype("float32")
    y = np.zeros(len(x), int)
    case.devices.spans.clear()
    began_s = time.process_time()
    case.model.fit(x, y, batch_size=case.batch, shuffle=False, verbose=0, callbacks=list(callbacks))
    spent_s = time.process_time() - began_s
    return {"step_seconds": case.devices.step_seconds(), "cpu_seconds": spent_s / len(x)}


def wide_classifier(devices: slow.SlowDevices) -> Any:  # noqa: ANN401
    """Layers with 64 MB of weights."""
    layers = keras.layers
    wide = [layers.Dense(2048, use_bias=False) for _ in range(5)]
    return keras.Sequential([layers.Input((FEATURES,)), *wide, devices.layer()])


class Reads(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Reads all weights after each batch and measures the time."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        began_s = time.perf_counter()
        self.model.get_weights()
        self.seconds.append(time.perf_counter() - began_s)


def reading(rounds: int, steps: int) -> dict[str, list[list[float]]]:
    """Seconds per ``get_weights`` after a batch, and for copying the same arrays."""
    cases = {"one": one(0.0, wide_classifier), "even": ratio(0.0, (1, 1), wide_classifier)}
    figures: dict[str, list[list[float]]] = {"copy": [], **{name: [] for name in cases}}
    for case in cases.values():
        _fit(case, 2)
    for _ in range(rounds):
        for name, case in cases.items():
            reads = Reads()
            _fit(case, steps, reads)
            figures[name].append(reads.seconds)
        arrays = case.model.get_weights()
        copied = []
        for _ in range(steps):
            began_s = time.perf_counter()
            _ = [array.copy() for array in arrays]
            copied.append(time.perf_counter() - began_s)
        figures["copy"].append(copied)
    return figures


PARTS: dict[str, Callable[[float], dict[str, Case]]] = {
    "overhead": overhead,
    "deep": deep,
    "scaling": scaling,
}


def main() -> None:
    """Print the measurements of a part as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=(*PARTS, "reading"), required=True)
    parser.add_argument("--step-ms", type=float, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--steps", type=int, default=STEPS)
    args = parser.parse_args()
    if args.part == "reading":
        print(json.dumps(reading(args.rounds, args.steps)))
    else:
        cases = PARTS[args.part](args.step_ms / 1e3)
        print(json.dumps(measure(cases, args.rounds, args.steps)))


if __name__ == "__main__":
    main()
