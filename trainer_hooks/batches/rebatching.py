"""Rebatches arrays, sequences of batches, and streams of batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

from trainer_hooks.batches.batch_rule import BatchRule, is_evaluating, refusal
from trainer_hooks.batches.batch_trees import Batch, cut, joined, reordered, rows_in


class ArraySamples:
    """The rows of arrays, in order or shuffled each epoch."""

    def __init__(self, arrays: Batch, *, shuffle: bool) -> None:
        self._arrays = arrays
        self._count = rows_in(arrays)
        self._shuffle = shuffle
        self._order: Any = None
        self.epoch_ended()

    def count(self) -> int:
        return self._count

    def read(self, start: int, stop: int) -> Batch:
        """Samples ``start`` to ``stop`` as one batch."""
        if self._order is None:
            return cut(self._arrays, start, stop)
        return reordered(self._arrays, self._order[start:stop])

    def epoch_ended(self) -> None:
        """Shuffle again."""
        if self._shuffle:
            import numpy as np

            # From NumPy's global random state, which keras.utils.set_random_seed seeds.
            self._order = np.random.permutation(self._count)


class BatchedSamples:
    """The samples of a sequence of equally large batches; the last may be smaller.

    The first and the last batch are read to learn their sizes.
    """

    def __init__(self, batches: Any) -> None:  # noqa: ANN401
        self._batches = batches
        self._rows_each = 0
        self._counted: tuple[int, int] | None = None  # batches and their samples

    def count(self) -> int | None:
        """Number of samples; ``None`` if endless."""
        batches = self.batches_in_source()
        if not batches:
            return batches
        if self._counted is None or self._counted[0] != batches:
            last = self._read_whole(batches - 1, batches)
            self._counted = batches, (batches - 1) * self._each() + rows_in(last)
        return self._counted[1]

    def read(self, start: int, stop: int) -> Batch:
        """Samples ``start`` to ``stop`` as one batch."""
        each, batches = self._each(), self.batches_in_source()
        pieces = [
            cut(
                self._read_whole(at, batches),
                max(start - at * each, 0),
                min(stop - at * each, each),
            )
            if start > at * each or stop < (at + 1) * each
            else self._read_whole(at, batches)
            for at in range(start // each, -(-stop // each))
        ]
        return joined(pieces)

    def epoch_ended(self) -> None:
        """Nothing to do: the wrapper forwards the callback to the source."""

    def batches_in_source(self) -> int | None:
        return len(self._batches)

    def _each(self) -> int:
        if not self._rows_each:
            self._rows_each = rows_in(self._batches[0])
            if not self._rows_each:
                raise ValueError("the first batch of the data is empty: its size is unknown")
        return self._rows_each

    def _read_whole(self, at: int, batches: int | None) -> Batch:
        batch, each = self._batches[at], self._each()
        rows, is_last = rows_in(batch), batches is not None and at == batches - 1
        if rows != each and not (is_last and rows < each):
            raise ValueError(
                f"batch {at} of the data has {rows} samples and the first has {each}: all but the "
                "last must be equally large; else give a generator"
            )
        return batch


class IndexedBatches:
    """Batches of one size by index, with ``len()``."""

    def __init__(self, samples: ArraySamples | BatchedSamples, rule: BatchRule) -> None:
        self._samples = samples
        self._rule = rule
        self.tail = rule.tail

    def batch_count(self) -> int | None:
        samples = self._samples.count()
        return None if samples is None else self._rule.count(samples)

    def has_copies(self) -> bool:
        """Whether a batch is filled up with copies."""
        samples = self._samples.count()
        return samples is not None and self._rule.fills_up(samples)

    def why_none(self) -> str:
        """The message where there is no batch."""
        samples = self._samples.count()
        if not samples:
            return "the data have no samples, so there is no batch to train on"
        return (
            f"the data have {samples} samples and a batch needs {self._rule.batch_size}, so that "
            'tail="drop" leaves out all of them: use smaller batches, tail="repeat" or tail="pad"'
        )

    def __len__(self) -> int:
        count = self.batch_count()
        if count is None:
            raise TypeError("endless batches have no len()")
        return count

    def __getitem__(self, index: int) -> Batch:
        samples, size = self._samples.count(), self._rule.batch_size
        start = index * size
        stop = start + size if samples is None else min(start + size, samples)
        batch = None
        if 0 <= start < stop:
            batch = self._rule.finished(self._samples.read(start, stop))
        if batch is None:
            raise IndexError(f"there is no batch {index}")
        return batch

    def __iter__(self) -> Iterator[Batch]:
        last = self.batch_count()
        for index in count() if last is None else range(last):
            yield self[index]
        self.epoch_ended()

    def epoch_ended(self) -> None:
        self._samples.epoch_ended()


def rebatched(batches: Iterable[Batch], rule: BatchRule) -> Iterator[Batch]:
    """The same samples in the same order, in batches of one size; one pass, lazily.

    At most one batch more than needed is kept, so the source may be endless. A batch of the right
    size is passed on unchanged where no samples are left over.

    Raises:
        ValueError: A batch is not made of arrays of one length; or the last is filled up with
            copies, and Keras' ``evaluate`` uses them.
    """
    is_evaluated = is_evaluating()  # now: Keras may read later ones in another thread
    held: list[Batch] = []
    rows = 0
    for batch in batches:
        more = rows_in(batch)
        if more == 0:
            continue
        held.append(batch)
        rows += more
        if rows < rule.batch_size:
            continue
        whole, start = joined(held), 0
        while rows - start >= rule.batch_size:
            yield rule.finished(cut(whole, start, start + rule.batch_size))
            start += rule.batch_size
        held = [cut(whole, start, rows)] if start < rows else []
        rows -= start
    if held:
        if is_evaluated and rule.fills_up(rows):
            raise refusal(rule.tail)
        last = rule.finished(joined(held))
        if last is not None:
            yield last


class FixedBatches:
    """Batches of one size that can be iterated over as often as their source.

    Their number is known only at the end of a pass, so there is no ``len()``.
    """

    def __init__(self, source: Iterable[Batch], rule: BatchRule) -> None:
        self._source = source
        self._rule = rule

    def __iter__(self) -> Iterator[Batch]:
        return rebatched(self._source, self._rule)

    def forever(self) -> Iterator[Batch]:
        """A generator of repeated passes for ``fit(..., steps_per_epoch=...)``.

        It ends with a pass without any batch.
        """
        while True:
            none = True
            for batch in self:
                none = False
                yield batch
            if none:
                return
