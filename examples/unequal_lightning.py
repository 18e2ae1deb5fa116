r"""Lightning on two unequal GPUs: two additional lines, marked "added".

    torchrun --standalone --nproc-per-node 2 examples/unequal_lightning.py

Without GPUs, two processes on the CPU do the same.
"""

import lightning.pytorch as lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks.lightning import RatioStrategy  # added


class Classifier(lightning.LightningModule):
    """Two hidden layers."""

    def __init__(self):
        super().__init__()
        layers = torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)
        self.layers = torch.nn.Sequential(*layers)

    def training_step(self, batch, number):
        rows, labels = batch
        loss = torch.nn.functional.cross_entropy(self.layers(rows), labels)
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main():
    """Train for five epochs and return the model."""
    torch.manual_seed(1)
    rows = torch.randn(480, 16)
    data = TensorDataset(rows, rows[:, :4].argmax(dim=1))
    model = Classifier()
    trainer = lightning.Trainer(
        max_epochs=5,
        devices=2,
        strategy=RatioStrategy([3, 2]),  # added, instead of strategy="ddp"
        logger=False,
        enable_checkpointing=False,
    )
    trainer.fit(model, DataLoader(data, batch_size=50, shuffle=True))  # 60 samples and 40
    return model


if __name__ == "__main__":
    main()
