"""Communication between ranks: sums and means over all, and checks that all agree.

With different shares a mean of means is wrong. Ranks continue or raise together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, SupportsFloat, TypeVar

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

T = TypeVar("T")
Settings = Mapping[str, object]


def global_sum(value: SupportsFloat, *, group: ProcessGroup | None = None) -> float:
    """The sum over all ranks; every rank must call this.

    Args:
        value: A number, or a tensor with one; not differentiable.
        group: The ranks; default all. Without a process group, the result is ``value``.
    """
    return _sums((float(value),), group)[0]


def global_mean(
    total: SupportsFloat, count: SupportsFloat, *, group: ProcessGroup | None = None
) -> float | None:
    """The mean over the samples of all ranks; every rank must call this, for example once an epoch.

    Args:
        total: Sum over this rank's samples, of a loss or of correct answers.
        count: Number of those samples (``share.samples``, 0 where it had none).
        group: The ranks; default all. Without a process group, only this rank.

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
    is_nccl = torch.distributed.get_backend(group) == "nccl"  # supports no other memory
    device = torch.device("cuda", torch.cuda.current_device()) if is_nccl else torch.device("cpu")
    together = torch.tensor(values, dtype=torch.float64, device=device)
    torch.distributed.all_reduce(together, group=group)
    return tuple(together.tolist())


@dataclass(frozen=True, slots=True)
class GroupRank:
    """This process' rank.

    Attributes:
        can_communicate: Whether ranks can communicate: the rank is torch's, not an argument.
    """

    rank: int
    world_size: int
    can_communicate: bool = False
    group: ProcessGroup | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world_size:
            raise ValueError(
                f"rank must be 0 to {self.world_size - 1} with {self.world_size} ranks, not "
                f"{self.rank}"
            )


def rank_in_group(
    rank: int | None, world_size: int | None, group: ProcessGroup | None
) -> GroupRank:
    """The given rank, or the one in torch's process group.

    Raises:
        ValueError: Only one of rank and world_size, a rank and a group, no process group yet, or a
            rank out of range.
    """
    if rank is not None and world_size is not None:
        if group is not None:
            raise ValueError("give a group, or rank and world_size, but not both")
        return GroupRank(rank, world_size)
    if rank is not None or world_size is not None:
        raise ValueError("rank and world_size belong together: give both, or neither")
    import torch.distributed

    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        raise ValueError(
            "the rank is unknown: call torch.distributed.init_process_group() first, or give rank "
            "and world_size"
        )
    return GroupRank(
        torch.distributed.get_rank(group),
        torch.distributed.get_world_size(group),
        can_communicate=True,
        group=group,
    )


def gathered_from_all(own_rank: GroupRank, own: T) -> list[T]:
    """The values of all ranks, by rank; every rank must call this."""
    if not own_rank.can_communicate:
        return [own]
    import torch.distributed

    values: list[T | None] = [None] * own_rank.world_size
    torch.distributed.all_gather_object(values, own, group=own_rank.group)
    return [value for value in values if value is not None]


def check_all_agree(own_rank: GroupRank, own: Settings | Exception, besides: int = 0) -> list[int]:
    """Check that all ranks have the same settings; raise on all of them if not.

    A rank that cannot continue passes its error instead, so that no rank waits for it.

    Args:
        own_rank: This rank.
        own: This rank's settings by name, or its error.
        besides: A number that may differ.

    Returns:
        The number of each rank, by rank.

    Raises:
        Exception: This rank's own error.
        ValueError: Another rank's error, or the first setting that differs.
    """
    mine = str(own) if isinstance(own, Exception) else dict(own)
    answers = gathered_from_all(own_rank, (mine, besides))
    if isinstance(own, Exception):
        raise own
    of_all: list[dict[str, object]] = []
    for rank, (settings, _) in enumerate(answers):
        if isinstance(settings, str):
            raise ValueError(f"rank {rank} cannot continue: {settings}")
        of_all.append(settings)
    for name, first in of_all[0].items():
        for rank, settings in enumerate(of_all):
            if settings[name] != first:
                raise ValueError(
                    f"all ranks must have the same {name}: rank 0 has {first!r}, and rank {rank} "
                    f"has {settings[name]!r}"
                )
    return [number for _, number in answers]
