r"""The Hugging Face Trainer on two unequal GPUs: two additional lines, marked "added".

    torchrun --standalone --nproc-per-node 2 examples/unequal_trainer.py

Without GPUs, two processes on the CPU do the same with ACCELERATE_USE_CPU=true. A tiny
BERT, built from a config, learns to classify sentences. Nothing is downloaded.
"""

import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from trainer_hooks.huggingface import RatioCallback  # added


def main():
    """Train for five epochs and return the model."""
    torch.manual_seed(1)
    words = torch.randint(0, 4, (480, 8))
    sentences = [{"input_ids": sentence, "labels": sentence[0]} for sentence in words]
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
    config = BertConfig(vocab_size=4, num_hidden_layers=1, num_labels=4, **sizes)
    model = BertForSequenceClassification(config)
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=50,  # 60 samples and 40
            num_train_epochs=5,
            learning_rate=1e-2,
            logging_strategy="epoch",
            save_strategy="no",
            report_to=[],
        )
        callbacks = [
            RatioCallback([3, 2]),  # added
        ]
        Trainer(model, args, train_dataset=sentences, callbacks=callbacks).train()
    return model


if __name__ == "__main__":
    main()
