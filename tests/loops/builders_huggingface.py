"""A tiny BERT in a Hugging Face Trainer that sleeps, and times its sleeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

from tests.loops.builders_loops import Sleeps, Waits, raise_error
from trainer_hooks.huggingface import PhaseTagger

BATCH = 4
tagger, Callback = PhaseTagger, transformers.TrainerCallback
_WORDS, _LENGTH = 50, 8


class SlowSentences(torch.utils.data.Dataset):  # type: ignore[misc]
    """Sentences: the first of each batch takes a while."""

    def __init__(self, batches: int, waits: Sleeps) -> None:
        generator = torch.Generator().manual_seed(5)
        self._words = torch.randint(0, _WORDS, (batches * BATCH, _LENGTH), generator=generator)
        self._waits = waits
        self._fetched = 0

    def __len__(self) -> int:
        return len(self._words)

    def __getitem__(self, index: int) -> dict[str, Any]:
        self._fetched += 1  # the order is shuffled: so not by the index
        if self._fetched % BATCH == 1:
            self._reading = self._waits.around()
            self._reading.__enter__()
        elif self._fetched % BATCH == 0:
            self._reading.__exit__(None, None, None)
        return {"input_ids": self._words[index], "labels": self._words[index][0] % 2}


class SleepingTrainer(transformers.Trainer):  # type: ignore[misc]
    """A user's subclass that sleeps in its methods."""

    waits: Waits
    fails_at: int | None = None
    fails_in = "training_step"

    def training_step(self, *args: Any, **named: Any) -> Any:
        with self.waits.step.around():
            self._fail("training_step")
            return super().training_step(*args, **named)

    def evaluate(self, *args: Any, **named: Any) -> Any:
        with self.waits.validation.around():
            return super().evaluate(*args, **named)

    def prediction_step(self, *args: Any, **named: Any) -> Any:
        self.waits.validation_step()
        return super().prediction_step(*args, **named)

    def _save_checkpoint(self, *args: Any, **named: Any) -> None:
        with self.waits.checkpoint.around():
            super()._save_checkpoint(*args, **named)

    def _get_learning_rate(self) -> Any:
        self._fail("_get_learning_rate")  # between a step and its end
        return super()._get_learning_rate()

    def _fail(self, where: str) -> None:
        if self.fails_in == where and self.state.global_step == self.fails_at:
            raise_error()


def callback(**methods: Any) -> Any:
    """A callback with these methods."""
    return type("Acting", (Callback,), methods)()


def trainer(
    folder: Path,
    *callbacks: Any,
    waits: Waits | None = None,
    batches: int = 10,
    evaluated: int = 4,
    **settings: Any,
) -> Any:
    """A quiet trainer on the CPU; one callback sleeps after each step."""
    waits = waits or Waits()
    torch.manual_seed(2)
    model = transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=_WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=32, num_labels=2,
        )
    )  # fmt: skip
    quiet = {
        "num_train_epochs": 2,
        "per_device_train_batch_size": BATCH,
        "per_device_eval_batch_size": BATCH,
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "logging_steps": 2,
        "save_strategy": "no",
        "seed": 11,
    }
    sleeping = callback(on_step_end=lambda *_, **__: waits.callback())
    made = SleepingTrainer(
        model,
        transformers.TrainingArguments(str(folder), **{**quiet, **settings}),
        train_dataset=SlowSentences(batches, waits.fetch),
        eval_dataset=SlowSentences(evaluated, waits.validation_fetch),
        callbacks=[sleeping, *callbacks],
    )
    made.waits = waits
    return made


def time_optimizer(trainer: Any) -> None:
    """Time its optimizer's steps below any patch."""
    spans = []

    def begins(*_: Any) -> None:
        spans.append(trainer.waits.optimizer.around())
        spans[-1].__enter__()

    def ends(*_: Any) -> None:
        spans.pop().__exit__(None, None, None)

    optimizer = trainer.create_optimizer()
    optimizer.register_step_pre_hook(begins)
    optimizer.register_step_post_hook(ends)


def shadowed(trainer: Any) -> set[str]:
    """Patched methods of it or its handler, and attributes of a tagger."""
    return {
        name
        for owner in (trainer, trainer.callback_handler)
        for name, value in vars(owner).items()
        if callable(getattr(type(owner), name, None)) or "HuggingFaceTagging" in repr(value)
    }


def outcome(trained: Any) -> tuple[Any, ...]:
    """Losses and weights after a run."""
    recorded = [
        {name: value for name, value in line.items() if "loss" in name or "grad" in name}
        for line in trained.state.log_history
    ]
    return recorded, [weight.tolist() for weight in trained.model.parameters()]
