"""A Lightning training, tagged by one callback: ``callbacks=[PhaseTagger()]``.

    python -m trainer_hooks.examples.lightning_training --spans /tmp/busy.jsonl

It learns to classify rows that a slow store holds, validates after each
epoch, and saves the model.
"""

from __future__ import annotations

from typing import Any

import lightning.pytorch as lightning
import torch

from trainer_hooks.examples.busy_spans import Note, note_compute
from trainer_hooks.examples.example_run import ExampleRun, example_parser, positive, run_example
from trainer_hooks.examples.slow_store import SlowStore
from trainer_hooks.examples.torch_training import loader_of, two_hidden_layers
from trainer_hooks.lightning import PhaseTagger

_EPOCHS = 3
_VALIDATED = 2


class Classifier(lightning.LightningModule):  # type: ignore[misc]
    """Two hidden layers."""

    def __init__(self, width: int, note: Note) -> None:
        super().__init__()
        self.layers = two_hidden_layers(width)
        self._note = note

    def training_step(self, batch: Any, number: int) -> Any:
        rows, labels = batch
        return torch.nn.functional.cross_entropy(self.layers(rows), labels)

    def validation_step(self, batch: Any, number: int) -> None:
        rows, labels = batch
        right = self.layers(rows).argmax(dim=1) == labels
        self.log("accuracy", right.float().mean(), batch_size=len(labels))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.05)
        note_compute(self.layers, optimizer, self._note)
        return optimizer


def train(run: ExampleRun) -> None:
    """Train for some epochs, each of which ends with a validation."""
    stores = [
        SlowStore(run.folder, batches=batches, latency_ms=run.args.latency_ms)
        for batches in (max(1, run.args.steps // _EPOCHS), _VALIDATED)
    ]
    trainer = lightning.Trainer(
        max_epochs=_EPOCHS,
        default_root_dir=run.folder,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[
            PhaseTagger(),
            lightning.callbacks.ModelCheckpoint(monitor="accuracy", mode="max"),
        ],
    )
    loaders = [loader_of(store, run.args.workers) for store in stores]
    run.starts()
    trainer.fit(Classifier(run.args.width, run.spans.note), *loaders)
    run.tell(
        steps=trainer.global_step,
        accuracy=float(trainer.callback_metrics["accuracy"]),
        reading_seconds=sum(store.reading_ns for store in stores) / 1e9,
    )


if __name__ == "__main__":
    words = example_parser(__doc__, workers="of the DataLoader")
    words.add_argument("--width", type=positive, default=1024, help="of the two hidden layers")
    run_example(words, train)
