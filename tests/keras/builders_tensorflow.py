"""Data, computes and readings for tests on TensorFlow, in which every cost is known from below."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import Any

import tensorflow as tf

from gpumon.core.phase import TrainingMode, TrainingPhase
from gpumon.core.ring_format.events import RingKind
from tests.keras import builders_keras as builders

MS = 1_000_000
STEPS = 16


def two_devices() -> None:
    """Divide this process's processor, before TensorFlow does anything."""
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )


def synchronous(source: Any, batches: int = STEPS) -> Any:
    """A ``tf.data`` pipeline that works only while it is asked."""
    return dataset(lambda: iter(source)).take(batches)


def prefetched(source: Any) -> Any:
    return dataset(lambda: iter(source), prefetches=True).take(STEPS).prefetch(2)


def dataset(batches: Callable[[], Any], *, prefetches: bool = False) -> Any:
    """``tf.data`` over a generator, of a length that it does not know."""
    spec = tf.TensorSpec((builders.BATCH, builders.FEATURES)), tf.TensorSpec((builders.BATCH, 1))
    data = tf.data.Dataset.from_generator(batches, output_signature=spec)
    options = tf.data.Options()
    options.autotune.enabled = prefetches
    options.experimental_optimization.inject_prefetch = prefetches
    return data.with_options(options)


def py_dataset(workers: int) -> Callable[[Any], Any]:
    """Makes a ``PyDataset`` as slow as a source."""
    return lambda source: builders.SlowSequence(STEPS, seconds=source.seconds, workers=workers)


SOURCES: dict[str, Callable[[Any], Any]] = {
    "prefetched": prefetched,
    "workers=2": py_dataset(workers=2),
}
"""Data for ``fit``, made of a source of batches."""


def recorded_waits_ns(mode: TrainingMode = TrainingMode.TRAIN) -> list[int]:
    """Length of each stretch of ``input_wait`` in a mode, in order, after Keras' own peeks."""
    entered = [event for event in builders.records() if event.kind is RingKind.ENTER]
    return [
        after.at_ns - event.at_ns
        for event, after in pairwise(entered)
        if event.phase is TrainingPhase.INPUT_WAIT
        and event.value == mode
        and after.phase is not TrainingPhase.START_UP
    ]


def gross_waits_ns() -> list[int]:
    """The wait recorded inside each step, without executions that only find the end of the data."""
    recorded = [event for event in builders.records() if event.kind is not RingKind.SAMPLES]
    return [
        event.value
        for event, after in pairwise(recorded)
        if event.kind is RingKind.AMOUNT
        and event.phase is TrainingPhase.INPUT_WAIT
        and after.kind is RingKind.STEP
    ]


def true_waits_and_errors_ns(
    make: Callable[[Any], Any], compute: Any, pause_s: float
) -> tuple[list[float], list[float]]:
    """How long each step really waited for a source that sleeps, and what was recorded beyond that.

    A step waits from its batch's callbacks to its compute; what that takes on a source that does
    not sleep is no wait.

    Args:
        make: Makes what ``fit`` is handed of a source.
        compute: The layer that notes when it computes.
        pause_s: Before each batch.
    """
    fast = _gaps_and_recorded_ns(make, compute, 0.0)
    gaps_ns, recorded_ns = _gaps_and_recorded_ns(make, compute, pause_s)
    rest_ns = median(gap - recorded for gap, recorded in zip(*fast, strict=True))
    true_ns = [gap - rest_ns for gap in gaps_ns]
    return true_ns, [recorded - true for recorded, true in zip(recorded_ns, true_ns, strict=True)]


def _gaps_and_recorded_ns(
    make: Callable[[Any], Any], compute: Any, pause_s: float
) -> tuple[list[int], list[int]]:
    """From a batch's callbacks to its compute, and the recorded wait between."""
    model, begins = (
        builders.small_model(compute),
        builders.Does(lambda _: None, "on_train_batch_begin"),
    )
    model.fit(make(builders.SlowBatches(0.0)), verbose=0, steps_per_epoch=STEPS)
    compute.spans_ns.clear()
    before, data = len(recorded_waits_ns()), make(builders.SlowBatches(pause_s))
    model.fit(data, verbose=0, steps_per_epoch=STEPS, callbacks=[begins, builders.tagger()])
    gaps_ns = [
        computed_ns - begun_ns
        for (begun_ns, _), (computed_ns, _) in zip(begins.spans_ns, compute.spans_ns, strict=True)
    ]
    return gaps_ns[1:], recorded_waits_ns()[before + 1 :]
