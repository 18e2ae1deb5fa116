"""What becomes of a batch that is too short: left out, filled with copies, or padded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trainer_hooks.batches.leaves import (
    Batch,
    cut,
    has_gaps,
    joined,
    map_leaves,
    one_a_row,
    rows_in,
    scaled_rows,
)

TAILS: Final = ("drop", "repeat", "pad")
REDUCTIONS: Final = ("mean", "sum")
NO_TARGETS: Final = (
    'tail="pad" gives a sample weight to each sample, and these data have no targets to weight, '
    'only inputs: take tail="repeat" or tail="drop", or give (inputs, targets)'
)


@dataclass(frozen=True, slots=True)
class BatchRule:
    """How large every batch is, and what makes a short one whole.

    Attributes:
        batch_size: Samples in each batch, 1 or more.
        tail: One of ``TAILS``.
        reduction: One of ``REDUCTIONS``: of the losses that ``"pad"`` is to keep exact.
    """

    batch_size: int
    tail: str
    reduction: str = "mean"

    def count(self, samples: int) -> int:
        """How many batches so many samples make."""
        if self.tail == "drop":
            return samples // self.batch_size
        return -(-samples // self.batch_size)

    def fills_up(self, samples: int | None) -> bool:
        """Whether one of the batches needs copies; so it may where nobody knows how many there are.

        Args:
            samples: How many there are in all; ``None``: not known.
        """
        return self.tail != "drop" and (samples is None or samples % self.batch_size != 0)

    def finished(self, batch: Batch) -> Batch | None:
        """A batch of at least one and at most ``batch_size`` samples as it is to be.

        Returns:
            A batch of ``batch_size`` samples; ``None`` where it is to be left out.

        Raises:
            ValueError: ``"pad"``, and the batch has no targets.
        """
        rows = rows_in(batch)
        if rows < self.batch_size:
            if self.tail == "drop":
                return None
            batch = self._filled(batch, rows)
        return self.weighted(batch, rows) if self.tail == "pad" else batch

    def weighted(self, batch: Batch, rows: int) -> Batch:
        """A whole batch with sample weights, the first ``rows`` of its samples being real ones.

        Raises:
            ValueError: It has no targets.
        """
        inputs, targets, weights = unpacked(batch)
        of_real = self.batch_size / rows if self.reduction == "mean" else 1.0
        factors = [of_real] * rows + [0.0] * (self.batch_size - rows)

        def ones(target: Batch) -> Batch:
            # With the axes of its target, Keras spreads it over losses by step and by pixel.
            return None if target is None else one_a_row([1.0] * self.batch_size, target)

        def scaled(weight: Batch) -> Batch:
            return None if weight is None else scaled_rows(weight, factors)

        if weights is None:
            weights = map_leaves(ones, targets)
        elif has_gaps(weights):  # an output without weights of its own
            weights = map_leaves(
                lambda weight, target: ones(target) if weight is None else weight, weights, targets
            )
        return inputs, targets, map_leaves(scaled, weights)

    def _filled(self, batch: Batch, rows: int) -> Batch:
        """All samples again and again, in turn: the nearest to their own statistics."""
        times, rest = divmod(self.batch_size, rows)
        return joined([batch] * times + ([cut(batch, 0, rest)] if rest else []))


def unpacked(batch: Batch) -> tuple[Batch, Batch, Batch]:
    """Inputs, targets and sample weights; the last is ``None`` where there are none.

    Raises:
        ValueError: There are no targets.
    """
    parts = tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)
    if len(parts) not in (2, 3) or parts[1] is None:
        raise ValueError(NO_TARGETS)
    return parts[0], parts[1], parts[2] if len(parts) == 3 else None


def checked_rule(batch_size: int, multiple_of: int, tail: str, reduction: str) -> BatchRule:
    """The rule, if batches can be made by it.

    Raises:
        ValueError: One of the four is none of what is allowed, or ``batch_size`` is no
            multiple of ``multiple_of``.
    """
    for name, number in (("batch_size", batch_size), ("multiple_of", multiple_of)):
        whole = hasattr(number, "__index__") and not isinstance(number, bool)
        if not whole or number < 1:
            raise ValueError(f"{name} must be a whole number, 1 or more, and {number!r} is not")
    if batch_size % multiple_of:
        lower = batch_size - batch_size % multiple_of
        near = [str(size) for size in (lower, lower + multiple_of) if size]
        raise ValueError(
            f"a batch of {batch_size} samples cannot be shared evenly by {multiple_of}: "
            f"batch_size must be a multiple of multiple_of, such as {' or '.join(near)}"
        )
    for name, word, allowed in (("tail", tail, TAILS), ("reduction", reduction, REDUCTIONS)):
        if word not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(allowed)}, and {word!r} is not")
    return BatchRule(batch_size.__index__(), tail, reduction)
