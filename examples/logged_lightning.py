"""Lightning, logged to W&B, MLflow and TensorBoard: how long each epoch waited for input.

    WANDB_MODE=offline python examples/logged_lightning.py --to tensorboard wandb mlflow

``PhaseTagger`` hands ``input_wait_ratio`` and, beside a daemon, ``gpu_busy_ratio`` and
``starved_ratio`` to the trainer's loggers, at the end of each epoch.
"""

import argparse
import os
import time

import lightning.pytorch as lightning
import torch
from lightning.pytorch.loggers import MLFlowLogger, TensorBoardLogger, WandbLogger

from trainer_hooks.lightning import PhaseTagger

LOGGERS = {
    "tensorboard": lambda: TensorBoardLogger(".", name="tensorboard"),
    "wandb": lambda: WandbLogger(project="gpumon-example"),
    "mlflow": lambda: MLFlowLogger(tracking_uri=os.environ.get("MLFLOW_TRACKING_URI")),
}


class SlowRows(torch.utils.data.Dataset):
    """Rows from a store that takes 2 ms for each."""

    def __len__(self):
        return 80

    def __getitem__(self, index):
        time.sleep(0.002)
        row = torch.full((8,), index / 80)
        return row, row.sum()


class Linear(lightning.LightningModule):
    """One layer."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, number):
        rows, sums = batch
        loss = (self.layer(rows)[:, 0] - sums).square().mean()
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main():
    """Train for three epochs."""
    parser = argparse.ArgumentParser(description="logs a Lightning run")
    parser.add_argument("--to", nargs="+", choices=LOGGERS, default=["tensorboard"])
    names = parser.parse_args().to

    trainer = lightning.Trainer(
        max_epochs=3,
        accelerator="cpu",
        logger=[LOGGERS[name]() for name in names],
        callbacks=[PhaseTagger()],
        enable_progress_bar=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        log_every_n_steps=10,
    )
    trainer.fit(Linear(), torch.utils.data.DataLoader(SlowRows(), batch_size=8))


if __name__ == "__main__":
    main()
