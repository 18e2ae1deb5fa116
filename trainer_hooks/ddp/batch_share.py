"""What one rank has of one batch of all ranks, and the weight that keeps the gradient exact."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchShare:
    """One batch of one rank, as a part of all that the optimizer's step learns from.

    DDP adds the gradients of all ranks up and divides by their number, as if each had the
    same number of samples. ``weigh`` makes that the gradient of the whole batch.

    Attributes:
        step: Of the optimizer, counted from 0 in its epoch.
        samples: Of this rank in this batch. 0: there was none left for it; the batch holds
            samples of another rank, has no weight, and is computed so that all ranks meet.
        step_samples: Of all ranks in all micro-batches of the step; at least 1.
        world_size: How many ranks there are.
        ends_step: Whether the optimizer steps after this batch: always, without micro-batches.
    """

    step: int
    samples: int
    step_samples: int
    world_size: int
    ends_step: bool

    @property
    def weight(self) -> float:
        """What the mean loss of this rank's samples is to be multiplied by; 0 where it has none.

        >>> BatchShare(step=0, samples=60, step_samples=100, world_size=2, ends_step=True).weight
        1.2
        """
        return self.samples * self.world_size / self.step_samples

    def weigh(
        self, loss: torch.Tensor, *, reduction: Literal["mean", "sum"] = "mean"
    ) -> torch.Tensor:
        """The loss to call ``backward()`` on.

        Its gradient, averaged over the ranks and added up over the micro-batches, is that of
        one process that reduces the losses of the whole batch in the same way.

        Args:
            loss: Of this rank's batch alone; a scalar, or one loss for each sample, of which
                the caller then takes the mean (or sum).
            reduction: What ``loss`` is of its samples. Where their weights differ (classes,
                ignored tokens), take ``"sum"`` and divide by the ``global_sum`` of all weights
                in the step, this rank's being 0 where it has no samples.

        Raises:
            ValueError: Another reduction.
        """
        if reduction == "mean":
            return loss * self.weight
        if reduction == "sum":
            return loss * (self.world_size if self.samples else 0)
        raise ValueError(
            f'reduction must be "mean" or "sum", got {reduction!r}: what the loss is of its samples'
        )

    def accumulating(self, model: torch.nn.Module) -> AbstractContextManager[object]:
        """``model.no_sync()`` until the step's last micro-batch: around forward *and* backward.

        Args:
            model: The ``DistributedDataParallel`` one; any other is left as it is.
        """
        if self.ends_step or not hasattr(model, "no_sync"):
            return nullcontext()
        waits: AbstractContextManager[object] = model.no_sync()
        return waits
