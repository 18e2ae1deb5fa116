"""Keras fits in turns, in an interpreter that has one backend: prints a JSON line for each.

    KERAS_BACKEND=jax .venv-jax/bin/python -m benchmarks.rivals.keras_fits --kind period

``period``: a device that works 10 ms a step, for which the host only waits.
The time between two steps is taken by the device itself, so no hook has a part
in it. ``hidden``: JAX computes 10 ms a step in earnest and does not wait for
it; each batch takes the host 4 ms, which a hook must not bring to light.
``code``: Keras' own loop around a step that does nothing at all, so
that of each step nothing is left but Keras' calls and the hook's. ``hook``: the
same calls over and over, without Keras' loop, so that the hook is alone.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# One core computes, so that the host has one to prepare batches on.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
import keras
import numpy as np

from benchmarks.rivals.keras_callbacks import CALLBACKS
from benchmarks.rivals.keras_steps import loop_us

STEP_S = 0.010
HIDDEN_INPUT_S = 0.004
WARM_UP_STEPS = 20
WINDOW_STEPS = 20
WIDTH = 4
ROWS = np.ones((8, WIDTH), "float32")
LABELS = np.ones((8, 1), "float32")
Figures = dict[str, list[float]]
BACKEND = keras.backend.backend()


class Device:
    """Works for a while, and knows when it began.

    Attributes:
        began: Nanoseconds by the wall, by the CPU of the thread that trains,
            and by that of all threads.
    """

    def __init__(self) -> None:
        self.began: list[tuple[int, int, int]] = []
        self._trainer_clock = time.pthread_getcpuclockid(threading.get_ident())

    def work(self, rows: Any) -> Any:  # noqa: ANN401
        trainer_ns = time.clock_gettime_ns(self._trainer_clock)
        self.began.append((time.perf_counter_ns(), trainer_ns, time.process_time_ns()))
        time.sleep(STEP_S)
        return rows


def slow_model(device: Device) -> keras.Model:
    """A model whose every step has the device work first."""

    class OnJax(keras.Sequential):  # type: ignore[misc]
        def train_step(self, state: Any, data: Any) -> Any:  # noqa: ANN401
            import jax

            shape = jax.ShapeDtypeStruct(data[0].shape, data[0].dtype)
            rows = jax.pure_callback(lambda r: np.asarray(device.work(r)), shape, data[0])
            return super().train_step(state, (rows, data[1]))

    class OnTensorflow(keras.Sequential):  # type: ignore[misc]
        def train_step(self, data: Any) -> Any:  # noqa: ANN401
            import tensorflow

            rows = tensorflow.numpy_function(device.work, [data[0]], tensorflow.float32)
            rows.set_shape(data[0].shape)
            return super().train_step((rows, data[1]))

    class OnTorch(keras.Sequential):  # type: ignore[misc]
        def train_step(self, data: Any) -> Any:  # noqa: ANN401
            return super().train_step((device.work(data[0]), data[1]))

    return compiled({"jax": OnJax, "tensorflow": OnTensorflow, "torch": OnTorch}[BACKEND])


def empty_model() -> keras.Model:
    """A model whose step is a Python function that does nothing, but for fetching on JAX.

    On TensorFlow, where the wait for input is inside the step's graph, it is
    the graph of one small layer.
    """

    def on_jax(state: Any, iterator: Any) -> Any:  # noqa: ANN401
        next(iterator)
        return {}, state

    def on_torch(data: Any) -> Any:  # noqa: ANN401
        return {}

    class Empty(keras.Sequential):  # type: ignore[misc]
        def make_train_function(self, force: bool = False) -> None:
            if self.train_function is None or force:
                self.train_function = on_jax if BACKEND == "jax" else on_torch

    return compiled(keras.Sequential if BACKEND == "tensorflow" else Empty)


def busy_model() -> keras.Model:
    """A model whose step computes for about 10 ms on this machine."""
    width = width_for(STEP_S)
    return compiled(keras.Sequential, *[keras.layers.Dense(width) for _ in range(3)])


@cache
def width_for(step_s: float) -> int:
    """How wide three layers are for a step of at least that long here, at its fastest."""
    width, found_s = 256, 0.0
    while found_s < step_s:
        width = int(width * 1.25)
        model = compiled(keras.Sequential, *[keras.layers.Dense(width) for _ in range(3)])
        found_s = min(fit_s(model, 10) for _ in range(4)) / 10
    return width


def fit_s(model: Any, steps: int) -> float:  # noqa: ANN401
    """Seconds of one fit."""
    began_s = time.perf_counter()
    model.fit(endless(0.0), steps_per_epoch=steps, verbose=0)
    return time.perf_counter() - began_s


def endless(input_s: float) -> Iterator[Any]:
    """Batches that take the host so long."""
    while True:
        if input_s:
            time.sleep(input_s)
        yield ROWS, LABELS


def compiled(kind: type[Any], *layers: Any) -> Any:  # noqa: ANN401
    """A small model, ready to be trained."""
    model = kind([keras.layers.Input((WIDTH,)), *layers, keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=BACKEND == "jax")
    return model


def period_us(model: Any, callbacks: list[Any], steps: int, device: Device) -> Figures:  # noqa: ANN401
    """Microseconds from step to step on the device, and of CPU.

    One figure for each stretch of some steps, so that what a hook does only
    now and then is in it, and what the machine did to one stretch is not in all.
    """
    device.began.clear()
    steps += WARM_UP_STEPS
    model.fit(endless(0.0), steps_per_epoch=steps, verbose=0, callbacks=callbacks)
    edges = device.began[-steps:][WARM_UP_STEPS - 1 :: WINDOW_STEPS]
    wall, thread, process = (
        [(end - start) / WINDOW_STEPS / 1e3 for start, end in pairwise(clock)]
        for clock in zip(*edges, strict=True)
    )
    return {"us": wall, "thread_us": thread, "cpu_us": process}


def hidden_us(model: Any, callbacks: list[Any], steps: int) -> Figures:  # noqa: ANN401
    """Microseconds a step of a whole fit, from before its first batch to its end."""
    batches = endless(HIDDEN_INPUT_S)
    next(batches)
    began_ns = time.perf_counter_ns()
    model.fit(batches, steps_per_epoch=steps, verbose=0, callbacks=callbacks)
    return {"us": [(time.perf_counter_ns() - began_ns) / steps / 1e3]}


def code_us(model: Any, callbacks: list[Any], steps: int) -> Figures:  # noqa: ANN401
    """Microseconds of CPU that a step takes: of all threads, and of the one that trains."""
    marks: list[tuple[int, int]] = []

    def batches() -> Iterator[Any]:
        for _ in range(WARM_UP_STEPS):
            yield ROWS, LABELS
        marks.append((time.process_time_ns(), time.thread_time_ns()))
        for _ in range(steps):
            yield ROWS, LABELS
        marks.append((time.process_time_ns(), time.thread_time_ns()))
        while True:
            yield ROWS, LABELS

    fitted = steps + 2 * WARM_UP_STEPS
    model.fit(batches(), steps_per_epoch=fitted, verbose=0, callbacks=callbacks)
    (process_0, thread_0), (process_1, thread_1) = marks
    return {
        "us": [(process_1 - process_0) / steps / 1e3],
        "thread_us": [(thread_1 - thread_0) / steps / 1e3],
    }


def hook_us(model: Any, callbacks: list[Any], steps: int) -> Figures:  # noqa: ANN401
    """Microseconds of CPU that a step of Keras' calls takes, hot."""
    return {"us": [loop_us(model, callbacks, (ROWS, LABELS), steps)]}


