"""A Lightning training, tagged by one callback: ``callbacks=[PhaseTagger()]``.

    python examples/lightning_training.py --spans /tmp/busy.jsonl

It learns to classify rows that a slow store holds, validates after each
epoch, and saves the model.
"""

import lightning.pytorch as lightning
import torch
from torch_training import EPOCHS, loader_of, note_compute, two_hidden_layers, words_of

from trainer_hooks.examples.example_run import run_example
from trainer_hooks.examples.slow_store import SlowStore
from trainer_hooks.lightning import PhaseTagger


class Classifier(lightning.LightningModule):
    """Two hidden layers."""

    def __init__(self, width, note):
        super().__init__()
        self.layers = two_hidden_layers(width)
        self._note = note

    def training_step(self, batch, number):
        rows, labels = batch
        return torch.nn.functional.cross_entropy(self.layers(rows), labels)

    def validation_step(self, batch, number):
        rows, labels = batch
        right = self.layers(rows).argmax(dim=1) == labels
        self.log("accuracy", right.float().mean(), batch_size=len(labels))

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.05)
        note_compute(self.layers, optimizer, self._note)
        return optimizer


def train(run):
    """Train for some epochs with a validation after each."""
    sizes = max(1, run.args.steps // EPOCHS), 2
    stores = [SlowStore(run.folder, batches, run.args.latency_ms) for batches in sizes]
    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
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
    run.print_result(
        steps=trainer.global_step,
        accuracy=float(trainer.callback_metrics["accuracy"]),
        reading_seconds=sum(store.reading_ns for store in stores) / 1e9,
    )


if __name__ == "__main__":
    run_example(words_of(__doc__, "hidden layers", 1024), train)
