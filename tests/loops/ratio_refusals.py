"""What three trainers refuse to split by ratios: each rank of two tries it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import lightning.pytorch as pl
import torch
import transformers
from accelerate import Accelerator, DataLoaderConfiguration
from torch.utils.data import DataLoader, IterableDataset, WeightedRandomSampler

from tests.loops.ratio_courses import Course
from tests.loops.ratio_reference import Job, data, loader_of, network, optimizer_of
from tests.loops.ratio_reference import refusal as sentence
from tests.loops.ratio_trainers import (
    LanguageModel,
    LightningModel,
    NamedColumns,
    TrainerModel,
    quiet_lightning,
    quiet_trainer,
)
from trainer_hooks.accelerate import split_by_ratios
from trainer_hooks.ddp import RatioBalancer, RatioSampler
from trainer_hooks.huggingface import RatioCallback
from trainer_hooks.lightning import RatioStrategy


class Stream(IterableDataset):  # type: ignore[misc]
    """Samples without positions."""

    def __init__(self, *, is_named: bool = False) -> None:
        self._samples = NamedColumns() if is_named else data()

    def __iter__(self) -> Any:
        return iter([self._samples[at] for at in range(Course.samples)])


class FetchingModel(LightningModel):
    def training_step(self, dataloader_iter: Any) -> Any:  # type: ignore[override]
        batch, number, _ = next(dataloader_iter)
        return super().training_step(batch, number)


class EarlyReadingModel(LightningModel):
    """Reads the number of steps before Lightning knows where it continues."""

    def configure_optimizers(self) -> Any:
        assert self.trainer.estimated_stepping_batches > 0
        return super().configure_optimizers()


class OwnLossTrainer(transformers.Trainer):  # type: ignore[misc]
    def compute_loss(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Any:
        return model(**inputs)["loss"]


def refused_by_lightning(job: Job) -> dict[str, str]:
    course = Course()
    other = replace(job, ratios=(3, 2 + job.rank))

    def fit(
        loader: Any,
        job: Job = job,
        model: Any = None,
        balancer: RatioBalancer | None = None,
        **options: Any,
    ) -> str:
        strategy = RatioStrategy(job.ratios, balancer=balancer)
        trainer = quiet_lightning(job, strategy, max_epochs=2, **options)
        return sentence(lambda: trainer.fit(model or LightningModel(), loader))

    def resumed(every_n_train_steps: int | None, **until: int) -> str:
        saved = pl.callbacks.ModelCheckpoint(job.folder, every_n_train_steps=every_n_train_steps)
        arguments: dict[str, Any] = {"callbacks": [saved], "enable_checkpointing": True, **until}
        quiet_lightning(job, RatioStrategy(job.ratios), **arguments).fit(
            LightningModel(), loader_of(course)
        )
        trainer = quiet_lightning(job, RatioStrategy(job.ratios), max_epochs=2)
        loader, path = loader_of(course, num_workers=1), saved.best_model_path
        return sentence(lambda: trainer.fit(EarlyReadingModel(), loader, ckpt_path=path))

    drawn = DataLoader(data(), batch_sampler=RatioSampler(data(), 8, job.ratios))
    weighted = DataLoader(
        data(), sampler=WeightedRandomSampler([1.0] * Course.samples, Course.samples)
    )
    changing = pl.callbacks.GradientAccumulationScheduler({1: 2})
    return {
        "ratios": fit(loader_of(course), other),
        "too many ratios": fit(loader_of(course), replace(job, ratios=(3, 2, 1)), devices=2),
        "stream": fit(DataLoader(Stream(), batch_size=4)),
        "one rank": fit(weighted if job.rank else loader_of(course), use_distributed_sampler=False),
        "weighted": fit(weighted),
        "twice": fit(drawn, use_distributed_sampler=False),
        "batches": fit([loader_of(course), loader_of(course)]),
        "iterator": fit(loader_of(course), model=FetchingModel()),
        "accumulation": fit(loader_of(course), callbacks=[changing]),
        "resumed too early": resumed(1, max_steps=3),
        "drawn too early": resumed(None, max_epochs=1),
        "unlike balancers": fit(loader_of(course), balancer=RatioBalancer(every=5 + job.rank)),
    }


def refused_by_accelerate(job: Job) -> dict[str, str]:
    def split(
        loader: Any,
        ratios: Any = job.ratios,
        balancer: RatioBalancer | None = None,
        **options: Any,
    ) -> str:
        accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**options))
        model = network()
        model, _, loader = accelerator.prepare(model, optimizer_of(model), loader)
        arguments = {"ratios": ratios, "balancer": balancer}
        return sentence(lambda: split_by_ratios(accelerator, model, loader, **arguments))

    def unprepared() -> object:
        return split_by_ratios(Accelerator(cpu=True), network(), loader_of(Course()), job.ratios)

    def two_models(given: Callable[[Any, Any], Any]) -> str:
        accelerator = Accelerator(cpu=True)
        models = accelerator.prepare(network(), network())
        loader = accelerator.prepare(loader_of(Course()))
        return sentence(lambda: split_by_ratios(accelerator, given(*models), loader, job.ratios))

    accelerator = Accelerator(cpu=True)
    model, loader = accelerator.prepare(network(), loader_of(Course()))
    loader = split_by_ratios(accelerator, model, loader, job.ratios)
    other = accelerator.prepare(loader_of(Course()))
    other = split_by_ratios(accelerator, torch.nn.ModuleList([model]), other, job.ratios)

    def at_the_same_time() -> None:
        for _ in zip(loader, other, strict=True):
            pass

    def one_after_the_other() -> None:
        for _ in loader:
            break
        for _ in other:
            break

    one_after_the_other()
    # As Accelerate marks the loader with use_stateful_dataloader=True, which needs torchdata.
    stateful = accelerator.prepare(loader_of(Course()))
    stateful.use_stateful_dataloader = True
    begun = (
        accelerator,
        model,
        accelerator.skip_first_batches(accelerator.prepare(loader_of(Course())), 2),
    )
    drawn = DataLoader(data(), batch_sampler=RatioSampler(data(), 8, job.ratios))
    assert accelerator.prepare(loader) is loader
    return {
        "ratios": split(loader_of(Course()), (3, 2 + job.rank)),
        "stream": split(DataLoader(Stream(), batch_size=4)),
        "one rank": split(loader_of(Course()), job.ratios if job.rank == 0 else [3, -2]),
        "split": split(loader_of(Course()), split_batches=True),
        "dispatched": split(loader_of(Course()), dispatch_batches=True),
        "stateful": sentence(lambda: split_by_ratios(accelerator, model, stateful, job.ratios)),
        "unprepared": sentence(unprepared),
        "balanced": split(loader_of(Course()), balancer=RatioBalancer()),
        "one of two models": two_models(lambda encoder, head: encoder),
        "a list of models": two_models(lambda encoder, head: [encoder, head]),
        "frozen model": two_models(lambda encoder, head: head.requires_grad_(False) and encoder),
        "together": sentence(at_the_same_time),
        "twice": sentence(lambda: split_by_ratios(accelerator, model, loader, job.ratios)),
        "drawn": sentence(lambda: accelerator.prepare(drawn)),
        "skipped before": sentence(lambda: split_by_ratios(*begun, job.ratios)),
        "skipped": sentence(lambda: accelerator.skip_first_batches(loader, 2)),
    }


def refused_by_trainer(job: Job) -> dict[str, str]:
    def train(
        model: Any = None,
        ratios: Any = job.ratios,
        data: Any = None,
        balancer: RatioBalancer | None = None,
        **options: Any,
    ) -> str:
        callback = RatioCallback(ratios, balancer=balancer)
        trainer = quiet_trainer(job, model or TrainerModel(), callback, **options)
        trainer.train_dataset = data or trainer.train_dataset
        return sentence(trainer.train)

    few = [NamedColumns()[at] for at in range(41)]
    sentences = [{"input_ids": [1, 2, 3]} for _ in range(Course.samples)]
    return {
        "ratios": train(ratios=(3, 2 + job.rank)),
        "stream": train(data=Stream(is_named=True), max_steps=3),
        "grouped": train(data=sentences, train_sampling_strategy="group_by_length"),
        "own tokens": train(LanguageModel(), average_tokens_across_devices=False),
        "too few": train(LanguageModel(), data=few),
        "own loss": train(LanguageModel(), kind=OwnLossTrainer),
        "balanced": train(balancer=RatioBalancer()),
        "split": train(accelerator_config={"split_batches": True}),
    }


REFUSALS: dict[str, Callable[[Job], dict[str, str]]] = {
    "lightning": refused_by_lightning,
    "accelerate": refused_by_accelerate,
    "trainer": refused_by_trainer,
}
