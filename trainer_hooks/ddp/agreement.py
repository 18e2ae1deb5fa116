"""What all ranks must say alike, asked of all of them at once: they go on or raise together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

T = TypeVar("T")
Said = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Place:
    """Which of how many ranks this process is.

    Attributes:
        rank: From 0 on.
        world_size: How many there are.
        can_ask: Whether the others can be asked: the place was not given, but torch's.
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


def find_place(rank: int | None, world_size: int | None, group: ProcessGroup | None) -> Place:
    """The place that is given, or the one in torch's process group.

    Raises:
        ValueError: Half a place, a place and a group, no group yet, or a rank out of range.
    """
    if rank is not None and world_size is not None:
        if group is not None:
            raise ValueError("give a group, or rank and world_size, but not both")
        return Place(rank, world_size)
    if rank is not None or world_size is not None:
        raise ValueError("rank and world_size belong together: give both, or neither")
    import torch.distributed

    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        raise ValueError(
            "which rank is this? Call torch.distributed.init_process_group() first, or give rank "
            "and world_size"
        )
    return Place(
        torch.distributed.get_rank(group),
        torch.distributed.get_world_size(group),
        can_ask=True,
        group=group,
    )


def asked_of_all(place: Place, own: T) -> list[T]:
    """What each rank says, by rank; all of them must ask."""
    if not place.can_ask:
        return [own]
    import torch.distributed

    said: list[T | None] = [None] * place.world_size
    torch.distributed.all_gather_object(said, own, group=place.group)
    return [word for word in said if word is not None]


def agreed_by_all(place: Place, own: Said | Exception, besides: int = 0) -> list[int]:
    """Return where all ranks say the same, else raise in all of them.

    A rank that cannot go on says why instead, so that nobody waits for it.

    Args:
        place: Of this rank.
        own: What must be alike, by name, or why this rank cannot go on.
        besides: What need not be alike.

    Returns:
        What each rank says besides, by rank.

    Raises:
        Exception: This rank's own reason.
        ValueError: Another's, with its rank; or what is not alike.
    """
    mine = str(own) if isinstance(own, Exception) else dict(own)
    answers = asked_of_all(place, (mine, besides))
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
