"""Batches from whatever can be gone through: cut and joined to one size on the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainer_hooks.batches.batch_rule import BatchRule
from trainer_hooks.batches.leaves import Batch, cut, joined, rows_in
from trainer_hooks.batches.only_for_training import is_evaluating, refusal


def rebatched(batches: Iterable[Batch], rule: BatchRule) -> Iterator[Batch]:
    """The same samples in the same order, in batches of one size; one pass, lazily.

    No more is held than one batch more than is asked for, so an endless source may be given.
    A batch of the right size that comes at the right moment is passed on as it is.

    Raises:
        ValueError: A batch holds something else than arrays of one length; or the last is filled
            up with copies, and the first was asked for by Keras' ``evaluate``.
    """
    is_evaluated = is_evaluating()  # now: Keras may ask for the others in a thread of its own
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
    """Batches of one size that can be gone through as often as their source.

    How many there are is known only at the end of a pass, so there is no ``len()``.
    """

    def __init__(self, source: Iterable[Batch], rule: BatchRule) -> None:
        self._source = source
        self._rule = rule

    def __iter__(self) -> Iterator[Batch]:
        return rebatched(self._source, self._rule)

    def forever(self) -> Iterator[Batch]:
        """Pass after pass in a generator, which ``fit(..., steps_per_epoch=...)`` takes.

        It ends at a pass without any batch.
        """
        while True:
            none = True
            for batch in self:
                none = False
                yield batch
            if none:
                return
