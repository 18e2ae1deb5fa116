"""Training runs with known results by Lightning, Accelerate and the Hugging Face Trainer.

They are compared with one process without ratios, samplers or trainers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
import transformers
from accelerate import Accelerator
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, TensorDataset

from trainer_hooks.accelerate import split_by_ratios
from trainer_hooks.ddp import RatioBalancer, RatioSampler
from trainer_hooks.huggingface import PhaseTagger, RatioCallback
from trainer_hooks.lightning import RatioStrategy

FEATURES, CLASSES = 6, 3
SAMPLES, BATCH = 53, 4
"""Batches are those of a rank: the last one of all ranks is a short one."""
SAMPLE_S = 0.001
"""What the first rank needs for a sample where ranks are slow; the second needs twice as long."""
RATIOS = {2: (3, 2), 3: (5, 3, 1)}
SEED = 0


@dataclass(frozen=True, kw_only=True)
class Course:
    """A training run.

    Attributes:
        accumulated: Batches per rank and optimizer step.
        epochs: At least 20 steps in total.
        tokens: Losses count labels, whose number varies by sample, as in language models.
        levelled: The second rank is slow, and the ratios are balanced during training.
        resumed_at: The step after which it is stopped, and continued with reversed ratios.
    """

    accumulated: int = 1
    epochs: int = 4
    shuffle: bool = True
    drop_last: bool = False
    tokens: bool = False
    levelled: bool = False
    resumed_at: int | None = None

    @property
    def samples(self) -> int:
        return 480 if self.levelled else SAMPLES

    @property
    def batch(self) -> int:
        return 24 if self.levelled else BATCH


COURSES = {
    "in order": Course(shuffle=False),
    "accumulated, and resumed on other ratios": Course(accumulated=3, epochs=10, resumed_at=5),
    "whole batches only": Course(drop_last=True, accumulated=3, epochs=10),
    "labels that count": Course(tokens=True, accumulated=3, epochs=10),
    "accumulated": Course(accumulated=3, epochs=10),
    "levelled": Course(levelled=True, epochs=2),
}


def data(samples: int = SAMPLES) -> Any:
    """Rows with three labels each, some of them ignored."""
    generator = torch.Generator().manual_seed(11)
    rows = torch.randn(samples, FEATURES, generator=generator)
    labels = (rows @ torch.randn(FEATURES, CLASSES, generator=generator)).argmax(1)
    counts = torch.rand(samples, 2, generator=generator) < 0.6
    more = torch.where(counts, labels[:, None], -100)
    return TensorDataset(rows, torch.cat([labels[:, None], more], dim=1))


def network() -> Any:
    torch.manual_seed(SEED)
    return torch.nn.Sequential(
        torch.nn.Linear(FEATURES, 8), torch.nn.Tanh(), torch.nn.Linear(8, CLASSES)
    )


def optimizer_of(model: Any) -> Any:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def loss_of(scores: Any, labels: Any, *, tokens: bool, items: Any = None) -> Any:
    """The mean over samples; or over all labels that count, of ``items`` if so many are counted."""
    if not tokens:
        return functional.cross_entropy(scores, labels[:, 0])
    each = functional.cross_entropy(
        scores[:, None].expand(-1, 3, -1).flatten(0, 1), labels.flatten(), reduction="sum"
    )
    return each / ((labels != -100).sum() if items is None else items)


def weights_of(model: Any) -> list[float]:
    learned = torch.cat([one.detach().double().flatten() for one in model.parameters()])
    return list(learned.tolist())


def whole_steps(course: Course, world: int) -> Iterator[Any]:
    """The samples of each step, as torch's own distributed sampler orders them."""
    batch = course.batch * world
    for epoch in range(course.epochs):
        order = torch.arange(course.samples)
        if course.shuffle:
            generator = torch.Generator().manual_seed(SEED + epoch)
            order = torch.randperm(course.samples, generator=generator)
        kept = course.samples - (course.samples % batch if course.drop_last else 0)
        yield from order[:kept].split(batch * course.accumulated)


def learned_alone(course: Course, world: int) -> tuple[list[float], int]:
    """What one process learns, and in how many steps."""
    rows, labels = data(course.samples).tensors
    model = network()
    optimizer = optimizer_of(model)
    steps = list(whole_steps(course, world))
    for batch in steps:
        optimizer.zero_grad()
        loss_of(model(rows[batch]), labels[batch], tokens=course.tokens).backward()
        optimizer.step()
    return weights_of(model), len(steps)


@dataclass(frozen=True)
class PhaseMode:
    """The ratios of the ranks and a folder for output."""

    ratios: tuple[int, ...]
    folder: Path

    def turned(self) -> PhaseMode:
        return replace(self, ratios=self.ratios[::-1])


def loader_of(course: Course, **named: Any) -> Any:
    words = {"shuffle": course.shuffle, "drop_last": course.drop_last, **named}
    return DataLoader(data(course.samples), batch_size=course.batch, **words)


