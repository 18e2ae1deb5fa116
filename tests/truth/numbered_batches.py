"""Batches that carry a number, which shows what step waited for which."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from tests.keras.builders_keras import BATCH, FEATURES, Edges, SleepingCompute

Span = tuple[int, int]
"""Start and end, CLOCK_MONOTONIC nanoseconds."""

_NUMBER_SCALE = 1024


class NumberedCompute(SleepingCompute):
    """The compute of a step, which also records the number of its batch."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.taken: list[tuple[int, int]] = []
        """When it began, and with which batch."""

    def _sleep(self, values: Any) -> Any:
        began_ns, rows = time.monotonic_ns(), np.asarray(values)  # JAX would compile an index
        self.taken.append((began_ns, round(float(rows[0, 0]) * _NUMBER_SCALE)))
        return super()._sleep(values)


class Made(NamedTuple):
    """When and on which thread a batch was made."""

    start_ns: int
    end_ns: int
    thread: int


class Batches:
    """Sleep before each batch, number it, and record when and on which thread it was made."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.made: list[Made | None] = []
        self.loads_ns: list[Span] = []
        """Calls of torch's loader: what it adds to a batch."""
        self._rng = np.random.default_rng(7)
        self._lock = threading.Lock()

    def make(self) -> tuple[Any, Any]:
        began_ns = time.monotonic_ns()
        with self._lock:
            number = len(self.made)
            self.made.append(None)
            rows = self._rng.normal(size=(BATCH, FEATURES)).astype("float32")
        time.sleep(self.seconds)
        rows[0, 0] = number / _NUMBER_SCALE
        self.made[number] = Made(began_ns, time.monotonic_ns(), threading.get_ident())
        return rows, rows.sum(1, keepdims=True)

    def generator(self) -> Iterator[tuple[Any, Any]]:
        while True:
            yield self.make()

    def waited_s(
        self, edges: Edges, steps: Sequence[tuple[int, int]], busy: Sequence[Span]
    ) -> float:
        """How long the run waited for its input.

        A batch made on the run's own thread delays it for all of that time, and for as long as the
        framework's loader takes; one made on another thread, from the end of the step before.
        """
        here = threading.get_ident()
        made = [one for one in self.made if one is not None]
        own_ns = sum(
            end_ns - start_ns
            for start_ns, end_ns in (self._loaded(one) for one in made if one.thread == here)
            if edges.began_ns <= start_ns < edges.ended_ns
        )
        free_ns = edges.began_ns
        others_ns = 0
        for (at_ns, number), (_, end_ns) in zip(steps, busy, strict=True):
            one = self.made[number]
            assert one is not None
            assert one.end_ns <= at_ns
            if one.thread != here:
                others_ns += max(0, one.end_ns - max(free_ns, one.start_ns))
            free_ns = end_ns
        return (own_ns + others_ns) / 1e9

    def _loaded(self, one: Made) -> Span:
        """The call of the loader that fetched it, or its making."""
        made_ns = one.start_ns, one.end_ns
        return next(
            (load for load in self.loads_ns if load[0] <= made_ns[0] and made_ns[1] <= load[1]),
            made_ns,
        )

    @contextlib.contextmanager
    def noting_loads(self) -> Iterator[None]:
        """Record calls of torch's loader, below Keras and its hooks.

        Keras wraps every data set in one, which takes half a millisecond to convert a batch.
        """
        if keras.backend.backend() != "torch":
            yield
            return
        from torch.utils.data import dataloader

        original: Any = dataloader._BaseDataLoaderIter.__next__

        def noted(loader: Any) -> Any:
            began_ns = time.monotonic_ns()
            try:
                return original(loader)
            finally:
                self.loads_ns.append((began_ns, time.monotonic_ns()))

        dataloader._BaseDataLoaderIter.__next__ = noted
        try:
            yield
        finally:
            dataloader._BaseDataLoaderIter.__next__ = original


class Store(keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types
    """The batches as a ``PyDataset``."""

    def __init__(self, batches: Batches, steps: int, workers: int) -> None:
        super().__init__(workers=workers, max_queue_size=8)
        self._made_by = batches
        self._steps = steps

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self._made_by.make()


def source_of(kind: str, batches: Batches, steps: int) -> Any:
    """Batches as a kind of data set."""
    if kind == "generator":
        return batches.generator()
    if kind == "tf.data":
        import tensorflow as tf

        rows, sums = tf.TensorSpec((BATCH, FEATURES)), tf.TensorSpec((BATCH, 1))
        return tf.data.Dataset.from_generator(batches.generator, output_signature=(rows, sums))
    if kind == "DataLoader":
        import torch

        class Stream(torch.utils.data.IterableDataset):  # type: ignore[misc]
            def __iter__(self) -> Iterator[tuple[Any, Any]]:
                return batches.generator()

        return torch.utils.data.DataLoader(Stream(), batch_size=None)
    return Store(batches, steps, workers=4 if kind == "PyDataset, 4 workers" else 1)
