"""Train with the Hugging Face ``Trainer``, tagged by one callback.

    python examples/huggingface_training.py --spans /tmp/busy.jsonl

A tiny BERT, built from a config, learns to classify sentences from a slow
store. Nothing is downloaded.
"""

import torch
from torch_training import EPOCHS, note_compute, words_of
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from trainer_hooks.examples.example_run import run_example
from trainer_hooks.examples.slow_store import CLASSES, SlowStore
from trainer_hooks.huggingface import PhaseTagger

WORDS = 64
LENGTH = 24


def as_sentences(batches):
    """The one batch that is read at a time, its numbers taken for words."""
    ((rows, labels),) = batches
    words = torch.from_numpy(rows[:, :LENGTH] * 8 + WORDS / 2).long()
    return {"input_ids": words.clamp(0, WORDS - 1), "labels": torch.from_numpy(labels)}


def train(run):
    """Train for some epochs, and save the model after each."""
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=WORDS,
            hidden_size=run.args.width,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=4 * run.args.width,
            num_labels=CLASSES,
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    note_compute(model, optimizer, run.spans.note)
    store = SlowStore(run.folder, max(1, run.args.steps // EPOCHS), run.args.latency_ms)
    trainer = Trainer(
        model,
        TrainingArguments(
            output_dir=str(run.folder / "saved"),
            num_train_epochs=EPOCHS,
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
    run.print_result(
        steps=trained.global_step,
        loss=trained.training_loss,
        reading_seconds=store.reading_ns / 1e9,
    )


if __name__ == "__main__":
    run_example(words_of(__doc__, "layers of BERT", 32), train)
