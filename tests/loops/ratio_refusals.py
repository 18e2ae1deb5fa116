"""What three trainers cannot split by ratios: each rank of two tries, and keeps the sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import lightning.pytorch as pl
import torch
import transformers
from accelerate import Accelerator, DataLoaderConfiguration
from torch.utils.data import DataLoader, IterableDataset, WeightedRandomSampler

from tests.loops.ratio_trainings import (
    SAMPLES,
    Course,
    LanguageModel,
    LightningModel,
    NamedColumns,
    PhaseMode,
    TrainerModel,
    data,
    loader_of,
    network,
    optimizer_of,
    quiet_lightning,
    quiet_trainer,
)
from trainer_hooks.accelerate import split_by_ratios
from trainer_hooks.ddp import RatioBalancer, RatioSampler
from trainer_hooks.huggingface import RatioCallback
from trainer_hooks.lightning import RatioStrategy


class Stream(IterableDataset):  # type: ignore[misc]
    """Samples that come one after the other."""

    def __init__(self, *, is_named: bool = False) -> None:
        self._samples = NamedColumns() if is_named else data()

    def __iter__(self) -> Any:
        return iter([self._samples[at] for at in range(SAMPLES)])


class FetchingModel(LightningModel):
    def training_step(self, dataloader_iter: Any) -> Any:  # type: ignore[override]
        batch, number, _ = next(dataloader_iter)
        return super().training_step(batch, number)


class AskingModel(LightningModel):
    """Asks how many steps there will be, before Lightning knows where it continues."""

    def configure_optimizers(self) -> Any:
        assert self.trainer.estimated_stepping_batches > 0
        return super().configure_optimizers()


class OwnLossTrainer(transformers.Trainer):  # type: ignore[misc]
    def compute_loss(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Any:
        return model(**inputs)["loss"]


def sentence(call: Callable[[], object]) -> str:
    try:
        call()
    except ValueError as error:
        return str(error)
    return "it was not refused"


def refused_by_lightning(rank: int, place: PhaseMode) -> dict[str, str]:
    course = Course()
    other = replace(place, ratios=(3, 2 + rank))

    def fit(
        loader: Any,
        place: PhaseMode = place,
        model: Any = None,
        balancer: RatioBalancer | None = None,
        **options: Any,
    ) -> str:
        strategy = RatioStrategy(place.ratios, balancer=balancer)
        trainer = quiet_lightning(place, strategy, max_epochs=2, **options)
        return sentence(lambda: trainer.fit(model or LightningModel(), loader))

    def resumed(every_n_train_steps: int | None, **until: int) -> str:
        saved = pl.callbacks.ModelCheckpoint(place.folder, every_n_train_steps=every_n_train_steps)
        words: dict[str, Any] = {"callbacks": [saved], "enable_checkpointing": True, **until}
        quiet_lightning(place, RatioStrategy(place.ratios), **words).fit(
            LightningModel(), loader_of(course)
        )
        trainer = quiet_lightning(place, RatioStrategy(place.ratios), max_epochs=2)
        loader, path = loader_of(course, num_workers=1), saved.best_model_path
        return sentence(lambda: trainer.fit(AskingModel(), loader, ckpt_path=path))

    drawn = DataLoader(data(), batch_sampler=RatioSampler(data(), 8, place.ratios))
    weighted = DataLoader(data(), sampler=WeightedRandomSampler([1.0] * SAMPLES, SAMPLES))
    changing = pl.callbacks.GradientAccumulationScheduler({1: 2})
    return {
        "ratios": fit(loader_of(course), other),
        "too many ratios": fit(loader_of(course), replace(place, ratios=(3, 2, 1)), devices=2),
        "stream": fit(DataLoader(Stream(), batch_size=4)),
        "one rank": fit(weighted if rank else loader_of(course), use_distributed_sampler=False),
        "weighted": fit(weighted),
        "twice": fit(drawn, use_distributed_sampler=False),
        "batches": fit([loader_of(course), loader_of(course)]),
        "iterator": fit(loader_of(course), model=FetchingModel()),
        "accumulation": fit(loader_of(course), callbacks=[changing]),
        "resumed too early": resumed(1, max_steps=3),
        "drawn too early": resumed(None, max_epochs=1),
        "unlike balancers": fit(loader_of(course), balancer=RatioBalancer(every=5 + rank)),
    }


def refused_by_accelerate(rank: int, place: PhaseMode) -> dict[str, str]:
    def split(
        loader: Any,
        ratios: Any = place.ratios,
        balancer: RatioBalancer | None = None,
        **options: Any,
    ) -> str:
        accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**options))
        model = network()
        model, _, loader = accelerator.prepare(model, optimizer_of(model), loader)
        words = {"ratios": ratios, "balancer": balancer}
        return sentence(lambda: split_by_ratios(accelerator, model, loader, **words))

    def unprepared() -> object:
        return split_by_ratios(Accelerator(cpu=True), network(), loader_of(Course()), place.ratios)

    def two_models(given: Callable[[Any, Any], Any]) -> str:
        accelerator = Accelerator(cpu=True)
        models = accelerator.prepare(network(), network())
        loader = accelerator.prepare(loader_of(Course()))
        return sentence(lambda: split_by_ratios(accelerator, given(*models), loader, place.ratios))

    accelerator = Accelerator(cpu=True)
    model, loader = accelerator.prepare(network(), loader_of(Course()))
    loader = split_by_ratios(accelerator, model, loader, place.ratios)
    other = accelerator.prepare(loader_of(Course()))
    other = split_by_ratios(accelerator, torch.nn.ModuleList([model]), other, place.ratios)

    def beside_each_other() -> None:
        for _ in zip(loader, other, strict=True):
            pass

    def one_after_the_other() -> None:
        for _ in loader:
            break
        for _ in other:
            break

    one_after_the_other()
    begun = (
        accelerator,
        model,
        accelerator.skip_first_batches(accelerator.prepare(loader_of(Course())), 2),
    )
    drawn = DataLoader(data(), batch_sampler=RatioSampler(data(), 8, place.ratios))
    assert accelerator.prepare(loader) is loader
    return {
        "ratios": split(loader_of(Course()), (3, 2 + rank)),
        "stream": split(DataLoader(Stream(), batch_size=4)),
        "one rank": split(loader_of(Course()), place.ratios if rank == 0 else [3, -2]),
        "split": split(loader_of(Course()), split_batches=True),
        "dispatched": split(loader_of(Course()), dispatch_batches=True),
        "unprepared": sentence(unprepared),
        "levelled": split(loader_of(Course()), balancer=RatioBalancer()),
        "one of two models": two_models(lambda encoder, head: encoder),
        "a list of models": two_models(lambda encoder, head: [encoder, head]),
        "frozen model": two_models(lambda encoder, head: head.requires_grad_(False) and encoder),
        "beside": sentence(beside_each_other),
        "twice": sentence(lambda: split_by_ratios(accelerator, model, loader, place.ratios)),
        "drawn": sentence(lambda: accelerator.prepare(drawn)),
        "skipped before": sentence(lambda: split_by_ratios(*begun, place.ratios)),
        "skipped": sentence(lambda: accelerator.skip_first_batches(loader, 2)),
    }


def refused_by_trainer(rank: int, place: PhaseMode) -> dict[str, str]:
    def train(
        model: Any = None,
        ratios: Any = place.ratios,
        data: Any = None,
        balancer: RatioBalancer | None = None,
        **options: Any,
    ) -> str:
        callback = RatioCallback(ratios, balancer=balancer)
        trainer = quiet_trainer(place, model or TrainerModel(), callback, **options)
        trainer.train_dataset = data or trainer.train_dataset
        return sentence(trainer.train)

    few = [NamedColumns()[at] for at in range(41)]
    sentences = [{"input_ids": [1, 2, 3]} for _ in range(SAMPLES)]
    return {
        "ratios": train(ratios=(3, 2 + rank)),
        "stream": train(data=Stream(is_named=True), max_steps=3),
        "grouped": train(data=sentences, train_sampling_strategy="group_by_length"),
        "own tokens": train(LanguageModel(), average_tokens_across_devices=False),
        "too few": train(LanguageModel(), data=few),
        "own loss": train(LanguageModel(), kind=OwnLossTrainer),
        "levelled": train(balancer=RatioBalancer()),
        "split": train(accelerator_config={"split_batches": True}),
    }


REFUSALS: dict[str, Callable[[int, PhaseMode], dict[str, str]]] = {
    "lightning": refused_by_lightning,
    "accelerate": refused_by_accelerate,
    "trainer": refused_by_trainer,
}
