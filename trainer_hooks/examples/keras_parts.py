"""What a Keras training can be made of to know where its time goes: parts that time themselves.

A model that notes its steps, and whatever may hold a run up, by sleeping.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import keras

from trainer_hooks.examples.busy_spans import (
    Note,
    StepNoter,
    through_jax,
    through_tensorflow,
    through_torch,
)

INPUT, CHECKPOINT, VALIDATION = "input", "checkpoint", "validation"
CALLBACK, COMPILE, NONE = "callback", "compile", "none"
CAUSES = (INPUT, CHECKPOINT, VALIDATION, CALLBACK, COMPILE, NONE)

_THROUGH: Final = {"jax": through_jax, "tensorflow": through_tensorflow, "torch": through_torch}


class MeasuredModel(keras.Sequential):  # type: ignore[misc]  # Keras has no types
    """Notes in each step of training or validation, between which is Keras' own.

    The first note needs the batch, the last every updated weight. No hook of Keras takes part.
    """

    def __init__(self, layers: Sequence[keras.Layer], note: Note) -> None:
        super().__init__(layers)
        self._noter = StepNoter(note, _THROUGH[keras.backend.backend()])

    def compile(self, *words: Any, **named: Any) -> None:
        """As Keras does, but on TensorFlow without XLA, which knows no Python operations."""
        if keras.backend.backend() == "tensorflow":
            named["jit_compile"] = False
        super().compile(*words, **named)

    def train_step(self, *given: Any) -> Any:
        """Keras' own step between two notes."""
        return self._noted(super().train_step, given)

    def test_step(self, *given: Any) -> Any:
        return self._noted(super().test_step, given)

    def _noted(self, step: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        """On JAX a step is given the model's state before the batch, and returns it last."""
        *state, (rows, *others) = given
        made = step(*state, (self._noter.begin(rows), *others))
        logs, *state = made if state else (made,)
        weights = state[0][0] if state else [own.value for own in self.trainable_variables]
        logs = {**logs, "loss": self._noter.end(logs["loss"], weights)}
        return (logs, *state) if state else logs


class Sleeps:
    """Sleeps, and sums by cause how long that really took.

    Attributes:
        spans_ns: By cause, when it slept: CLOCK_MONOTONIC nanoseconds.
    """

    def __init__(self) -> None:
        self.spans_ns: dict[str, list[tuple[int, int]]] = {}
        self._lock = threading.Lock()

    def sleep(self, cause: str, seconds: float) -> None:
        if seconds > 0:
            began_ns = time.monotonic_ns()
            time.sleep(seconds)
            self.note(cause, began_ns, time.monotonic_ns())

    def note(self, cause: str, began_ns: int, ended_ns: int) -> None:
        with self._lock:
            self.spans_ns.setdefault(cause, []).append((began_ns, ended_ns))

    def seconds(self, from_ns: int = 0, to_ns: int = 1 << 63) -> dict[str, float]:
        """Return the seconds by cause of sleeps that began between two times."""
        with self._lock:
            return {
                cause: sum(end - start for start, end in spans if from_ns <= start < to_ns) / 1e9
                for cause, spans in self.spans_ns.items()
            }


class SlowBatches(keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types
    """The batches of an epoch by number, in the order in which Keras' threads request them."""

    def __init__(self, read: Callable[[int], Any], batches: int, *, workers: int = 1) -> None:
        super().__init__(workers=max(1, workers), max_queue_size=8)
        self._read, self._batches = read, batches

    def __len__(self) -> int:
        return self._batches

    def __getitem__(self, index: int) -> Any:
        return self._read(index)


class SlowCheckpoint(keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """Writes the weights after each epoch to a slow store."""

    def __init__(self, path: Path, seconds: float, sleeps: Sleeps) -> None:
        super().__init__(str(path), save_weights_only=True)
        self._seconds, self._sleeps = seconds, sleeps

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._sleeps.sleep(CHECKPOINT, self._seconds)
        super().on_epoch_end(epoch, logs)


class _Sleeper(keras.callbacks.Callback):  # type: ignore[misc]
    def __init__(self, seconds: float, sleeps: Sleeps) -> None:
        super().__init__()
        self._seconds, self._sleeps = seconds, sleeps


class SlowCallback(_Sleeper):
    """Does something slow after each batch."""

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        self._sleeps.sleep(CALLBACK, self._seconds)


class SlowScore(_Sleeper):
    """Computes a score of each validation batch on the host."""

    def on_test_batch_end(self, batch: int, logs: object = None) -> None:
        self._sleeps.sleep(VALIDATION, self._seconds)


class SlowToTrace(keras.layers.Layer):  # type: ignore[misc]
    """Changes nothing, but is slow to trace once, like compiling a big model.

    It acts where a step is traced (JAX, TensorFlow), not where it runs.
    """

    def __init__(self, sleeps: Sleeps) -> None:
        super().__init__()
        self._sleeps = sleeps
        self._seconds = 0.0

    def armed_by(self, seconds: float) -> keras.callbacks.Callback:
        """A callback: the first trace after the run begins takes so much longer.

        Keras goes through the layers before that, too, to build the model.
        """

        class Arm(keras.callbacks.Callback):  # type: ignore[misc]
            def on_train_begin(_, logs: object = None) -> None:  # noqa: N805 (self is the layer)
                self._seconds = seconds

        return Arm()

    def call(self, rows: Any) -> Any:
        seconds, self._seconds = self._seconds, 0.0
        self._sleeps.sleep(COMPILE, seconds)
        return rows


def slow_callbacks(
    cause: str, each_s: float, sleeps: Sleeps, folder: Path
) -> Sequence[keras.callbacks.Callback]:
    """Return the callbacks that a cause needs, each sleeping that long."""
    if cause == CHECKPOINT:
        return [SlowCheckpoint(folder / "latest.weights.h5", each_s, sleeps)]
    if cause == CALLBACK:
        return [SlowCallback(each_s, sleeps)]
    if cause == VALIDATION:
        return [SlowScore(each_s, sleeps)]
    return []
