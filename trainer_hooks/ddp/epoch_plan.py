"""Which samples each rank takes in each batch of an epoch, and their weight; no torch.

A *step* is a step of the optimizer, on one batch of all ranks. Each rank computes its part in one
batch or, to save memory, in several *micro-batches*.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

from gpumon.core.attribution.batch_shares import split_counts

if TYPE_CHECKING:
    import torch

Ratios = tuple[float, ...]

_BORROWED: Final = 2
"""Samples in a batch without weight: BatchNorm refuses to train on a single one."""

_split = lru_cache(maxsize=64)(split_counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchShare:
    """One batch of one rank, as a part of an optimizer step.

    DDP sums up the gradients of all ranks and divides by their number, as if each had equally
    many samples. ``weigh`` makes that the gradient of the whole batch.

    Attributes:
        step: The optimizer step, from 0 in its epoch.
        samples: This rank's samples in this batch. 0: there was none left; the batch holds samples
            of another rank, has no weight, and is computed because every rank must take part.
        step_samples: Samples of all ranks in all micro-batches of the step; at least 1.
        world_size: Number of ranks.
        ends_step: Whether the optimizer steps after this batch; always without micro-batches.
        micro_batches: The number of batches in which each rank computes the step.
    """

    step: int
    samples: int
    step_samples: int
    world_size: int
    ends_step: bool
    micro_batches: int = 1

    @property
    def weight(self) -> float:
        """The factor for the mean loss of this rank's samples; 0 where it has none.

        >>> BatchShare(step=0, samples=60, step_samples=100, world_size=2, ends_step=True).weight
        1.2
        """
        return self.samples * self.world_size / self.step_samples

    def weigh(
        self, loss: torch.Tensor, *, reduction: Literal["mean", "sum"] = "mean"
    ) -> torch.Tensor:
        """The loss to call ``backward()`` on.

        Its gradient, averaged over the ranks and summed up over the micro-batches, is that of one
        process that reduces the losses of the whole batch in the same way.

        Args:
            loss: Of this rank's batch only; a scalar, or one loss per sample, which the caller
                then reduces.
            reduction: How ``loss`` is reduced over samples. Where samples have weights (classes,
                ignored tokens), use ``"sum"`` and divide by the ``global_sum`` of all weights in
                the step, which are 0 on a rank without samples.

        Raises:
            ValueError: Another reduction.
        """
        if reduction == "mean":
            return loss * self.weight
        if reduction == "sum":
            return loss * (self.world_size if self.samples else 0)
        raise ValueError(
            f'reduction must be "mean" or "sum", as the loss was reduced, not {reduction!r}'
        )

    def accumulating(self, model: torch.nn.Module) -> AbstractContextManager[object]:
        """``model.no_sync()`` until the step's last micro-batch: around forward *and* backward.

        Args:
            model: The ``DistributedDataParallel`` model; any other stays unchanged.
        """
        if self.ends_step or not hasattr(model, "no_sync"):
            return nullcontext()
        no_sync: AbstractContextManager[object] = model.no_sync()
        return no_sync


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochShape:
    """How an epoch is divided into steps and batches, whatever the ratios are.

    Attributes:
        batch_size: Samples of all ranks in a step.

    Raises:
        ValueError: Some micro-batch would have no sample, or there is no step.
    """

    samples: int
    batch_size: int
    world_size: int
    micro_batches: int = 1
    drop_last: bool = False

    def __post_init__(self) -> None:
        for name in ("batch_size", "micro_batches"):
            if not hasattr(getattr(self, name), "__index__"):
                raise ValueError(f"{name} must be a whole number, not {getattr(self, name)!r}")
        if self.micro_batches < 1:
            raise ValueError(f"micro_batches must be at least 1, not {self.micro_batches}")
        if self.batch_size < self.world_size * self.micro_batches:
            pieces = f" and {self.micro_batches} micro-batches" if self.micro_batches > 1 else ""
            raise ValueError(
                f"batch_size counts the samples of all ranks: {self.batch_size} are too few for "
                f"{self.world_size} ranks{pieces}"
            )
        if self.step_count == 0:
            dropped = f"fewer than a batch of {self.batch_size}, with drop_last=True"
            raise ValueError(
                f"an epoch needs a step, and there are {self.samples} samples"
                + (f": {dropped}" if self.samples else "")
            )

    @property
    def step_count(self) -> int:
        full, rest = divmod(self.samples, self.batch_size)
        return full + bool(rest and not self.drop_last)

    @property
    def batch_count(self) -> int:
        last = self.step_count - 1
        return last * self.micro_batches + self.pieces_of(last)

    def samples_in(self, step: int) -> int:
        return min(self.batch_size, self.samples - step * self.batch_size)

    def pieces_of(self, step: int) -> int:
        """Micro-batches in a step; a short last step has fewer of the usual size."""
        return -(-self.samples_in(step) * self.micro_batches // self.batch_size)


class EpochPlan:
    """Which samples each rank takes in each batch, with ratios that may change between steps.

    >>> plan = EpochPlan(EpochShape(samples=12, batch_size=10, world_size=2), (3, 2))
    >>> [[list(plan.positions(batch, rank)) for rank in (0, 1)] for batch in (0, 1)]
    [[[0, 1, 2, 3, 4, 5], [6, 7, 8, 9]], [[10], [11]]]
    """

    def __init__(self, shape: EpochShape, ratios: Ratios, start_step: int = 0) -> None:
        self._shape = shape
        self._changes: list[tuple[int, Ratios]] = [(0, ratios)]
        # A short last step has fewer micro-batches.
        self.first_batch: Final = min(start_step * shape.micro_batches, shape.batch_count)
        self.next_batch = self.first_batch
        """The first batch that was not drawn yet."""

    @property
    def undrawn_step(self) -> int:
        """The first step without a drawn batch; 0 where nothing was drawn."""
        if self.next_batch == self.first_batch:
            return 0
        if self.next_batch >= self._shape.batch_count:
            return self._shape.step_count
        return -(-self.next_batch // self._shape.micro_batches)

    def change(self, step: int, ratios: Ratios) -> None:
        """Use other ratios from an undrawn step on."""
        self._changes = [change for change in self._changes if change[0] < step]
        self._changes.append((step, ratios))

    def ratios_in(self, step: int) -> Ratios:
        at = bisect_right(self._changes, step, key=lambda change: change[0])
        return self._changes[at - 1][1]

    def share(self, batch: int, rank: int) -> BatchShare:
        """A rank's share of a batch, counted from 0 at the beginning of the epoch."""
        step, piece, counts = self._split(batch, rank)
        return BatchShare(
            step=step,
            samples=counts[piece],
            step_samples=self._shape.samples_in(step),
            world_size=self._shape.world_size,
            ends_step=piece == len(counts) - 1,
            micro_batches=len(counts),
        )

    def positions(self, batch: int, rank: int) -> Sequence[int]:
        """Where in the epoch's order the samples of a rank's batch are; never empty.

        Where the rank has no samples, these are some of its peers' in the same step.
        """
        step, piece, counts = self._split(batch, rank)
        begin = step * self._shape.batch_size
        if counts[piece] == 0:
            in_step = self._shape.samples_in(step)
            return [begin + at % in_step for at in range(_BORROWED)]
        begin += sum(self._of_ranks(step)[:rank]) + sum(counts[:piece])
        return range(begin, begin + counts[piece])

    def _split(self, batch: int, rank: int) -> tuple[int, int, tuple[int, ...]]:
        """The batch's step, its position in it, and the samples of the rank's micro-batches."""
        if not 0 <= batch < self._shape.batch_count:
            raise IndexError(f"there is no batch {batch}: the epoch has {self._shape.batch_count}")
        step, piece = divmod(batch, self._shape.micro_batches)
        own = self._of_ranks(step)[rank]
        return step, piece, _split(own, (1,) * self._shape.pieces_of(step))

    def _of_ranks(self, step: int) -> tuple[int, ...]:
        return _split(self._shape.samples_in(step), self.ratios_in(step))
