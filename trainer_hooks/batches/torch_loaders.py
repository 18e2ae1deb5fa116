"""Rebatches a torch ``DataLoader``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle, islice
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from trainer_hooks.batches.batch_rule import BatchRule, only_for_training
from trainer_hooks.batches.batch_trees import Batch
from trainer_hooks.batches.rebatching import rebatched


def fixed_loader(loader: Any, rule: BatchRule) -> Any:  # noqa: ANN401
    """A loader over the same samples that makes batches by the rule.

    Where the loader draws samples by index and groups them as torch does, a new loader has
    another batch size and the same dataset, sampler, workers and collation. Else, as for an
    ``IterableDataset`` or a custom batch sampler, its batches are cut and joined here.
    """
    if _groups_as_torch_does(loader):
        return _regrouped(loader, rule)
    return DataLoader(_Rebatched(loader, rule), batch_size=None)


def _groups_as_torch_does(loader: Any) -> bool:  # noqa: ANN401
    return (
        type(loader).__iter__ is DataLoader.__iter__
        and not isinstance(loader.dataset, IterableDataset)
        and type(loader.batch_sampler) is BatchSampler
    )


def _regrouped(loader: Any, rule: BatchRule) -> Any:  # noqa: ANN401
    kept = {
        name: getattr(loader, name)
        for name in (
            "sampler",
            "num_workers",
            "pin_memory",
            "timeout",
            "worker_init_fn",
            "multiprocessing_context",
            "generator",
            "prefetch_factor",
            "persistent_workers",
            "pin_memory_device",
            "in_order",
        )
        if hasattr(loader, name)
    }
    if not kept.get("pin_memory_device"):
        kept.pop("pin_memory_device", None)  # newer versions warn about it
    drops = rule.tail == "drop"
    made = DataLoader(
        loader.dataset,
        batch_size=rule.batch_size,
        drop_last=drops,
        collate_fn=loader.collate_fn if drops else _Finished(loader.collate_fn, rule),
        **kept,
    )
    samples = len(loader.sampler) if hasattr(loader.sampler, "__len__") else None
    return only_for_training(made, rule.tail) if rule.fills_up(samples) else made


class _Finished:
    """A collation that completes every batch, in the workers."""

    def __init__(self, collate: Callable[[Any], Batch], rule: BatchRule) -> None:
        self._collate = collate
        self._rule = rule

    def __call__(self, samples: Any) -> Batch:  # noqa: ANN401
        rows, size = len(samples), self._rule.batch_size
        batch = self._collate(samples if rows == size else list(islice(cycle(samples), size)))
        return self._rule.weighted(batch, rows) if self._rule.tail == "pad" else batch


class _Rebatched(IterableDataset[Any]):  # type: ignore[misc]  # torch is not read by mypy
    def __init__(self, loader: Any, rule: BatchRule) -> None:  # noqa: ANN401
        super().__init__()
        self._loader = loader
        self._rule = rule

    def __iter__(self) -> Iterator[Batch]:
        return rebatched(self._loader, self._rule)
