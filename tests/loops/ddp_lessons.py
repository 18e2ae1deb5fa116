"""Training runs with known results: by ranks with shares, and by one process.

The one process uses complete batches, without ratios, shares or samplers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import timed
from trainer_hooks.ddp import BatchShare, RatioSampler, global_sum

FEATURES, CLASSES = 6, 3
LEARNING_RATE = 0.1
SEED = 11
CLASS_WEIGHTS = (0.2, 1.0, 5.0)


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """A training run.

    Attributes:
        ratios: Of three ranks; two take the first two.
        reduction: Of the loss: "mean", "sum", or "classes" for a mean that weighs them.
        weighed: False: each rank's own mean, as if all had as many samples.
        new_ratios: From after the fourth step of the first epoch on.
        uneven_loaders: Rank 0 has two workers that draw ahead, the others none.
        norm: "own" batch norm for each rank, or "synced".
    """

    samples: int = 53
    batch_size: int = 12
    ratios: tuple[int, int, int] = (4, 3, 2)
    reduction: str = "mean"
    weighed: bool = True
    epochs: int = 1
    start_step: int = 0
    shuffle: bool = False
    drop_last: bool = False
    micro_batches: int = 1
    new_ratios: tuple[int, int, int] | None = None
    uneven_loaders: bool = False
    norm: str | None = None


LESSONS = {
    "uneven ratios": Lesson(ratios=(7, 2, 3)),
    "a last batch smaller than the world": Lesson(samples=37),
    "a last batch that is left out": Lesson(drop_last=True),
    "two shuffled epochs": Lesson(shuffle=True, epochs=2),
    "an epoch from its third step on": Lesson(shuffle=True, epochs=2, start_step=2),
    "uneven micro-batches": Lesson(micro_batches=3, ratios=(5, 2, 2)),
    "micro-batches without a sample of a rank": Lesson(micro_batches=4, ratios=(10, 1, 1)),
    "unweighted losses": Lesson(weighed=False),
    "sums": Lesson(reduction="sum", micro_batches=2, samples=37),
    "weighted classes": Lesson(reduction="classes"),
    "other ratios in mid-run": Lesson(
        samples=118, epochs=2, shuffle=True, new_ratios=(1, 5, 2), uneven_loaders=True
    ),
}
NORMS = {"batch norm of each rank": Lesson(norm="own", samples=37, ratios=(2, 3, 4))}
SYNCED_NORMS = {"synced batch norm": Lesson(norm="synced", drop_last=True, epochs=3, shuffle=True)}


def data_of(lesson: Lesson) -> tuple[Any, Any]:
    """Linearly separable rows and their classes."""
    generator = torch.Generator().manual_seed(SEED)
    rows = torch.randn(lesson.samples, FEATURES, generator=generator)
    return rows, (rows @ torch.randn(FEATURES, CLASSES, generator=generator)).argmax(1)


def new_model(lesson: Lesson) -> Any:
    torch.manual_seed(SEED)
    # Two values of each channel in a sample: a single sample has a variance, too.
    norm = [torch.nn.Unflatten(1, (4, 2)), torch.nn.BatchNorm1d(4), torch.nn.Flatten()]
    return torch.nn.Sequential(
        torch.nn.Linear(FEATURES, 8), *(norm if lesson.norm else ()), torch.nn.Tanh(),
        torch.nn.Linear(8, CLASSES),
    )  # fmt: skip


def new_optimizer(lesson: Lesson, model: Any) -> Any:
    rate = LEARNING_RATE / (lesson.batch_size if lesson.reduction == "sum" else 1)
    return torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)


def weights_of(model: Any) -> list[float]:
    """All that was learned, as one list; then the statistics of batch norm."""
    tensors = [*model.parameters(), *model.buffers()]
    return list(
        torch.cat([tensor.detach().double().flatten().cpu() for tensor in tensors]).tolist()
    )


def whole_batches(lesson: Lesson) -> Iterator[Any]:
    """The samples of each step of one process, as torch's own distributed sampler orders them."""
    for epoch in range(lesson.epochs):
        order = torch.arange(lesson.samples)
        if lesson.shuffle:
            generator = torch.Generator().manual_seed(SEED + epoch)
            order = torch.randperm(lesson.samples, generator=generator)
        batches = list(order.split(lesson.batch_size))
        if lesson.drop_last and len(batches[-1]) < lesson.batch_size:
            batches.pop()
        yield from batches[lesson.start_step if epoch == 0 else 0 :]


