"""What can hold a Keras training up, each by sleeps that time themselves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras

INPUT, CHECKPOINT, VALIDATION = "input", "checkpoint", "validation"
CALLBACK, COMPILE, NONE = "callback", "compile", "none"
CAUSES = (INPUT, CHECKPOINT, VALIDATION, CALLBACK, COMPILE, NONE)


class Sleeps:
    """Sleeps, and adds up by cause how long that really took.

    Attributes:
        spans_ns: Of each cause, when it slept: CLOCK_MONOTONIC nanoseconds.
    """

    def __init__(self) -> None:
        self.spans_ns: dict[str, list[tuple[int, int]]] = {}
        self._lock = threading.Lock()

    def sleep(self, cause: str, seconds: float) -> None:
        """Sleep for a cause; from any thread."""
        if seconds > 0:
            began_ns = time.monotonic_ns()
            time.sleep(seconds)
            self.note(cause, began_ns, time.monotonic_ns())

    def note(self, cause: str, began_ns: int, ended_ns: int) -> None:
        """A cause took the training from one instant to another."""
        with self._lock:
            self.spans_ns.setdefault(cause, []).append((began_ns, ended_ns))

    def seconds(self, from_ns: int = 0, to_ns: int = 1 << 63) -> dict[str, float]:
        """By cause, what was slept in sleeps that began between two instants."""
        with self._lock:
            return {
                cause: sum(end - start for start, end in spans if from_ns <= start < to_ns) / 1e9
                for cause, spans in self.spans_ns.items()
            }


class SlowBatches(keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types
    """Batches by number, in the order in which Keras asks for them.

    Args:
        read: Gives the batch of a number, in its time.
        batches: How many there are in an epoch.
        workers: Threads of Keras' own that ask.
    """

    def __init__(self, read: Callable[[int], Any], batches: int, *, workers: int = 1) -> None:
        super().__init__(workers=max(1, workers), max_queue_size=8)
        self._read, self._batches = read, batches

    def __len__(self) -> int:
        return self._batches

    def __getitem__(self, index: int) -> Any:
        return self._read(index)


class SlowCheckpoint(keras.callbacks.ModelCheckpoint):  # type: ignore[misc]
    """Writes the weights after each epoch to a store that takes its time."""

    def __init__(self, path: Path, seconds: float, sleeps: Sleeps) -> None:
        super().__init__(str(path), save_weights_only=True)
        self._seconds = seconds
        self._sleeps = sleeps

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._sleeps.sleep(CHECKPOINT, self._seconds)
        super().on_epoch_end(epoch, logs)


class _Sleeper(keras.callbacks.Callback):  # type: ignore[misc]
    def __init__(self, seconds: float, sleeps: Sleeps) -> None:
        super().__init__()
        self._seconds = seconds
        self._sleeps = sleeps


class SlowCallback(_Sleeper):
    """Does something slow after each batch."""

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        self._sleeps.sleep(CALLBACK, self._seconds)


class SlowScore(_Sleeper):
    """Works out a score of each validation batch on the host."""

    def on_test_batch_end(self, batch: int, logs: object = None) -> None:
        self._sleeps.sleep(VALIDATION, self._seconds)


class SlowToTrace(keras.layers.Layer):  # type: ignore[misc]
    """Changes nothing, but is slow to trace once, as a big model is to compile.

    It takes part where a step is traced (JAX, TensorFlow), not where it runs.
    """

    def __init__(self, sleeps: Sleeps) -> None:
        super().__init__()
        self._sleeps = sleeps
        self._seconds = 0.0

    def armed_by(self, seconds: float) -> keras.callbacks.Callback:
        """A callback: the first trace after the training begins takes so much longer.

        Keras goes through the layers before that, too, to build the model.
        """

        class Arm(keras.callbacks.Callback):  # type: ignore[misc]
            def on_train_begin(_, logs: object = None) -> None:  # noqa: N805 (self is the layer)
                self._seconds = seconds

        return Arm()

    def call(self, rows: Any) -> Any:
        """Hand the rows on."""
        seconds, self._seconds = self._seconds, 0.0
        self._sleeps.sleep(COMPILE, seconds)
        return rows


def slow_callbacks(
    cause: str, each_s: float, sleeps: Sleeps, folder: Path
) -> Sequence[keras.callbacks.Callback]:
    """The callbacks that a cause needs, each of whose sleeps is that long."""
    if cause == CHECKPOINT:
        return [SlowCheckpoint(folder / "latest.weights.h5", each_s, sleeps)]
    if cause == CALLBACK:
        return [SlowCallback(each_s, sleeps)]
    if cause == VALIDATION:
        return [SlowScore(each_s, sleeps)]
    return []
