"""A training with the Hugging Face ``Trainer``, tagged by one callback.

    python -m trainer_hooks.examples.huggingface_training --spans /tmp/busy.jsonl

A tiny BERT, made from a config, learns to classify sentences that a slow
store holds. Nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from trainer_hooks.examples.busy_spans import note_compute
from trainer_hooks.examples.example_run import ExampleRun, example_parser, positive, run_example
from trainer_hooks.examples.slow_store import CLASSES, Batch, SlowStore
from trainer_hooks.huggingface import PhaseTagger

_EPOCHS = 3
_WORDS = 64
_LENGTH = 24


def as_sentences(batches: Sequence[Batch]) -> dict[str, Any]:
    """The one batch that is read at a time, its numbers taken for words."""
    ((rows, labels),) = batches
    words = torch.from_numpy(rows[:, :_LENGTH] * 8 + _WORDS / 2).long()
    return {"input_ids": words.clamp(0, _WORDS - 1), "labels": torch.from_numpy(labels)}


def train(run: ExampleRun) -> None:
    """Train for some epochs, and save the model after each."""
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=_WORDS,
            hidden_size=run.args.width,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=4 * run.args.width,
            num_labels=CLASSES,
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    note_compute(model, optimizer, run.spans.note)
    per_epoch = max(1, run.args.steps // _EPOCHS)
    store = SlowStore(run.folder, batches=per_epoch, latency_ms=run.args.latency_ms)
    trainer = Trainer(
        model,
        TrainingArguments(
            output_dir=str(run.folder / "saved"),
            num_train_epochs=_EPOCHS,
            per_device_train_batch_size=1,  # of batches as the store holds them
            dataloader_num_workers=run.args.workers,
            save_strategy="epoch",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=store,
        data_collator=as_sentences,
        optimizers=(optimizer, None),
        callbacks=[PhaseTagger()],
    )
    run.starts()
    trained = trainer.train()
    run.tell(
        steps=trained.global_step,
        loss=trained.training_loss,
        reading_seconds=store.reading_ns / 1e9,
    )


if __name__ == "__main__":
    words = example_parser(__doc__, workers="of the DataLoader")
    words.add_argument("--width", type=positive, default=32, help="of the two layers of BERT")
    run_example(words, train)
