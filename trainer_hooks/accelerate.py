"""Unequal GPUs with Accelerate: a prepared loader split by ratios.

>>> from trainer_hooks.accelerate import split_by_ratios
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from trainer_hooks.ddp.ratio_sampler import RatioSampler
from trainer_hooks.ddp.split_loaders import GradientWeights, ratio_sampler_for, split
from trainer_hooks.trainers.patching import TransparentProxy

_ENGINES: Final = ("DEEPSPEED", "FSDP", "MEGATRON_LM", "XLA", "TPU")
"""Values of ``Accelerator.distributed_type`` that handle gradients in their own way."""
_NO_SKIPPING: Final = (
    "skip_first_batches cannot skip batches that are split by ratios: split the complete loader, "
    "and write loader.set_epoch(epoch, start_step=steps) with the optimizer steps done in this "
    "epoch"
)
_NOT_ALL_MODELS: Final = (
    "split_by_ratios weighs the gradients of one module, which must contain every trained model: "
    "pass torch.nn.ModuleList([enc, head]) with all that the accelerator prepared "
    "(accelerator.free_memory() forgets earlier models)"
)
_WEIGHTS: Final = "_gpumon_gradient_weights"
"""Attribute of a model: the weights that all its split loaders share."""
_LOADER_IN_USE: Final = "_gpumon_loader_in_use"
"""Attribute of an accelerator: the loader that sets the weights now."""


def split_by_ratios(
    accelerator: Any,  # noqa: ANN401
    model: Any,  # noqa: ANN401
    loader: Any,  # noqa: ANN401
    ratios: Sequence[float],
    *,
    seed: int = 0,
    balancer: object = None,
) -> RatioLoader:
    """Split a prepared loader by ratios, and weigh the model's gradients accordingly.

    ::

        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        loader = split_by_ratios(accelerator, model, loader, ratios=[3, 2])

    The batch of all ranks keeps its size: of two batches of 50, rank 0 computes 60 samples and
    rank 1 computes 40. After ``backward`` the gradient is that of one device with the whole
    batch: the mean over all samples of a step, including ``gradient_accumulation_steps``. A
    rank's loss is the mean over its own samples. All ranks must call this.

    Args:
        accelerator: It has prepared both.
        model: The prepared model; if several are trained, a ``torch.nn.ModuleList`` of all.
        loader: The prepared training loader, with ``batch_size=`` and ``shuffle=``.
        ratios: One positive number per rank; only their proportions count.
        seed: Of the order of each epoch, where the loader shuffles.
        balancer: Refused: balancing needs your own loop with DDP, or Lightning.

    Raises:
        ValueError: The loader, model or ratios are unsuitable, a trained model is not in
            ``model``, or ranks disagree. All ranks raise.
    """
    if accelerator.num_processes == 1:
        raise ValueError(
            "ratios split batches over several processes, and this is the only one: start the "
            "script with accelerate launch or torchrun"
        )
    accumulated = accelerator.gradient_accumulation_steps
    sampler = ratio_sampler_for(
        loader,
        ratios,
        accumulated=accumulated,
        seed=seed,
        refusal=lambda: (
            why_not_split(accelerator, loader, balancer) or _why_not_weighed(accelerator, model)
        ),
    )
    split(unwrapped(loader), sampler)
    if getattr(model, _WEIGHTS, None) is None:
        setattr(model, _WEIGHTS, GradientWeights(model))
    return RatioLoader(accelerator, loader, sampler, getattr(model, _WEIGHTS))


class RatioLoader(TransparentProxy):
    """A prepared loader whose batches are this rank's part; otherwise like the loader.

    While one of its batches is in use, the model's gradients have that batch's weight.
    """

    def __init__(
        self,
        accelerator: Any,  # noqa: ANN401
        loader: Any,  # noqa: ANN401
        sampler: RatioSampler,
        gradients: GradientWeights,
    ) -> None:
        self._accelerator = accelerator
        self._original = loader
        self._sampler = sampler
        self._gradients = gradients
        self._accumulated = accelerator.gradient_accumulation_steps
        self._epoch = self._start_step = 0

    def __len__(self) -> int:
        return self._sampler.batches

    def __iter__(self) -> Iterator[Any]:
        if getattr(self._accelerator, _LOADER_IN_USE, None) is not None:
            raise ValueError(
                "two loaders that are split by ratios cannot be used at the same time: make one "
                "DataLoader of a dataset that joins theirs"
            )
        self._sampler.set_epoch(self._epoch, start_step=self._start_step)
        setattr(self._accelerator, _LOADER_IN_USE, self)
        try:
            for number, batch in enumerate(self._original):
                # Accelerate divides each loss by the batches that are accumulated.
                share = self._sampler.begin_batch(number)
                self._gradients.weight = share.weight * self._accumulated
                yield batch
        finally:
            self._gradients.weight = 1.0
            setattr(self._accelerator, _LOADER_IN_USE, None)
        self._epoch, self._start_step = self._epoch + 1, 0

    def set_epoch(self, epoch: int, *, start_step: int = 0) -> None:
        """Set the next epoch, and the optimizer step at which it starts.

        Args:
            epoch: From 0, the same on all ranks.
            start_step: Within the epoch. It replaces ``skip_first_batches``.
        """
        self._original.set_epoch(epoch)
        self._epoch, self._start_step = epoch, start_step

    @property
    def batch_sampler(self) -> object:
        """Refused: skipped batches would leave their weights to others."""
        raise ValueError(_NO_SKIPPING)


def why_not_split(accelerator: Any, loader: Any, balancer: object = None) -> str | None:  # noqa: ANN401
    """Why the prepared loader cannot be split and what to write instead; ``None`` if it can."""
    from accelerate.data_loader import DataLoaderDispatcher, DataLoaderShard, SkipBatchSampler
    from torch.utils.data import IterableDataset

    if isinstance(getattr(loader, "dataset", None), IterableDataset):
        return None  # refused by ratio_sampler_for
    if balancer is not None:
        return (
            "RatioBalancer works in your own loop with DistributedDataParallel and in Lightning: "
            "leave it out here, and use the ratios that gpumon report recommends"
        )
    if accelerator.distributed_type.name in _ENGINES:
        return (
            "ratios weigh gradients in DistributedDataParallel, and Accelerate trains with "
            f"{accelerator.distributed_type.name} here: train in your own loop with "
            "RatioSampler and fully_shard (see FSDP2 in docs/multi-gpu.md)"
        )
    if isinstance(loader, RatioLoader):
        return "this loader is split by ratios already: call split_by_ratios once"
    if type(loader) is DataLoaderDispatcher:
        return (
            "with dispatch_batches=True one rank loads for all, in equal parts: set "
            "dispatch_batches=False, so that each rank loads its own part"
        )
    if not isinstance(loader, DataLoaderShard):
        return (
            "ratios split a loader that accelerator.prepare returned: prepare the model and the "
            "loader first"
        )
    if type(loader.batch_sampler) is SkipBatchSampler:
        return _NO_SKIPPING
    if getattr(loader.batch_sampler, "split_batches", False):
        return (
            "with split_batches=True the batch is divided in equal parts: leave split_batches out, "
            "and divide batch_size by the number of ranks"
        )
    if getattr(loader, "use_stateful_dataloader", False):
        return (
            "a stateful loader counts batches of equal parts: leave use_stateful_dataloader out, "
            "and resume by loader.set_epoch(epoch, start_step=...)"
        )
    return None


def _why_not_weighed(accelerator: Any, model: Any) -> str | None:  # noqa: ANN401
    """Why some gradients would not be weighted, and what to write instead."""
    from torch.nn import Module

    if not isinstance(model, Module):
        return _NOT_ALL_MODELS
    weighed = {id(parameter) for parameter in model.parameters()}
    trained = (
        id(parameter)
        for prepared in getattr(accelerator, "_models", ())
        for parameter in prepared.parameters()
        if parameter.requires_grad
    )
    return None if weighed.issuperset(trained) else _NOT_ALL_MODELS


def unwrapped(loader: Any) -> Any:  # noqa: ANN401
    """Torch's loader inside a prepared one; older versions of Accelerate have no wrapper."""
    return getattr(loader, "base_dataloader", loader)
