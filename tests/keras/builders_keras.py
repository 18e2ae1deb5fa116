"""Models and data whose costs are known from below the hooks: they sleep, and note it."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import keras
import numpy as np
import pytest

from gpumon.core.attribution.timeline import PhaseTimeline
from gpumon.core.phase import PHASES, TrainingMode, TrainingPhase
from gpumon.core.ring_format.events import RingEvent, RingKind, RingRecords, RunFacts
from tests.ring_contents import records_in, totals_in
from trainer_hooks import PhaseTagger
from trainer_hooks.examples.keras_parts import MeasuredModel
from trainer_hooks.ring.process_ring import process_ring
from trainer_hooks.ring.ring_writer import RingWriter

FEATURES = 8
BATCH = 16


class SleepingCompute(keras.layers.Layer):  # type: ignore[misc]
    """Passes its input on after a sleep inside the compiled program, and notes when it slept."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.spans_ns: list[tuple[int, int]] = []
        self._seconds = seconds

    def call(self, rows: Any) -> Any:
        return rows + 0 * _SLEEP[keras.backend.backend()](rows, self._sleep)

    def _sleep(self, values: Any) -> Any:
        began_ns = time.monotonic_ns()
        if self._seconds:
            time.sleep(self._seconds)
        self.spans_ns.append((began_ns, time.monotonic_ns()))
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


def fed_by(source: Any, batches: int) -> tuple[Any, int | None]:
    """Data that are read only when they are requested, and the steps to name.

    On TensorFlow their length is unknown, elsewhere they have no end.
    """
    if backend() == "tensorflow":
        from tests.keras import builders_tensorflow

        return builders_tensorflow.synchronous(source, batches), None
    return iter(source), batches


class SlowSequence(keras.utils.PyDataset):  # type: ignore[misc]
    """Keras' own kind of dataset: it sleeps before each batch."""

    def __init__(self, batches: int, *, seconds: float, **settings: Any) -> None:
        super().__init__(**settings)
        self.batches = batches
        self.seconds = seconds

    @property
    def num_batches(self) -> int:
        return self.batches

    def __len__(self) -> int:
        return self.batches  # how an older Keras asks for it

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        time.sleep(self.seconds)
        rows = np.full((BATCH, FEATURES), index, dtype="float32")
        return rows, rows.sum(1, keepdims=True)


def rows_and_sums(count: int, seed: int = 3) -> tuple[Any, Any]:
    rows = np.random.default_rng(seed).normal(size=(count, FEATURES)).astype("float32")
    return rows, rows.sum(1, keepdims=True)


