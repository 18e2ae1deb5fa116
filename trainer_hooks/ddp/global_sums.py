"""Sums and means over all ranks, for metrics: a mean of means is wrong where shares differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, SupportsFloat

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


def global_sum(value: SupportsFloat, *, group: ProcessGroup | None = None) -> float:
    """The sum over the ranks of what each has; every rank must call this.

    Args:
        value: A number, or a tensor with one; it is not differentiated through.
        group: Of the ranks; all of them by default. Without any process group, ``value``.
    """
    return _sums((float(value),), group)[0]


def global_mean(
    total: SupportsFloat, count: SupportsFloat, *, group: ProcessGroup | None = None
) -> float | None:
    """The mean over the samples of all ranks; every rank must call this, once an epoch is enough.

    Args:
        total: Sum over this rank's samples: of a loss, or of 1 for each right answer.
        count: How many samples those were (``share.samples``, 0 where it had none).
        group: Of the ranks; all of them by default. Without any process group, this rank's.

    Returns:
        ``None`` where no rank has a sample.

    >>> global_mean(3.0, 4)
    0.75
    """
    sum_of_all, count_of_all = _sums((float(total), float(count)), group)
    return sum_of_all / count_of_all if count_of_all else None


def _sums(values: tuple[float, ...], group: ProcessGroup | None) -> tuple[float, ...]:
    try:
        import torch
    except ModuleNotFoundError:
        return values
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return values
    is_nccl = torch.distributed.get_backend(group) == "nccl"  # it knows no other memory
    device = torch.device("cuda", torch.cuda.current_device()) if is_nccl else torch.device("cpu")
    together = torch.tensor(values, dtype=torch.float64, device=device)
    torch.distributed.all_reduce(together, group=group)
    return tuple(together.tolist())
