"""Splits an ordinary ``DataLoader`` by ratios, for trainers that run their own loop.

The loader's settings stay valid: its batch size times the number of ranks is one batch of all
ranks, an epoch has as many batches, and the order of a shuffled epoch is that of torch's
``DistributedSampler``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from trainer_hooks.ddp.all_ranks import check_all_agree, rank_in_group
from trainer_hooks.ddp.ratio_sampler import RatioSampler

if TYPE_CHECKING:
    import torch

OWN_LOOP = "see PyTorch in docs/multi-gpu.md"


def ratio_sampler_for(
    loader: object,
    ratios: Sequence[float],
    *,
    accumulated: int = 1,
    seed: int = 0,
    refusal: Callable[[], str | None] = lambda: None,
) -> RatioSampler:
    """A sampler that splits the loader's batches by ratios; every rank must call this.

    Args:
        loader: An ordinary one, prepared for equal ranks or not at all.
        ratios: One positive number per rank.
        accumulated: Batches per rank and step of the optimizer.
        seed: Of a shuffled order, where the loader's sampler has none.
        refusal: Returns why the trainer cannot split batches, if it cannot.

    Raises:
        ValueError: The loader or ratios are unsuitable, or ranks disagree: all ranks raise.
    """
    own = rank_in_group(None, None, None)
    try:
        reason = refusal()
        if reason is not None:
            raise ValueError(reason)
        data, batches = _splittable(loader)
        shuffle, own_seed = _order_of(batches.sampler, len(data))
    except ValueError as error:
        check_all_agree(own, error)
        raise
    of_all_ranks = batches.batch_size * own.world_size
    left_out = len(data) % of_all_ranks if batches.drop_last else 0
    return RatioSampler(
        range(len(data)),
        of_all_ranks * accumulated,
        ratios,
        shuffle=shuffle,
        seed=seed if own_seed is None else own_seed,
        micro_batches=accumulated,
        num_samples=len(data) - left_out,
    )


def _splittable(loader: object) -> tuple[Any, torch.utils.data.BatchSampler]:
    """The loader's dataset and ordinary batch sampler.

    Raises:
        ValueError: Its batches cannot be split; the message says what to write instead.
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
            "a loader with in_order=False returns batches in another order than their weights: "
            "leave in_order out"
        )
    batches = getattr(loader, "batch_sampler", None)
    if isinstance(batches, (RatioSampler, SplitBatches)):
        raise ValueError(
            "this loader is split by ratios already: give the DataLoader as it was made, with "
            "batch_size= and shuffle=, and name the ratios once"
        )
    if batches is None:
        raise ValueError("a loader with batch_size=None has no batches to split: give it a size")
    # Accelerate wraps the ordinary one.
    ordinary = getattr(batches, "batch_sampler", batches)
    if type(ordinary) is not BatchSampler:
        raise ValueError(
            f"ratios cannot split the batches of a {type(ordinary).__name__}: give the DataLoader "
            "batch_size= and shuffle= instead of batch_sampler=, or train in your own loop "
            f"with RatioSampler ({OWN_LOOP})"
        )
    return loader.dataset, ordinary


def _order_of(sampler: Any, length: int) -> tuple[bool, int | None]:  # noqa: ANN401
    """Whether it shuffles, and its seed, if any."""
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
        # Lightning wraps the user's sampler in one for distributed ranks.
        own = getattr(getattr(sampler, "dataset", None), "_sampler", sampler)
        raise ValueError(
            f"ratios cannot split the order of a {type(own).__name__}: give the DataLoader "
            "shuffle=True or shuffle=False instead of sampler=, or train in your own loop "
            f"with RatioSampler ({OWN_LOOP})"
        )
    return True, None


def split(loader: torch.utils.data.DataLoader, sampler: RatioSampler) -> None:
    """Replace the loader's batch sampler, before it starts to load.

    torch refuses to assign ``batch_sampler``, and a new loader with the same arguments would lose
    what a subclass adds.
    """
    vars(loader).update(batch_size=None, drop_last=False, batch_sampler=SplitBatches(sampler))


class SplitBatches:
    """The batches of a sampler without ``set_epoch``, which trainers also call within an epoch.

    Trainers also create an iterator before they set its epoch: it starts with the first batch.
    """

    def __init__(self, sampler: RatioSampler) -> None:
        self._sampler = sampler

    def __iter__(self) -> Iterator[list[int]]:
        yield from self._sampler

    def __len__(self) -> int:
        return len(self._sampler)


class GradientWeights:
    """Multiplies each gradient of a model by ``weight`` before it is accumulated or averaged.

    The effect is that of a weighted loss, for trainers that call ``backward`` themselves; the
    logged loss stays unchanged.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.weight = 1.0
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._hooks = [parameter.register_hook(self._weighed) for parameter in trained]

    def remove(self) -> None:
        while self._hooks:
            self._hooks.pop().remove()

    def _weighed(self, gradient: torch.Tensor) -> torch.Tensor | None:
        return None if self.weight == 1.0 else gradient * self.weight
