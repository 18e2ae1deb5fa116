"""Batches of one size as a ``PyDataset``, which ``fit`` accepts on every Keras backend."""

from __future__ import annotations

from typing import Any

import keras

from trainer_hooks.batches.batch_rule import BatchRule, is_evaluating, refusal
from trainer_hooks.batches.batch_trees import Batch
from trainer_hooks.batches.rebatching import BatchedSamples, IndexedBatches


class FixedPyDataset(keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types
    """Batches of one size by index, for ``fit``, ``evaluate`` and ``predict``."""

    def __init__(self, batches: IndexedBatches, **workers: Any) -> None:  # noqa: ANN401
        super().__init__(**workers)
        self._fixed = batches

    @property
    def num_batches(self) -> int | None:
        """How many; ``None`` if endless. Keras reads it before it trains or evaluates.

        Raises:
            ValueError: There are too few samples for one batch; or Keras evaluates, and a batch is
                filled up with copies.
        """
        if self._fixed.has_copies() and is_evaluating():
            raise refusal(self._fixed.tail)
        count = self._fixed.batch_count()
        if count == 0:
            raise ValueError(self._fixed.why_none())
        return count

    def __len__(self) -> int:
        return len(self._fixed)

    def __getitem__(self, index: int) -> Batch:
        return self._fixed[index]

    def on_epoch_end(self) -> None:
        self._fixed.epoch_ended()


class FixedFromPyDataset(FixedPyDataset):
    """Rebatches another ``PyDataset``, with its workers and epoch callbacks."""

    def __init__(self, source: Any, rule: BatchRule) -> None:  # noqa: ANN401
        super().__init__(
            IndexedBatches(_PyDatasetSamples(source), rule),
            workers=source.workers,
            use_multiprocessing=source.use_multiprocessing,
            max_queue_size=source.max_queue_size,
        )
        self._source = source

    def on_epoch_begin(self) -> None:
        begin = getattr(self._source, "on_epoch_begin", None)  # an older Keras has none
        if begin is not None:
            begin()

    def on_epoch_end(self) -> None:
        self._source.on_epoch_end()


class _PyDatasetSamples(BatchedSamples):
    def batches_in_source(self) -> int | None:
        batches: int | None = self._batches.num_batches
        return batches
