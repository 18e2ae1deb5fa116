"""``predict`` on TensorFlow: Keras fetches in Python there, from an iterator that can be ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gpumon.core.phase import TrainingMode
from trainer_hooks.ring.frames import caller_named
from trainer_hooks.taps import StepListener

_DATASET: Final = "_distributed_dataset"


class TimedPredictions:
    """Times the batches of ``predict`` calls, each from its beginning."""

    def __init__(self, listener: StepListener) -> None:
        self._listener = listener
        self._changed: list[tuple[Any, Any]] = []

    def place(self) -> None:
        """To be called by what ``predict`` calls before its first batch."""
        epoch_iterator = caller_named("epoch_iterator", _has_dataset)
        if epoch_iterator is None:
            return
        dataset = getattr(epoch_iterator, _DATASET)
        if not isinstance(dataset, _TimedDataset):
            setattr(epoch_iterator, _DATASET, _TimedDataset(dataset, self._listener))
            self._changed.append((epoch_iterator, dataset))

    def remove(self) -> None:
        """Leave what ``predict`` iterates over as it was."""
        for epoch_iterator, dataset in self._changed:
            setattr(epoch_iterator, _DATASET, dataset)
        self._changed.clear()


class _TimedDataset:
    def __init__(self, dataset: Any, listener: StepListener) -> None:  # noqa: ANN401
        self._dataset = dataset
        self._listener = listener

    def __iter__(self) -> Iterator[Any]:
        return _TimedBatches(iter(self._dataset), self._listener)


class _TimedBatches:
    __slots__ = ("_listener", "_source")

    def __init__(self, source: Iterator[Any], listener: StepListener) -> None:
        self._source = source
        self._listener = listener

    def __iter__(self) -> _TimedBatches:
        return self

    def __next__(self) -> Any:  # noqa: ANN401
        machine = self._listener.machine_here
        if machine is None or machine.mode != TrainingMode.PREDICT:
            return next(self._source)
        machine.fetch_begin()
        try:
            batch = next(self._source)
        except StopIteration:
            machine.fetch_exhausted()
            raise
        machine.fetch_end()
        return batch


def _has_dataset(candidate: Any) -> bool:  # noqa: ANN401
    return hasattr(candidate, _DATASET)