def small_model(
    *layers: Any, kind: Callable[[list[Any]], Any] = keras.Sequential, **compiled: Any
) -> Any:
    """A model of that kind, of the layers between its input and its output.

    Its optimizer is the simplest: most of the time of these tests is spent making graphs.
    """
    keras.utils.set_random_seed(1)
    model = kind([keras.layers.Input((FEATURES,)), *layers, keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse", **compiled)
    return model


def normalized_model(**compiled: Any) -> Any:
    """One whose numbers differ after each batch and each step."""
    keras.utils.set_random_seed(1)
    norm, dropout = keras.layers.BatchNormalization(), keras.layers.Dropout(0.3)
    rows, sums = keras.layers.Input((FEATURES,)), keras.layers.Dense(1)
    model = keras.Sequential([rows, norm, dropout, sums])
    model.compile(optimizer=keras.optimizers.SGD(0.01, momentum=0.9), loss="mse", **compiled)
    return model


def backend() -> str:
    name: str = keras.backend.backend()
    return name


class Notes:
    """Spans of time, kept in memory."""

    def __init__(self) -> None:
        self.spans_ns: list[tuple[int, int]] = []

    def note(self, start_ns: int, end_ns: int) -> None:
        self.spans_ns.append((start_ns, end_ns))


def measured_model(notes: Notes, *layers: Any) -> Any:
    """The small model, whose steps note from inside when they ran."""
    return small_model(*layers, kind=lambda parts: MeasuredModel(parts, notes.note))


def tagger(**settings: Any) -> Any:
    """The callback under test; it adds nothing to ``logs``, so that histories compare."""
    return PhaseTagger(**{"logs": False, **settings})


def fit(model: Any, source: Any, *callbacks: Any, steps: int = 15, epochs: int = 2) -> Any:
    """Train on a source of batches, silently."""
    return model.fit(
        iter(source), steps_per_epoch=steps, epochs=epochs, verbose=0, callbacks=list(callbacks)
    )


def fit_rows(model: Any, count: int, *callbacks: Any, **settings: Any) -> Any:
    """Train on so many samples that are ready, silently."""
    arguments = {"batch_size": BATCH, "verbose": 0, "callbacks": list(callbacks), **settings}
    return model.fit(*rows_and_sums(count), **arguments)


def warmed_model(*layers: Any, **compiled: Any) -> Any:
    """One whose first steps, which take their time, are over, and of whose sleeps none is noted."""
    model = small_model(*layers, **compiled)
    fit(model, SlowBatches(0.0), steps=2, epochs=1)
    for layer in layers:
        layer.spans_ns.clear()
    return model


def left_by(model: Any, *callbacks: Any, **settings: Any) -> dict[str, Any]:
    """Every number that remains after training."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras says that the data ran out: it was meant to
        history = model.fit(verbose=0, callbacks=list(callbacks), **settings)
    return {
        "history": history.history,
        "iterations": int(keras.ops.convert_to_numpy(model.optimizer.iterations)),
        "weights": [weight.tobytes() for weight in model.get_weights()],
    }


@contextmanager
def one_warning(match: str) -> Iterator[None]:
    """Exactly one warning of ours is given, and it matches."""
    with pytest.warns(RuntimeWarning, match=match) as caught:
        yield
    texts = [str(one.message) for one in caught]
    assert len([text for text in texts if re.search(f"gpumon|{match}", text)]) == 1


def an_ordinary_callback() -> Any:
    """One that makes Keras wait for each step: it defines ``on_train_batch_end``."""
    return SleepingCallback("on_train_batch_end", seconds=0.0)


def others(ordinary: bool) -> list[Any]:
    return [an_ordinary_callback()] if ordinary else []


class Edges(keras.callbacks.Callback):  # type: ignore[misc]
    """Notes when ``fit`` really began and ended, and what the ring had summed up to then."""

    async_safe = True

    def __init__(self) -> None:
        super().__init__()
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


class Does(keras.callbacks.Callback):  # type: ignore[misc]
    """Does something in the named methods, given itself, and notes when."""

    def __init__(
        self, what: Callable[[Any], object], *methods: str, async_safe: bool = False
    ) -> None:
        super().__init__()
        self.async_safe = async_safe
        self.spans_ns: list[tuple[int, int]] = []
        self._what = what
        for method in methods:
            setattr(self, method, self._do)

    def _do(self, *_: object, **__: object) -> None:
        began_ns = time.monotonic_ns()
        self._what(self)
        self.spans_ns.append((began_ns, time.monotonic_ns()))

    @property
    def times(self) -> int:
        return len(self.spans_ns)

    @property
    def spent_ns(self) -> int:
        return sum(lengths_ns(self.spans_ns))


class SleepingCallback(Does):
    """Sleeps in the named methods."""

    def __init__(self, *methods: str, seconds: float, async_safe: bool = False) -> None:
        super().__init__(lambda _: time.sleep(seconds), *methods, async_safe=async_safe)


def raising(error: type[Exception], *methods: str) -> Any:
    """A callback that raises it, by default at the end of an epoch."""

    def fail(_: object) -> None:
        raise error

    return Does(fail, *(methods or ("on_epoch_end",)))


def lengths_ns(spans_ns: Sequence[tuple[int, int]]) -> list[int]:
    return [end - start for start, end in spans_ns]


def _writer() -> RingWriter:
    writer = process_ring().writer
    assert writer is not None
    return writer


def _page() -> bytes:
    return _writer()._memory.path.read_bytes()


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


def marks(kind: RingKind) -> list[int]:
    """The value of each record of a kind, such as the number of each step."""
    return [event.value for event in records() if event.kind is kind]


def recorded_steps() -> int:
    """The number of the last step."""
    return max(marks(RingKind.STEP), default=0)


def phases_in(mode: TrainingMode) -> list[TrainingPhase]:
    """The phases of a mode, in the order in which they began."""
    return [e.phase for e in records() if e.kind is RingKind.ENTER and e.value == mode]


def phases_within(spans_ns: Sequence[tuple[int, int]]) -> set[tuple[TrainingPhase, int]]:
    """The phases and modes recorded at any time in those spans."""
    entered = [event for event in records() if event.kind is RingKind.ENTER]
    return {
        (event.phase, event.value)
        for event, after in pairwise(entered)
        if any(event.at_ns < end and after.at_ns > start for start, end in spans_ns)
    }


def timeline() -> PhaseTimeline:
    """What the daemon makes of the ring so far."""
    recorded = PhaseTimeline()
    recorded.extend(RingRecords.of(records()), time.monotonic_ns())
    return recorded


def facts() -> RunFacts:
    """The facts of the run."""
    return _writer().facts


def present_phase() -> TrainingPhase:
    """The phase under way."""
    return PHASES[_writer().present[0]]