def learned_alone(lesson: Lesson, device: str) -> list[float]:
    """What one process learns."""
    rows, labels = (tensor.to(device) for tensor in data_of(lesson))
    model = new_model(lesson).to(device)
    optimizer = new_optimizer(lesson, model)
    weight = torch.tensor(CLASS_WEIGHTS, device=device) if lesson.reduction == "classes" else None
    reduction = "sum" if lesson.reduction == "sum" else "mean"
    for batch in whole_batches(lesson):
        batch = batch.to(device)
        loss = functional.cross_entropy(
            model(rows[batch]), labels[batch], weight=weight, reduction=reduction
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return weights_of(model)


class Rank:
    """One of the processes that learn together.

    Attributes:
        samples: How many of its own were in each batch, in the order of the batches.
        changed_from: The steps from which on other ratios were in force.
    """

    def __init__(self, lesson: Lesson, rank: int, world_size: int, device: str) -> None:
        self._lesson = lesson
        self._rank = rank
        self._world_size = world_size
        self._device = device
        self.samples: list[int] = []
        self.changed_from: list[int] = []

    def learn(self) -> list[float]:
        """What it learns with the others."""
        lesson = self._lesson
        data = TensorDataset(*data_of(lesson))
        sampler = RatioSampler(
            data, lesson.batch_size, lesson.ratios[: self._world_size], shuffle=lesson.shuffle,
            seed=SEED, drop_last=lesson.drop_last, micro_batches=lesson.micro_batches,
        )  # fmt: skip
        workers = 2 if lesson.uneven_loaders and self._rank == 0 else 0
        loader = DataLoader(
            data, batch_sampler=sampler, num_workers=workers, persistent_workers=workers > 0
        )
        model = new_model(lesson)
        if lesson.norm == "synced":
            model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)
        device_ids = [self._rank] if self._device.startswith("cuda") else None
        model = DistributedDataParallel(model.to(self._device), device_ids=device_ids)
        optimizer = new_optimizer(lesson, model)
        for epoch in range(lesson.epochs):
            sampler.set_epoch(epoch, start_step=lesson.start_step if epoch == 0 else 0)
            for (rows, labels), share in sampler.shares(timed(loader)):
                self.samples.append(share.samples)
                with share.accumulating(model):
                    scores = model(rows.to(self._device))
                    self._loss(scores, labels.to(self._device), share).backward()
                if share.ends_step:
                    optimizer.step()
                    optimizer.zero_grad()
                if lesson.new_ratios and (epoch, share.step) == (0, 3):
                    ratios = lesson.new_ratios[: self._world_size]
                    self.changed_from.append(sampler.set_ratios(ratios))
        return weights_of(model.module)

    def _loss(self, scores: Any, labels: Any, share: BatchShare) -> Any:
        if self._lesson.reduction == "mean":
            mean = functional.cross_entropy(scores, labels)
            return share.weigh(mean) if self._lesson.weighed else mean
        if self._lesson.reduction == "sum":
            summed = functional.cross_entropy(scores, labels, reduction="sum")
            return share.weigh(summed, reduction="sum")
        weight = torch.tensor(CLASS_WEIGHTS, device=scores.device)
        summed = functional.cross_entropy(scores, labels, weight=weight, reduction="sum")
        own = weight[labels].sum() if share.samples else 0.0
        return share.weigh(summed, reduction="sum") / global_sum(own)
