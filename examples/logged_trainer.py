"""The Hugging Face ``Trainer``, logged to W&B, MLflow and TensorBoard: its waits for input.

    WANDB_MODE=offline python examples/logged_trainer.py --to tensorboard wandb mlflow

``PhaseTagger`` adds ``input_wait_ratio`` and, beside a daemon, ``gpu_busy_ratio`` and
``starved_ratio`` to what the callbacks of ``report_to`` receive with each training loss.
"""

import argparse
import time

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from trainer_hooks.huggingface import PhaseTagger

LOGGERS = ("tensorboard", "wandb", "mlflow")


class SlowSentences(torch.utils.data.Dataset):
    """Sentences from a store that takes 2 ms for each."""

    def __len__(self):
        return 80

    def __getitem__(self, index):
        time.sleep(0.002)
        words = torch.arange(index, index + 8) % 50
        return {"input_ids": words, "labels": words[0] % 2}


def main():
    """Train for three epochs."""
    parser = argparse.ArgumentParser(description="logs a run of the Trainer")
    parser.add_argument("--to", nargs="+", choices=LOGGERS, default=["tensorboard"])
    names = parser.parse_args().to

    config = BertConfig(
        vocab_size=50,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
    )
    trainer = Trainer(
        BertForSequenceClassification(config),
        TrainingArguments(
            "saved",
            num_train_epochs=3,
            per_device_train_batch_size=8,
            logging_steps=10,
            save_strategy="no",
            report_to=names,
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=SlowSentences(),
        callbacks=[PhaseTagger()],
    )
    trainer.train()


if __name__ == "__main__":
    main()
