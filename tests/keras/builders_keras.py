"""Models and data whose costs are known from below the hooks: they sleep, and note it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from gpumon.core.phase import PHASES, TrainingPhase
from gpumon.core.ring.events import RingEvent
from tests.patience import lateness_ns
from tests.ring_contents import records_in, totals_in
from trainer_hooks import PhaseTagger
from trainer_hooks.examples.keras_parts import MeasuredModel
from trainer_hooks.ring.process_ring import process_ring

FEATURES = 8
BATCH = 16


class SleepingCompute(keras.layers.Layer):  # type: ignore[misc]
    """Passes its input on after a sleep inside the compiled program."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def call(self, rows: Any) -> Any:
        return rows + 0 * _SLEEP[keras.backend.backend()](rows, self._sleep)

    def _sleep(self, values: Any) -> Any:
        if self._seconds:
            time.sleep(self._seconds)
        return np.asarray(values)


def _sleep_in_jax(rows: Any, sleep: Callable[[Any], Any]) -> Any:
    import jax

    shape = jax.ShapeDtypeStruct(rows.shape, rows.dtype)
    return jax.pure_callback(sleep, shape, jax.lax.stop_gradient(rows))


def _sleep_in_tensorflow(rows: Any, sleep: Callable[[Any], Any]) -> Any:
    import tensorflow

    slept = tensorflow.numpy_function(sleep, [tensorflow.stop_gradient(rows)], rows.dtype)
    slept.set_shape(rows.shape)
    return slept


def _sleep_in_torch(rows: Any, sleep: Callable[[Any], Any]) -> Any:
    if not rows.is_meta:  # Keras also calls it without data, to learn shapes
        sleep(rows.detach())
    return rows.detach()


_SLEEP = {"jax": _sleep_in_jax, "tensorflow": _sleep_in_tensorflow, "torch": _sleep_in_torch}


class SlowBatches:
    """A source of batches that sleeps before each, and notes when it really did."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.spans_ns: list[tuple[int, int]] = []

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        rng = np.random.default_rng(7)
        while True:
            began_ns = time.monotonic_ns()
            time.sleep(self.seconds)
            rows = rng.normal(size=(BATCH, FEATURES)).astype("float32")
            self.spans_ns.append((began_ns, time.monotonic_ns()))
            yield rows, rows.sum(1, keepdims=True)

    @property
    def late_ns(self) -> float:
        """By how much its sleeps were too long in the mean, on a busy machine."""
        return lateness_ns(self.spans_ns, self.seconds)

    def spent_ns(self, edges: Edges) -> int:
        """How long the training waited here, with the two batches that Keras peeks at before it."""
        return self._spent_within([(edges.made_ns, edges.ended_ns)])

    def peeked_ns(self, edges: Edges) -> int:
        """How long those two took."""
        return self._spent_within([(edges.made_ns, edges.began_ns)])

    def spent_in_validation_ns(self, edges: Edges) -> int:
        """How long validations waited here; before the first, Keras peeks too."""
        return self._spent_within(edges.validations_ns)

    def _spent_within(self, windows_ns: list[tuple[int, int]]) -> int:
        return sum(
            end - start
            for start, end in self.spans_ns
            if any(began <= start < ended for began, ended in windows_ns)
        )


def rows_and_sums(count: int, seed: int = 3) -> tuple[Any, Any]:
    rows = np.random.default_rng(seed).normal(size=(count, FEATURES)).astype("float32")
    return rows, rows.sum(1, keepdims=True)


def small_model(*layers: Any, **compiled: Any) -> Any:
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [keras.layers.Input((FEATURES,)), *layers, keras.layers.Dense(4), keras.layers.Dense(1)]
    )
    model.compile(optimizer="adam", loss="mse", **compiled)
    return model


class Notes:
    """Spans of time, kept in memory."""

    def __init__(self) -> None:
        self.spans_ns: list[tuple[int, int]] = []

    def note(self, start_ns: int, end_ns: int) -> None:
        self.spans_ns.append((start_ns, end_ns))


def measured_model(notes: Notes, *layers: Any) -> Any:
    """The small model, whose steps note from inside when they ran."""
    keras.utils.set_random_seed(1)
    parts = [keras.Input((FEATURES,)), *layers, keras.layers.Dense(4), keras.layers.Dense(1)]
    model = MeasuredModel(parts, notes.note)
    model.compile("adam", "mse")
    return model


def tagger(**said: Any) -> Any:
    """The callback under test; it adds nothing to ``logs``, so that histories compare."""
    return PhaseTagger(**{"logs": False, **said})


def fit(model: Any, source: Any, *callbacks: Any, steps: int = 15, epochs: int = 2) -> Any:
    """Train on a source of batches, silently."""
    return model.fit(
        iter(source), steps_per_epoch=steps, epochs=epochs, verbose=0, callbacks=list(callbacks)
    )


def an_ordinary_callback() -> Any:
    """One that makes Keras wait for each step: it defines ``on_train_batch_end``."""
    return SleepingCallback("on_train_batch_end", seconds=0.0)


class Edges(keras.callbacks.Callback):  # type: ignore[misc]
    """Notes when ``fit`` really began and ended, and what the ring had summed up to then."""

    async_safe = True

    def __init__(self) -> None:
        super().__init__()
        self.made_ns = time.monotonic_ns()
        self.validations_ns: list[tuple[int, int]] = []

    def on_test_begin(self, logs: object = None) -> None:
        self._test_began_ns = time.monotonic_ns()

    def on_test_end(self, logs: object = None) -> None:
        self.validations_ns.append((self._test_began_ns, time.monotonic_ns()))

    def on_train_begin(self, logs: object = None) -> None:
        self.sum_at_begin_ns, self.began_ns = _spent_ns(), time.monotonic_ns()

    def on_train_end(self, logs: object = None) -> None:
        self.sum_at_end_ns, self.ended_ns = _spent_ns(), time.monotonic_ns()

    @property
    def wall_ns(self) -> int:
        return self.ended_ns - self.began_ns

    @property
    def tagged_ns(self) -> int:
        return self.sum_at_end_ns - self.sum_at_begin_ns


class SleepingCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Sleeps in the named methods and adds up how long it really took."""

    def __init__(self, *methods: str, seconds: float) -> None:
        super().__init__()
        self.spent_ns = 0
        self._seconds = seconds
        for method in methods:
            setattr(self, method, self._sleep)

    def _sleep(self, *_: object, **__: object) -> None:
        began_ns = time.monotonic_ns()
        time.sleep(self._seconds)
        self.spent_ns += time.monotonic_ns() - began_ns


def _page() -> bytes:
    writer = process_ring().writer
    assert writer is not None
    return writer._memory.path.read_bytes()


def _spent_ns() -> int:
    totals = totals_in(_page())
    return sum(totals.phase_ns) + time.monotonic_ns() - totals.since_ns


def phase_ns() -> dict[str, int]:
    """Nanoseconds in each phase so far, as the ring's file says."""
    spent_ns = totals_in(_page()).phase_ns
    return {phase.value: ns for phase, ns in zip(PHASES, spent_ns, strict=True)}


def records() -> list[RingEvent]:
    """Everything the ring's file holds."""
    return records_in(_page())


def facts_of_the_loader() -> dict[str, Any]:
    writer = process_ring().writer
    assert writer is not None
    return writer.facts.loader


def present_phase() -> TrainingPhase:
    """The phase under way."""
    writer = process_ring().writer
    assert writer is not None
    return PHASES[writer.present[0]]