class SlowGpu(torch.nn.Module):  # type: ignore[misc]
    """Needs a while for each sample."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self._sample_s = SAMPLE_S * (1 + rank)

    def forward(self, rows: Any) -> Any:
        time.sleep(self._sample_s * len(rows))
        return rows


class LightningModel(pl.LightningModule):  # type: ignore[misc]
    def __init__(self, *layers: Any) -> None:
        super().__init__()
        self.network = torch.nn.Sequential(*layers, *network())

    def training_step(self, batch: Any, number: int) -> Any:
        loss = loss_of(self.network(batch[0]), batch[1], tokens=False)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, number: int) -> None:
        self.log("validated", self.network(batch[0]).sum(), sync_dist=True)

    def configure_optimizers(self) -> Any:
        return optimizer_of(self)


def quiet_lightning(place: PhaseMode, strategy: Any, **options: Any) -> Any:
    quiet: dict[str, Any] = {
        "accelerator": "cpu",
        "devices": len(place.ratios),
        "default_root_dir": place.folder,
        "enable_checkpointing": False,
        "enable_model_summary": False,
        "enable_progress_bar": False,
        "logger": False,
        "strategy": strategy,
    }
    return pl.Trainer(**{**quiet, **options})


def by_lightning(course: Course, place: PhaseMode) -> tuple[list[float], int]:
    """With a sampler that Lightning puts in where the order is shuffled, with its own where not."""
    options = {
        "accumulate_grad_batches": course.accumulated,
        "enable_checkpointing": True,
        "use_distributed_sampler": course.shuffle,
    }
    legs: list[dict[str, int]] = [{"max_epochs": course.epochs}]
    if course.resumed_at is not None:  # from a checkpoint in mid-epoch, and one of an epoch's end
        legs = [{"max_steps": course.resumed_at}, {"max_epochs": 4}, *legs]
    # A worker draws batches ahead.
    workers = {"num_workers": 1, "persistent_workers": True} if course.resumed_at else {}
    checkpoint = None
    for leg in legs:
        saved = pl.callbacks.ModelCheckpoint(
            place.folder, every_n_train_steps=1 if "max_steps" in leg else None
        )
        trainer = quiet_lightning(
            place, RatioStrategy(place.ratios), callbacks=[saved], **options, **leg
        )
        model = LightningModel()
        trainer.fit(model, loader_of(course, **workers), ckpt_path=checkpoint)
        checkpoint, place = saved.best_model_path, place.turned()
    return weights_of(model), trainer.global_step


def by_accelerate(course: Course, place: PhaseMode) -> tuple[list[float], int]:
    model, state, steps = network(), None, 0
    if course.resumed_at is not None:
        model, state, steps = run_of_accelerate(course, place, model, until=course.resumed_at)
        place = place.turned()
    model, _, steps = run_of_accelerate(course, place, model, state, done=steps)
    return weights_of(model), steps


def run_of_accelerate(
    course: Course,
    place: PhaseMode,
    model: Any,
    state: Any = None,
    *,
    done: int = 0,
    until: int = -1,
) -> tuple[Any, Any, int]:
    """The model, its optimizer's state, and the steps that were done by then.

    Where the order is shuffled, its layers are two models that are prepared each by itself.
    """
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=course.accumulated)
    optimizer = optimizer_of(model)
    if state is not None:
        optimizer.load_state_dict(state)
    parts = [model[:1], model[1:]] if course.shuffle else [model]
    *parts, optimizer, loader = accelerator.prepare(*parts, optimizer, loader_of(course))
    trained = torch.nn.ModuleList(parts) if course.shuffle else parts[0]
    loader = split_by_ratios(accelerator, trained, loader, ratios=place.ratios, seed=SEED)
    steps_in_epoch = -(-len(loader) // course.accumulated)
    for epoch in range(done // steps_in_epoch, course.epochs):
        loader.set_epoch(epoch, start_step=done - epoch * steps_in_epoch)
        for rows, labels in loader:
            with accelerator.accumulate(*parts):
                scores = torch.nn.Sequential(*parts)(rows)
                accelerator.backward(loss_of(scores, labels, tokens=False))
                optimizer.step()
                optimizer.zero_grad()
            done += accelerator.sync_gradients
            if done == until:
                return model, optimizer.state_dict(), done
    return model, optimizer.state_dict(), done


class NamedColumns(Dataset):  # type: ignore[misc]
    """The samples as the Trainer wants them."""

    def __init__(self) -> None:
        self._rows, self._labels = data().tensors

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, at: int) -> dict[str, Any]:
        return {"rows": self._rows[at], "labels": self._labels[at]}


class TrainerModel(torch.nn.Module):  # type: ignore[misc]
    """Its loss is the mean over the samples of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def forward(self, rows: Any, labels: Any) -> Any:
        return {"loss": loss_of(self.network(rows), labels, tokens=False)}


class LanguageModel(TrainerModel):
    """Its loss is a sum, over the number of labels that the Trainer counts on all ranks."""

    def forward(self, rows: Any, labels: Any, num_items_in_batch: Any = None, **_: Any) -> Any:
        scores = self.network(rows)
        return {"loss": loss_of(scores, labels, tokens=True, items=num_items_in_batch)}


