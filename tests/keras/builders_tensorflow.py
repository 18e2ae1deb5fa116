"""Data, computes and readings for tests on TensorFlow, in which every cost is known from below."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from statistics import quantiles
from typing import Any

import keras
import pytest
import tensorflow as tf

from gpumon.core.phase import TrainingMode, TrainingPhase
from gpumon.core.ring.events import RingKind
from tests.keras import builders_keras as b

MS = 1_000_000
STEPS = 16


class BatchNotes(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """When each batch began: Keras fetches it then."""

    def __init__(self) -> None:
        super().__init__()
        self.begun_ns: list[int] = []

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.begun_ns.append(time.monotonic_ns())


def synchronous(source: Any, batches: int = STEPS) -> Any:
    """A ``tf.data`` pipeline that works only while it is asked."""
    return pipeline(source, batches, prefetches=False)


def prefetched(source: Any, batches: int = STEPS) -> Any:
    return pipeline(source, batches, prefetches=True).prefetch(2)


def pipeline(source: Any, batches: int, *, prefetches: bool) -> Any:
    return dataset(lambda: iter(source), prefetches=prefetches).take(batches)


def dataset(batches: Callable[[], Any], *, prefetches: bool = False) -> Any:
    """``tf.data`` over a generator, of a length that it does not know."""
    spec = tf.TensorSpec((b.BATCH, b.FEATURES)), tf.TensorSpec((b.BATCH, 1))
    data = tf.data.Dataset.from_generator(batches, output_signature=spec)
    options = tf.data.Options()
    options.autotune.enabled = prefetches
    options.experimental_optimization.inject_prefetch = prefetches
    return data.with_options(options)


def py_dataset(workers: int) -> Callable[[Any], Any]:
    """Makes a ``PyDataset`` as slow as a source."""

    def make(source: Any) -> Any:
        class Batches(keras.utils.PyDataset):  # type: ignore[misc]
            _batch = next(iter(b.SlowBatches(0.0)))

            def __len__(self) -> int:
                return STEPS

            def __getitem__(self, index: int) -> Any:
                time.sleep(source.seconds)
                return self._batch

        return Batches(workers=workers)

    return make


SOURCES: dict[str, Callable[[Any], Any]] = {
    "synchronous": synchronous,
    "prefetched": prefetched,
    "generator": iter,
    "workers=0": py_dataset(workers=0),
    "workers=1": py_dataset(workers=1),
    "workers=2": py_dataset(workers=2),
}
"""What ``fit`` may be handed, made of a source of batches."""


def noting_compute(seconds: float) -> Any:
    """Sleeps inside the compiled step, and notes when it did."""

    class NotingCompute(b.SleepingCompute):
        def __init__(self) -> None:
            super().__init__(seconds)
            self.spans_ns: list[tuple[int, int]] = []

        def _sleep(self, values: Any) -> Any:
            began_ns = time.monotonic_ns()
            slept = super()._sleep(values)
            self.spans_ns.append((began_ns, time.monotonic_ns()))
            return slept

    return NotingCompute()


def waits_told_ns(mode: TrainingMode = TrainingMode.TRAIN) -> list[int]:
    """Length of each stretch of ``input_wait`` in a mode, in order, after Keras' own peeks."""
    entered = [event for event in b.records() if event.kind is RingKind.ENTER]
    return [
        after.at_ns - event.at_ns
        for event, after in pairwise(entered)
        if event.phase is TrainingPhase.INPUT_WAIT
        and event.value == mode
        and after.phase is not TrainingPhase.START_UP
    ]


def gross_waits_told_ns() -> list[int]:
    """What each execution was told to have waited inside its step.

    One that only finds the end of the data is none: on a busy machine that may
    take long enough to be told.
    """
    told = [event for event in b.records() if event.kind is not RingKind.SAMPLES]
    return [
        event.value
        for event, after in pairwise(told)
        if event.kind is RingKind.AMOUNT
        and event.phase is TrainingPhase.INPUT_WAIT
        and after.kind is RingKind.STEP
    ]


def in_a_quiet_moment(lengths_ns: list[int]) -> float:
    """Their lower quartile: a machine that does other things as well only ever adds."""
    return quantiles(lengths_ns, n=4)[0]


def usually_told_and_true_ns(
    train: Callable[[Any, Any], object], told_ns: Callable[[], list[int]]
) -> tuple[float, float]:
    """By how much longer a source that sleeps is usually told to be waited for, and by how much
    longer it usually took, by its own notes.

    What loading and compiling cost is left out, and so is what TensorFlow adds to any batch: the
    first training only compiles, those around the slow one are on a source that does not sleep.

    Args:
        train: Is handed a source and a callback.
        told_ns: What is told of each fetch so far.
    """
    told: list[float] = []
    true: list[float] = []
    for pause_s in (0.0, 0.0, 0.05, 0.0):
        source, hook = b.SlowBatches(pause_s), b.tagger()
        before = len(told_ns())
        train(source, hook)
        told.append(in_a_quiet_moment(told_ns()[before:]))
        true.append(in_a_quiet_moment([end - start for start, end in source.spans_ns]))
    return told[2] - min(told[1], told[3]), true[2] - min(true[1], true[3])


def within_a_tenth(true_ns: float) -> Any:
    """... or within a millisecond."""
    return pytest.approx(true_ns, rel=0.10, abs=MS)
