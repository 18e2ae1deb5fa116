"""The model and the data of the courses, and what one process learns: no ratios, no trainer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from tests.loops.ratio_courses import Course

FEATURES, CLASSES = 6, 3
SEED = 0
SAMPLE_S = 0.001
"""What the first rank needs for a sample where ranks are slow; the second needs twice as long."""


@dataclass(frozen=True)
class Job:
    """The ratios of its ranks, the rank of this process, and a folder for output."""

    ratios: tuple[int, ...]
    rank: int
    folder: Path
    device: str = "cpu"

    @property
    def world(self) -> int:
        return len(self.ratios)

    def turned(self) -> Job:
        return replace(self, ratios=self.ratios[::-1])


@dataclass
class Learned:
    """The results of a course.

    Attributes:
        samples: How many of this rank's own were in each batch.
        changed_from: The steps from which on other ratios were in force.
        changes: Those of a balancer.
    """

    weights: list[float]
    steps: int
    samples: list[int] = field(default_factory=list)
    changed_from: list[int] = field(default_factory=list)
    changes: Any = ()


class SlowGpu(torch.nn.Module):  # type: ignore[misc]
    """Needs a while for each sample."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self._sample_s = SAMPLE_S * (1 + rank)

    def forward(self, rows: Any) -> Any:
        time.sleep(self._sample_s * len(rows))
        return rows


def data(samples: int = Course.samples) -> Any:
    """Rows with three labels each, some of them ignored."""
    generator = torch.Generator().manual_seed(11)
    rows = torch.randn(samples, FEATURES, generator=generator)
    labels = (rows @ torch.randn(FEATURES, CLASSES, generator=generator)).argmax(1)
    counts = torch.rand(samples, 2, generator=generator) < 0.6
    more = torch.where(counts, labels[:, None], -100)
    return TensorDataset(rows, torch.cat([labels[:, None], more], dim=1))


def loader_of(course: Course, **named: Any) -> Any:
    arguments = {"shuffle": course.shuffle, "drop_last": course.drop_last, **named}
    return DataLoader(data(course.samples), batch_size=course.batch, **arguments)


def network(course: Course | None = None, rank: int | None = None) -> Any:
    """The model; with a rank it is as slow as that, where ranks are slow."""
    torch.manual_seed(SEED)
    course = course or Course()
    # Two values of each channel in a sample: a single sample has a variance, too.
    norm = [torch.nn.Unflatten(1, (4, 2)), torch.nn.BatchNorm1d(4), torch.nn.Flatten()]
    return torch.nn.Sequential(
        *([SlowGpu(rank)] if course.is_balanced and rank is not None else ()),
        torch.nn.Linear(FEATURES, 8), *(norm if course.norm else ()), torch.nn.Tanh(),
        torch.nn.Linear(8, CLASSES),
    )  # fmt: skip


def optimizer_of(model: Any, *, rate: float = 0.05) -> Any:
    return torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)


def rate_of(course: Course, world: int) -> float:
    """Of learning: smaller where losses are summed up."""
    return 0.05 / (course.batch * world if course.loss == "sum" else 1)


def loss_of(scores: Any, labels: Any, course: Course | None = None) -> Any:
    """The loss of one process, or of one rank where it is a mean."""
    course = course or Course()
    if course.loss == "labels":
        return sum_over_labels(scores, labels) / (labels != -100).sum()
    reduction = "sum" if course.loss == "sum" else "mean"
    return functional.cross_entropy(scores, labels[:, 0], reduction=reduction)


def sum_over_labels(scores: Any, labels: Any) -> Any:
    """The summed loss of all labels that count."""
    expanded = scores[:, None].expand(-1, 3, -1).flatten(0, 1)
    return functional.cross_entropy(expanded, labels.flatten(), reduction="sum")


def weights_of(model: Any) -> list[float]:
    """All that was learned, as one list; then the statistics of batch norm."""
    tensors = [*model.parameters(), *model.buffers()]
    return list(torch.cat([one.detach().double().flatten().cpu() for one in tensors]).tolist())


def whole_steps(course: Course, world: int) -> Iterator[Any]:
    """The samples of each step, as torch's own distributed sampler orders them."""
    batch = course.batch * world
    for epoch in range(course.epochs):
        order = torch.arange(course.samples)
        if course.shuffle:
            generator = torch.Generator().manual_seed(SEED + epoch)
            order = torch.randperm(course.samples, generator=generator)
        kept = course.samples - (course.samples % batch if course.drop_last else 0)
        steps = order[:kept].split(batch * course.accumulated)
        yield from steps[0 if epoch else course.start_step :]


def learned_alone(course: Course, world: int, device: str) -> tuple[list[float], int]:
    """What one process learns, and in how many steps."""
    rows, labels = (tensor.to(device) for tensor in data(course.samples).tensors)
    model = network(course).to(device)
    optimizer = optimizer_of(model, rate=rate_of(course, world))
    steps = list(whole_steps(course, world))
    for batch in steps:
        batch = batch.to(device)
        optimizer.zero_grad()
        loss_of(model(rows[batch]), labels[batch], course).backward()
        optimizer.step()
    return weights_of(model), len(steps)


def refusal(call: Callable[[], object]) -> str:
    """The sentence of a refusal."""
    try:
        call()
    except ValueError as error:
        return str(error)
    return "it was not refused"
