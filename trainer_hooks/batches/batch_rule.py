"""What happens to a short batch, and that batches filled with copies are for training only."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from trainer_hooks.batches.batch_trees import (
    Batch,
    cut,
    has_gaps,
    joined,
    map_leaves,
    one_a_row,
    rows_in,
    scaled_rows,
)
from trainer_hooks.ring.call_frames import local_in

TAILS: Final = ("drop", "repeat", "pad")
REDUCTIONS: Final = ("mean", "sum")
NO_TARGETS: Final = (
    'tail="pad" adds sample weights, and these data have only inputs, no targets: use '
    'tail="repeat" or tail="drop", or give (inputs, targets)'
)


@dataclass(frozen=True, slots=True)
class BatchRule:
    """The size of every batch, and what happens to a short one.

    Attributes:
        batch_size: Samples in each batch, 1 or more.
        tail: One of ``TAILS``.
        reduction: One of ``REDUCTIONS``: that of the losses that ``"pad"`` keeps exact.
    """

    batch_size: int
    tail: str
    reduction: str = "mean"

    def count(self, samples: int) -> int:
        """The number of batches for that many samples."""
        if self.tail == "drop":
            return samples // self.batch_size
        return -(-samples // self.batch_size)

    def fills_up(self, samples: int | None) -> bool:
        """Whether a batch needs copies, or may need them.

        Args:
            samples: In total; ``None`` where unknown.
        """
        return self.tail != "drop" and (samples is None or samples % self.batch_size != 0)

    def finished(self, batch: Batch) -> Batch | None:
        """Complete a batch of 1 to ``batch_size`` samples.

        Returns:
            A batch of ``batch_size`` samples; ``None`` where it is dropped.

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
        """Add sample weights to a full batch whose first ``rows`` samples are real.

        Raises:
            ValueError: It has no targets.
        """
        inputs, targets, weights = unpacked(batch)
        of_real = self.batch_size / rows if self.reduction == "mean" else 1.0
        factors = [of_real] * rows + [0.0] * (self.batch_size - rows)

        def ones(target: Batch) -> Batch:
            # With as many axes as its target, Keras broadcasts it over steps and pixels.
            return None if target is None else one_a_row([1.0] * self.batch_size, target)

        def scaled(weight: Batch) -> Batch:
            return None if weight is None else scaled_rows(weight, factors)

        if weights is None:
            weights = map_leaves(ones, targets)
        elif has_gaps(weights):  # an output without weights
            weights = map_leaves(
                lambda weight, target: ones(target) if weight is None else weight, weights, targets
            )
        return inputs, targets, map_leaves(scaled, weights)

    def _filled(self, batch: Batch, rows: int) -> Batch:
        """Repeat all samples in turn, which is closest to their statistics."""
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
    """The rule for these arguments.

    Raises:
        ValueError: An argument is not allowed, or ``batch_size`` is no multiple of ``multiple_of``.
    """
    for name, number in (("batch_size", batch_size), ("multiple_of", multiple_of)):
        is_whole = hasattr(number, "__index__") and not isinstance(number, bool)
        if not is_whole or number < 1:
            raise ValueError(f"{name} must be a whole number, 1 or more, not {number!r}")
    if batch_size % multiple_of:
        lower = batch_size - batch_size % multiple_of
        near = [str(size) for size in (lower, lower + multiple_of) if size]
        raise ValueError(
            f"a batch of {batch_size} samples cannot be split evenly over {multiple_of}: "
            f"batch_size must be a multiple of multiple_of, such as {' or '.join(near)}"
        )
    for name, value, allowed in (("tail", tail, TAILS), ("reduction", reduction, REDUCTIONS)):
        if value not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
    return BatchRule(batch_size.__index__(), tail, reduction)


def is_evaluating(data: Any = None) -> bool:  # noqa: ANN401
    """Whether Keras' ``evaluate`` is among the callers, with no ``fit`` inside it.

    Args:
        data: The data in use, where ``fit`` may also inspect it for a later validation.
    """
    frame = sys._getframe(1).f_back
    while frame is not None:
        name = frame.f_code.co_name
        if name in ("evaluate", "fit") and hasattr(local_in(frame, "self"), "compute_metrics"):
            validates = data is not None and local_in(frame, "validation_data") is data
            return name == "evaluate" or (validates and local_in(frame, "x") is not data)
        frame = frame.f_back
    return False


def refusal(tail: str) -> ValueError:
    """The error for ``evaluate``. ``tail``: how the batches are filled up."""
    return ValueError(
        f'these batches are filled up with copies of samples (tail="{tail}"), which evaluate would '
        "count: evaluate the original data, where a short last batch is harmless"
    )


def only_for_training(data: Any, tail: str) -> Any:  # noqa: ANN401
    """Make ``data`` refuse to be used by ``evaluate``.

    Args:
        data: A ``tf.data.Dataset`` or a ``DataLoader`` of our own.
        tail: How its batches are filled up.
    """
    kind: Any = type(data)
    # With several devices TensorFlow reads a dataset's element_spec instead of an iterator;
    # iterators read it, too.
    member = "element_spec" if hasattr(kind, "element_spec") else "__iter__"
    original = getattr(kind, member)

    def refuse_or(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def checked(self: Any) -> Any:  # noqa: ANN401
            if is_evaluating(self):
                raise refusal(tail)
            return call(self)

        return checked

    is_property = isinstance(original, property)
    guarded = property(refuse_or(original.fget)) if is_property else refuse_or(original)
    # Its constructors cannot make an instance of our class.
    data.__class__ = type(kind.__name__, (kind,), {member: guarded, "gpumon_tail": tail})
    return data


def only_as(data: Any, made: Any) -> Any:  # noqa: ANN401
    """``made`` from ``data``, and only for training if ``data`` is."""
    tail = getattr(data, "gpumon_tail", None)
    return made if tail is None else only_for_training(made, tail)
