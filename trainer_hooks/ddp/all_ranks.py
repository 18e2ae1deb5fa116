"""What ranks tell each other: sums and means over all, and what all must say alike.

A mean of means is wrong where shares differ; and ranks go on or raise together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, SupportsFloat, TypeVar

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

T = TypeVar("T")
Said = Mapping[str, object]


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


@dataclass(frozen=True, slots=True)
class GroupRank:
    """Which of how many ranks this process is.

    Attributes:
        rank: From 0 on.
        world_size: How many there are.
        can_ask: Whether the others can be asked: the rank was not given, but torch's.
        group: Of the ranks; ``None`` is all of them.
    """

    rank: int
    world_size: int
    can_ask: bool = False
    group: ProcessGroup | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world_size:
            raise ValueError(
                f"rank must be one of 0 to {self.world_size - 1}, for there are "
                f"{self.world_size} ranks, and {self.rank} is not"
            )


def rank_in_group(
    rank: int | None, world_size: int | None, group: ProcessGroup | None
) -> GroupRank:
    """The rank that is given, or the one in torch's process group.

    Raises:
        ValueError: Half of it, a rank and a group, no group yet, or a rank out of range.
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
            "which rank is this? Call torch.distributed.init_process_group() first, or give rank "
            "and world_size"
        )
    return GroupRank(
        torch.distributed.get_rank(group),
        torch.distributed.get_world_size(group),
        can_ask=True,
        group=group,
    )


def asked_of_all(own_rank: GroupRank, own: T) -> list[T]:
    """What each rank says, by rank; all of them must ask."""
    if not own_rank.can_ask:
        return [own]
    import torch.distributed

    said: list[T | None] = [None] * own_rank.world_size
    torch.distributed.all_gather_object(said, own, group=own_rank.group)
    return [word for word in said if word is not None]


def agreed_by_all(own_rank: GroupRank, own: Said | Exception, besides: int = 0) -> list[int]:
    """Return where all ranks say the same, else raise in all of them.

    A rank that cannot go on says why instead, so that nobody waits for it.

    Args:
        own_rank: Of this rank.
        own: What must be alike, by name, or why this rank cannot go on.
        besides: What need not be alike.

    Returns:
        What each rank says besides, by rank.

    Raises:
        Exception: This rank's own reason.
        ValueError: Another's, with its rank; or what is not alike.
    """
    mine = str(own) if isinstance(own, Exception) else dict(own)
    answers = asked_of_all(own_rank, (mine, besides))
    said = [word for word, _ in answers]
    if isinstance(own, Exception):
        raise own
    for rank, word in enumerate(said):
        if isinstance(word, str):
            raise ValueError(f"rank {rank} cannot go on: {word}")
    words = [word for word in said if isinstance(word, dict)]
    for name, first in words[0].items():
        for rank, word in enumerate(words):
            if word[name] != first:
                raise ValueError(
                    f"all ranks must have the same {name}: rank 0 has {first!r}, and rank {rank} "
                    f"has {word[name]!r}"
                )
    return [number for _, number in answers]
