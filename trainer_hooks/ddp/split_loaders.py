"""An ordinary ``DataLoader`` becomes one that is split by ratios, for trainers that make their own.

What the loader asks for stays as it is: its batch size times the number of ranks is still one
batch of all ranks, an epoch has as many batches, and the order of a shuffled epoch is that of
torch's ``DistributedSampler``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer_hooks.ddp.all_ranks import agreed_by_all, rank_in_group
from trainer_hooks.ddp.ratio_sampler import RatioSampler

if TYPE_CHECKING:
    import torch

OWN_LOOP = "see PyTorch in docs/multi-gpu.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochOfLoader:
    """An epoch of an ordinary loader.

    Attributes:
        length: Samples in its dataset.
        batch_size: Samples of each rank in a batch, were all ranks equal.
        shuffle: Whether each epoch has an order of its own.
        seed: Of the orders, where the loader's sampler has one.
        drop_last: Whether the samples that do not fill a batch of all ranks are left out.
    """

    length: int
    batch_size: int
    shuffle: bool
    seed: int | None
    drop_last: bool


def ratio_sampler_for(
    loader: object,
    ratios: Sequence[float],
    *,
    accumulated: int = 1,
    seed: int = 0,
    refusal: Callable[[], str | None] = lambda: None,
) -> RatioSampler:
    """A sampler of the loader's batches, split by ratios; every rank must call this.

    Args:
        loader: An ordinary one, prepared for equal ranks or not at all.
        ratios: One positive number for each rank.
        accumulated: Batches of each rank in a step of the optimizer.
        seed: Of a shuffled order, where the loader's sampler has none.
        refusal: Why the trainer cannot split this training, if so.

    Raises:
        ValueError: A loader or ratios that cannot be split, or ranks that disagree: all ranks
            raise.
    """
    own = rank_in_group(None, None, None)
    try:
        reason = refusal()
        if reason is not None:
            raise ValueError(reason)
        epoch = epoch_of(loader)
    except ValueError as error:
        agreed_by_all(own, error)
        raise
    of_all_ranks = epoch.batch_size * own.world_size
    left_out = epoch.length % of_all_ranks if epoch.drop_last else 0
    return RatioSampler(
        range(epoch.length),
        of_all_ranks * accumulated,
        ratios,
        shuffle=epoch.shuffle,
        seed=seed if epoch.seed is None else epoch.seed,
        micro_batches=accumulated,
        num_samples=epoch.length - left_out,
    )


def epoch_of(loader: object) -> EpochOfLoader:
    """What an epoch of the loader is.

    Raises:
        ValueError: Its batches cannot be split; the message names what to write instead.
    """
    from torch.utils.data import BatchSampler, DataLoader, IterableDataset

    if not isinstance(loader, DataLoader):
        raise ValueError(
            f"ratios split a torch DataLoader, and {type(loader).__name__} is none: make one "
            "DataLoader of the training data"
        )
    if isinstance(loader.dataset, IterableDataset):
        raise ValueError(
            "an IterableDataset has no positions that ratios could split: make it a dataset with "
            "len() and [index], or yield each rank its own share and weigh the loss by "
            "trainer_hooks.ddp.BatchShare"
        )
    if not getattr(loader, "in_order", True):
        raise ValueError(
            "a loader with in_order=False mixes batches up, and their weights with them: leave "
            "in_order out"
        )
    batches = getattr(loader, "batch_sampler", None)
    if isinstance(batches, (RatioSampler, SplitBatches)):
        raise ValueError(
            "this loader is split by ratios already: give the DataLoader as it was made, with "
            "batch_size= and shuffle=, and name the ratios once"
        )
    if batches is None:
        raise ValueError("a loader with batch_size=None has no batches to split: give it a size")
    # Accelerate keeps the ordinary one within its own.
    ordinary = getattr(batches, "batch_sampler", batches)
    if type(ordinary) is not BatchSampler:
        raise ValueError(
            f"ratios cannot split the batches of a {type(ordinary).__name__}: give the DataLoader "
            "batch_size= and shuffle= in the place of batch_sampler=, or train in a loop of your "
            f"own with RatioSampler ({OWN_LOOP})"
        )
    shuffle, seed = _order_of(ordinary.sampler, len(loader.dataset))
    return EpochOfLoader(
        length=len(loader.dataset),
        batch_size=ordinary.batch_size,
        shuffle=shuffle,
        seed=seed,
        drop_last=ordinary.drop_last,
    )


def _order_of(sampler: Any, length: int) -> tuple[bool, int | None]:  # noqa: ANN401
    """Whether it shuffles, and its seed if it has one."""
    from torch.utils.data import DistributedSampler, RandomSampler, SequentialSampler

    if type(sampler) is SequentialSampler:
        return False, None
    if type(sampler) is DistributedSampler:
        return sampler.shuffle, sampler.seed
    takes_all_once = (
        isinstance(sampler, RandomSampler)
        and not sampler.replacement
        and sampler.num_samples == length
    )
    if not takes_all_once:
        # Lightning wraps the user's own sampler in one for distributed ranks.
        own = getattr(getattr(sampler, "dataset", None), "_sampler", sampler)
        raise ValueError(
            f"ratios cannot split the order of a {type(own).__name__}: give the DataLoader "
            "shuffle=True or shuffle=False in the place of sampler=, or train in a loop of your "
            f"own with RatioSampler ({OWN_LOOP})"
        )
    return True, None


def split(loader: torch.utils.data.DataLoader, sampler: RatioSampler) -> None:
    """Make the loader load the batches of the sampler; it must not have begun to load.

    torch allows no other ``batch_sampler`` by assignment once a loader is made, and a second loader
    made of the first one's arguments would lose what a subclass adds.
    """
    vars(loader).update(batch_size=None, drop_last=False, batch_sampler=SplitBatches(sampler))


class SplitBatches:
    """The batches of a sampler without its ``set_epoch``, which trainers call in mid-epoch, too.

    Trainers also make an iterator before they name its epoch: it begins with the first batch.
    """

    def __init__(self, sampler: RatioSampler) -> None:
        self._sampler = sampler

    def __iter__(self) -> Iterator[list[int]]:
        yield from self._sampler

    def __len__(self) -> int:
        return len(self._sampler)
