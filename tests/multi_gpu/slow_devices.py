"""Devices that take a given time for each sample: they sleep in parallel, on any machine.

The layer of the example sleeps where a GPU would compute. The recorded times are the ground truth
about each device.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations, pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tests.imported_later import ImportedLater
from tests.multi_gpu.builders_parallel import parallel

example: Any = ImportedLater("examples.unequal_gpus")


class Span(NamedTuple):
    """One pass of one device over its part of a batch; times of ``time.perf_counter``."""

    replica: int
    is_forward: bool
    began_s: float
    ended_s: float
    samples: int


class SlowDevices:
    """Devices with their seconds per sample and the spans recorded so far."""

    def __init__(self, sample_seconds: Sequence[float]) -> None:
        self.sample_seconds = tuple(sample_seconds)
        self.spans: list[Span] = []
        self._lock = threading.Lock()

    def layer(self) -> Any:
        """An identity layer that takes the device's time."""
        count = len(self.sample_seconds)
        # A model on one device is traced where none is named.
        names = [f"CPU:{number}" for number in range(1, 1 + count)] if count > 1 else [""]
        gpus = {
            name: SimpleNamespace(compute=partial(self._work, replica))
            for replica, name in enumerate(names)
        }
        return example.SleepingCompute(gpus)

    def _work(self, replica: int, rows: Any, part: float) -> Any:
        began_s = time.perf_counter()
        time.sleep(self.sample_seconds[replica] * len(rows) * part)
        with self._lock:
            ended_s = time.perf_counter()
            self.spans.append(Span(replica, part < 0.5, began_s, ended_s, len(rows)))
        return rows

    def step_seconds(self) -> list[float]:
        """From the start of each step to that of the next, on the first device."""
        began = [span.began_s for span in self.spans if span.replica == 0 and span.is_forward]
        return [later - sooner for sooner, later in pairwise(began)]

    def samples_of(self, replica: int) -> list[int]:
        """The device's samples in each step."""
        return [s.samples for s in self.spans if s.replica == replica and s.is_forward]


def slow_classifier(devices: SlowDevices, *, features: int = 32, classes: int = 10) -> keras.Model:
    """A small model that takes the time of ``devices`` in both passes."""
    keras.utils.set_random_seed(1)
    return keras.Sequential(
        [
            keras.layers.Input((features,)),
            keras.layers.Dense(64, activation="relu"),
            devices.layer(),
            keras.layers.Dense(classes, activation="softmax"),
        ]
    )


def threads_for_sleepers(count: int = 16) -> None:
    """Let so many operations sleep at a time; must run before TensorFlow starts."""
    tf.config.threading.set_inter_op_parallelism_threads(count)


class SlowTraining:
    """A training run on devices with these seconds per sample, with equal parts."""

    def __init__(self, *sample_seconds: float, batch: int, **compiled: Any) -> None:
        self.devices = SlowDevices(sample_seconds)
        self.batch = batch
        self.model: Any = slow_classifier(self.devices)
        if len(sample_seconds) > 1:
            names = [f"CPU:{number}" for number in range(1, 1 + len(sample_seconds))]
            self.model = parallel(self.model, devices=names, ratios=None)
        self.model.compile("sgd", "sparse_categorical_crossentropy", **compiled)
        self._first_weights = self.model.get_weights()

    def reset(self, *sample_seconds: float) -> SlowTraining:
        """Reset, for devices with these seconds per sample; nothing is traced again."""
        self.devices.sample_seconds = sample_seconds
        self.devices.spans.clear()
        self.model.set_weights(self._first_weights)
        self.model.ratios = [1] * len(sample_seconds)
        self.model.replica_times()
        return self

    def rows(self, steps: int, *, more: int = 0) -> dict[str, Any]:
        """Arguments of ``fit`` for a number of batches and ``more`` samples."""
        random, count = np.random.default_rng(0), self.batch * steps + more
        x = random.normal(size=(count, 32)).astype("float32")
        arguments = {"batch_size": self.batch, "shuffle": False, "verbose": 0}
        return {"x": x, "y": random.integers(0, 10, count), **arguments}

    def fit(self, *callbacks: Any, steps: int, more: int = 0, **more_arguments: Any) -> Any:
        """Fit, and return self."""
        arguments = {**self.rows(steps, more=more), **more_arguments}
        self.model.fit(**arguments, callbacks=list(callbacks))
        return self

    def fit_undisturbed(self, balancer: Any, *callbacks: Any, steps: int) -> Any:
        """Fit up to four times, until balanced: a busy machine disturbs measured times.

        How many steps balancing takes is tested without clocks, in ``test_controller.py``.
        """
        self.fit(balancer, *callbacks, steps=steps)
        for _ in range(3):
            if self.part_of_the_best_speed() < 0.98:
                self.fit(balancer, steps=steps)
        return self

    def counts(self) -> tuple[int, ...]:
        """The split of the last step, as recorded by the devices."""
        every = range(len(self.devices.sample_seconds))
        return tuple(self.devices.samples_of(replica)[-1] for replica in every)

    def part_of_the_best_speed(self) -> float:
        """The speed of the last split, as a part of the best, by the devices' true speeds."""

        def slowest(counts: Sequence[int]) -> float:
            return max(count * of_sample for count, of_sample in zip(counts, seconds, strict=True))

        seconds = self.devices.sample_seconds
        cuts = combinations(range(1, self.batch), len(seconds) - 1)
        splits = ([end - start for start, end in pairwise((0, *at, self.batch))] for at in cuts)
        return min(map(slowest, splits)) / slowest(self.counts())


def each_step(act: Callable[[int], None]) -> Any:
    """A callback that calls ``act`` with the number of steps done in the epoch."""
    return keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: act(batch + 1))