def quiet_trainer(
    place: PhaseMode, model: Any, *callbacks: Any, kind: Any = None, **options: Any
) -> Any:
    quiet: dict[str, Any] = {
        "seed": SEED,
        "disable_tqdm": True,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "output_dir": str(place.folder / "trainer"),
        "per_device_train_batch_size": BATCH,
        "remove_unused_columns": False,
        "report_to": [],
        "save_strategy": "no",
        "use_cpu": True,
    }
    return (kind or transformers.Trainer)(
        model,
        transformers.TrainingArguments(**{**quiet, **options}),
        train_dataset=NamedColumns(),
        optimizers=(optimizer_of(model), None),
        callbacks=list(callbacks),
    )


def by_trainer(course: Course, place: PhaseMode) -> tuple[list[float], int]:
    kind = LanguageModel if course.tokens else TrainerModel
    options: dict[str, Any] = {
        "dataloader_drop_last": course.drop_last,
        "gradient_accumulation_steps": course.accumulated,
        "num_train_epochs": course.epochs,
        "train_sampling_strategy": "random" if course.shuffle else "sequential",
    }
    checkpoint = None
    if course.resumed_at is not None:
        trainer = quiet_trainer(
            place, kind(), RatioCallback(place.ratios), **options, save_steps=course.resumed_at,
        )  # fmt: skip
        trainer.args.save_strategy = "steps"
        trainer.train()
        checkpoint, place = (
            f"{trainer.args.output_dir}/checkpoint-{course.resumed_at}",
            place.turned(),
        )
    model = kind()
    callbacks = RatioCallback(place.ratios), PhaseTagger()
    trainer = quiet_trainer(place, model, *callbacks, **options)
    if course == COURSES["in order"]:  # state of a first run must not affect the next
        trainer.train()
        model.network.load_state_dict(network().state_dict())
        trainer.optimizer = optimizer_of(model)
    trainer.train(resume_from_checkpoint=checkpoint)
    return weights_of(model), trainer.state.global_step


def levelled_by_lightning(rank: int, place: PhaseMode) -> dict[str, Any]:
    """From equal ratios on."""
    course, balancer = COURSES["levelled"], RatioBalancer(every=4, warm_up=1)
    model = LightningModel(SlowGpu(rank))
    strategy = RatioStrategy([1] * len(place.ratios), balancer=balancer)
    quiet_lightning(place, strategy, max_epochs=course.epochs).fit(model, loader_of(course))
    return {"weights": weights_of(model), "changes": balancer.changes}


def levelled_by_ddp(rank: int, place: PhaseMode) -> dict[str, Any]:
    """The same in a loop of one's own."""
    course, balancer = COURSES["levelled"], RatioBalancer(every=4, warm_up=1)
    samples = data(course.samples)
    sampler = RatioSampler(samples, course.batch * len(place.ratios), shuffle=True, seed=SEED)
    model = DistributedDataParallel(torch.nn.Sequential(SlowGpu(rank), *network()))
    optimizer = optimizer_of(model)
    balancer.watch(sampler, model)
    for epoch in range(course.epochs):
        sampler.set_epoch(epoch)
        for (rows, labels), share in sampler.shares(DataLoader(samples, batch_sampler=sampler)):
            optimizer.zero_grad()
            share.weigh(loss_of(model(rows), labels, tokens=False)).backward()
            optimizer.step()
    return {"weights": weights_of(model), "changes": balancer.changes}


def by_fsdp2(course: Course, place: PhaseMode) -> tuple[list[float], int]:
    """In a loop of one's own, as the page on several GPUs has it."""
    world = len(place.ratios)
    samples = data(course.samples)
    sampler = RatioSampler(
        samples, course.batch * world * course.accumulated, place.ratios, shuffle=course.shuffle,
        seed=SEED, micro_batches=course.accumulated,
    )  # fmt: skip
    mesh = init_device_mesh("cpu", (world,))
    model = fully_shard(network(), mesh=mesh)
    optimizer = optimizer_of(model)
    for epoch in range(course.epochs):
        sampler.set_epoch(epoch)
        for (rows, labels), share in sampler.shares(DataLoader(samples, batch_sampler=sampler)):
            model.set_requires_gradient_sync(share.ends_step)
            share.weigh(loss_of(model(rows), labels, tokens=False)).backward()
            if share.ends_step:
                optimizer.step()
                optimizer.zero_grad()
    whole = [one.full_tensor().double().flatten() for one in model.parameters()]
    return list(torch.cat(whole).tolist()), sampler.steps * course.epochs


TRAINERS: dict[str, Callable[[Course, PhaseMode], tuple[list[float], int]]] = {
    "lightning": by_lightning,
    "accelerate": by_accelerate,
    "trainer": by_trainer,
    "fsdp2": by_fsdp2,
}
_OF_ALL = ("in order", "accumulated, and resumed on other ratios")
LESSONS = [
    *(
        (trainer, course)
        for trainer in ("lightning", "accelerate", "trainer")
        for course in _OF_ALL
    ),
    ("trainer", "whole batches only"),
    ("trainer", "labels that count"),
    ("fsdp2", "accumulated"),
]
"""Which trainer trains what."""
