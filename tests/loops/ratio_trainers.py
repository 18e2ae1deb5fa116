"""Ranks that train by Lightning, Accelerate and the Hugging Face Trainer."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import torch
import transformers
from accelerate import Accelerator
from torch.utils.data import Dataset

from tests.loops.ratio_courses import COURSES, Course
from tests.loops.ratio_reference import (
    SEED,
    Job,
    Learned,
    data,
    loader_of,
    loss_of,
    network,
    optimizer_of,
    sum_over_labels,
    weights_of,
)
from trainer_hooks.accelerate import split_by_ratios
from trainer_hooks.ddp import RatioBalancer
from trainer_hooks.huggingface import PhaseTagger, RatioCallback
from trainer_hooks.lightning import RatioStrategy


class LightningModel(pl.LightningModule):  # type: ignore[misc]
    def __init__(self, course: Course | None = None, rank: int | None = None) -> None:
        super().__init__()
        self.network = network(course, rank)

    def training_step(self, batch: Any, number: int) -> Any:
        loss = loss_of(self.network(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, number: int) -> None:
        self.log("validated", self.network(batch[0]).sum(), sync_dist=True)

    def configure_optimizers(self) -> Any:
        return optimizer_of(self)


def quiet_lightning(job: Job, strategy: Any, **options: Any) -> Any:
    quiet: dict[str, Any] = {
        "accelerator": "cpu",
        "devices": len(job.ratios),
        "default_root_dir": job.folder,
        "enable_checkpointing": False,
        "enable_model_summary": False,
        "enable_progress_bar": False,
        "logger": False,
        "strategy": strategy,
    }
    return pl.Trainer(**{**quiet, **options})


def by_lightning(course: Course, job: Job) -> Learned:
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
    balancer = RatioBalancer(every=4, warm_up=1)
    strategy = {"balancer": balancer} if course.is_balanced else {}
    checkpoint = None
    for leg in legs:
        saved = pl.callbacks.ModelCheckpoint(
            job.folder, every_n_train_steps=1 if "max_steps" in leg else None
        )
        trainer = quiet_lightning(
            job, RatioStrategy(job.ratios, **strategy), callbacks=[saved], **options, **leg
        )
        model = LightningModel(course, job.rank)
        trainer.fit(model, loader_of(course, **workers), ckpt_path=checkpoint)
        checkpoint, job = saved.best_model_path, job.turned()
    return Learned(weights_of(model), trainer.global_step, changes=balancer.changes)


def by_accelerate(course: Course, job: Job) -> Learned:
    model, state, steps = network(), None, 0
    if course.resumed_at is not None:
        model, state, steps = run_of_accelerate(course, job, model, until=course.resumed_at)
        job = job.turned()
    model, _, steps = run_of_accelerate(course, job, model, state, done=steps)
    return Learned(weights_of(model), steps)


def run_of_accelerate(
    course: Course,
    job: Job,
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
    loader = split_by_ratios(accelerator, trained, loader, ratios=job.ratios, seed=SEED)
    steps_in_epoch = -(-len(loader) // course.accumulated)
    for epoch in range(done // steps_in_epoch, course.epochs):
        loader.set_epoch(epoch, start_step=done - epoch * steps_in_epoch)
        for rows, labels in loader:
            with accelerator.accumulate(*parts):
                scores = torch.nn.Sequential(*parts)(rows)
                accelerator.backward(loss_of(scores, labels))
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
        return Course.samples

    def __getitem__(self, at: int) -> dict[str, Any]:
        return {"rows": self._rows[at], "labels": self._labels[at]}


class TrainerModel(torch.nn.Module):  # type: ignore[misc]
    """Its loss is the mean over the samples of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def forward(self, rows: Any, labels: Any) -> Any:
        return {"loss": loss_of(self.network(rows), labels)}


class LanguageModel(TrainerModel):
    """Its loss is a sum, over the number of labels that the Trainer counts on all ranks."""

    def forward(self, rows: Any, labels: Any, num_items_in_batch: Any = None, **_: Any) -> Any:
        return {"loss": sum_over_labels(self.network(rows), labels) / num_items_in_batch}


def quiet_trainer(job: Job, model: Any, *callbacks: Any, kind: Any = None, **options: Any) -> Any:
    quiet: dict[str, Any] = {
        "seed": SEED,
        "disable_tqdm": True,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0.0,
        "output_dir": str(job.folder / "trainer"),
        "per_device_train_batch_size": Course.batch,
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


def by_trainer(course: Course, job: Job) -> Learned:
    kind = LanguageModel if course.loss == "labels" else TrainerModel
    options: dict[str, Any] = {
        "dataloader_drop_last": course.drop_last,
        "gradient_accumulation_steps": course.accumulated,
        "num_train_epochs": course.epochs,
        "train_sampling_strategy": "random" if course.shuffle else "sequential",
    }
    checkpoint = None
    if course.resumed_at is not None:
        trainer = quiet_trainer(
            job, kind(), RatioCallback(job.ratios), **options, save_steps=course.resumed_at,
        )  # fmt: skip
        trainer.args.save_strategy = "steps"
        trainer.train()
        checkpoint, job = (
            f"{trainer.args.output_dir}/checkpoint-{course.resumed_at}",
            job.turned(),
        )
    model = kind()
    callbacks = RatioCallback(job.ratios), PhaseTagger()
    trainer = quiet_trainer(job, model, *callbacks, **options)
    if course == COURSES["in order"]:  # state of a first run must not affect the next
        trainer.train()
        model.network.load_state_dict(network().state_dict())
        trainer.optimizer = optimizer_of(model)
    trainer.train(resume_from_checkpoint=checkpoint)
    return Learned(weights_of(model), trainer.state.global_step)
