"""Data in the forms that only torch has, or that are worth a form of their own there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import torch

from gpumon.core.phase import TrainingMode, TrainingPhase
from gpumon.core.ring.events import RingKind
from tests.keras.builders_keras import (
    BATCH,
    FEATURES,
    SlowBatches,
    an_ordinary_callback,
    fit,
    records,
    rows_and_sums,
    small_model,
    tagger,
)

# Of several threads each would wait for all, on cores that others use as well.
torch.set_num_threads(1)


class SlowRows(torch.utils.data.Dataset):  # type: ignore[misc]
    """A dataset that sleeps before each row, and notes how long it really did.

    The notes are those of this process: with workers they stay empty.
    """

    def __init__(self, count: int, *, seconds: float = 0.0) -> None:
        self.rows, self.sums = rows_and_sums(count)
        self.seconds = seconds
        self.slept_ns = 0

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if self.seconds:
            began_ns = time.monotonic_ns()
            time.sleep(self.seconds)
            self.slept_ns += time.monotonic_ns() - began_ns
        return self.rows[index], self.sums[index]


class RowsThatEnd(torch.utils.data.IterableDataset):  # type: ignore[misc]
    """As many rows as it has, but nobody is told how many; the end takes its time too."""

    def __init__(self, count: int, *, seconds_at_the_end: float = 0.0) -> None:
        self.rows, self.sums = rows_and_sums(count)
        self.seconds_at_the_end = seconds_at_the_end

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        yield from zip(self.rows, self.sums, strict=True)
        time.sleep(self.seconds_at_the_end)


class SlowSequence(keras.utils.PyDataset):  # type: ignore[misc]
    """Keras' own kind of dataset: it sleeps before each batch, and notes how long it really did."""

    def __init__(self, batches: int, *, seconds: float, **said: Any) -> None:
        super().__init__(**said)
        self.batches = batches
        self.seconds = seconds
        self.slept_ns = 0

    @property
    def num_batches(self) -> int:
        return self.batches

    def __len__(self) -> int:
        return self.batches  # how an older Keras asks for it

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        began_ns = time.monotonic_ns()
        time.sleep(self.seconds)
        self.slept_ns += time.monotonic_ns() - began_ns
        rows = np.full((BATCH, FEATURES), index, dtype="float32")
        return rows, rows.sum(1, keepdims=True)


def loader_of(dataset: Any, *, batch_size: int = BATCH, **said: Any) -> Any:
    return torch.utils.data.DataLoader(dataset, batch_size=batch_size, **said)


def others(ordinary: bool) -> list[Any]:
    return [an_ordinary_callback()] if ordinary else []


def fit_on(data: Any, *callbacks: Any, model: Any = None, **said: Any) -> Any:
    model = model or small_model()
    model.fit(data, verbose=0, callbacks=[tagger(), *callbacks], **said)
    return model


def phases_in(mode: TrainingMode) -> list[TrainingPhase]:
    return [e.phase for e in records() if e.kind is RingKind.ENTER and e.value == mode]


def marks(kind: RingKind) -> list[int]:
    return [e.value for e in records() if e.kind is kind]


def warmed_model(*layers: Any, **compiled: Any) -> Any:
    """One whose first step, which takes its time, is over."""
    model = small_model(*layers, **compiled)
    fit(model, SlowBatches(0.0), steps=2, epochs=1)
    return model