def steps_counted(name: str) -> int:
    """Steps in gpumon's ring so far, if this variant has one."""
    if "gpumon" not in name:
        return 0
    from trainer_hooks.ring.process_ring import process_ring

    writer = process_ring().writer
    return 0 if writer is None else writer.steps


def main() -> int:
    """Fit in turns and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=("period", "hidden", "code", "hook"), required=True)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--variants", nargs="+", choices=tuple(CALLBACKS), required=True)
    args = parser.parse_args()
    if BACKEND == "torch":
        import torch

        torch.set_num_threads(1)  # its threads would wait for each other on a busy machine
    device = Device()
    new_model, take = {
        "period": (lambda: slow_model(device), lambda *what: period_us(*what, device)),
        "hidden": (busy_model, hidden_us),
        "code": (empty_model, code_us),
        "hook": (empty_model, hook_us),
    }[args.kind]
    models = {name: new_model() for name in args.variants}
    for number in range(-1, args.rounds):  # the first round compiles
        order = list(args.variants)
        random.Random(number).shuffle(order)
        for name in order:
            counted = steps_counted(name)
            figures = take(models[name], CALLBACKS[name](), args.steps)
            counted = steps_counted(name) - counted
            if "gpumon" in name and counted < args.steps:
                # A hook that gave up costs nothing: that would be no figure of it.
                raise SystemExit(f"gpumon counted {counted} steps of {args.steps} and more")
            if number >= 0:
                line = {"variant": name, "round": number, **figures}
                print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
    raise SystemExit(main())
