"""A small Lightning training whose waits are sleeps that time themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from tests.loops.builders_loops import Sleeps, Waits

FEATURES = 8
BATCH = 4


class SlowLoader(torch.utils.data.DataLoader):  # type: ignore[misc]
    """A loader whose every batch takes a while to come."""

    def __init__(self, dataset: Any, waits: Sleeps, **named: Any) -> None:
        super().__init__(dataset, **named)
        self.waits = waits

    def __iter__(self) -> Iterator[Any]:
        batches = super().__iter__()
        for _ in range(len(self)):
            with self.waits.around():
                batch = next(batches)
            yield batch


def loader(batches: int, waits: Sleeps | None = None) -> Any:
    rows = torch.randn(batches * BATCH, FEATURES, generator=torch.Generator().manual_seed(3))
    data = torch.utils.data.TensorDataset(rows, rows.sum(dim=1))
    return SlowLoader(data, waits or Sleeps(), batch_size=BATCH)


def model(package: ModuleType, waits: Waits, *, fails_at: int | None = None) -> Any:
    """A linear model of either package that sleeps where it computes."""

    class Model(package.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.linear = torch.nn.Linear(FEATURES, 1)
            self.losses: list[float] = []

        def forward(self, batch: Any) -> Any:
            return self.linear(batch[0])

        def training_step(self, batch: Any, number: int) -> Any:
            with waits.step.around():
                _fail(number == fails_at)
                loss = (self.linear(batch[0])[:, 0] - batch[1]).square().mean()
                self.losses.append(float(loss.detach()))
                return loss

        def optimizer_step(self, *args: Any, **named: Any) -> None:
            with waits.optimizer.around():
                super().optimizer_step(*args, **named)

        def on_validation_start(self) -> None:
            self.validation = waits.validation.around()
            self.validation.__enter__()

        def on_validation_end(self) -> None:
            self.validation.__exit__(None, None, None)

        def validation_step(self, batch: Any, number: int) -> None:
            waits.validation_step()
            self.log("validated", self.linear(batch[0]).mean())

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=0.05)

    return Model()


def _fail(is_due: bool) -> None:
    if is_due:
        raise OSError("out of memory, say")


def model_that_optimizes_by_hand(
    package: ModuleType, waits: Waits, *, fails_at: int | None = None
) -> Any:
    """One with two optimizers, as a GAN has."""

    class ByHand(type(model(package, waits, fails_at=fails_at))):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: Any, number: int) -> None:
            loss = super().training_step(batch, number)
            for optimizer in self.optimizers():
                optimizer.zero_grad()
            self.manual_backward(loss)
            for optimizer in self.optimizers():
                optimizer.step()

        def configure_optimizers(self) -> Any:
            return [torch.optim.SGD([one], lr=0.01) for one in self.linear.parameters()]

    return ByHand()


def model_that_fetches(package: ModuleType, waits: Waits) -> Any:
    """One that asks for its batches itself."""

    class Fetching(type(model(package, waits))):  # type: ignore[misc]
        def training_step(self, dataloader_iter: Iterator[Any]) -> Any:
            batch, number, _ = next(dataloader_iter)
            return super().training_step(batch, number)

    return Fetching()


def slow_checkpoints(package: ModuleType, waits: Waits, folder: Path) -> Any:
    """A ``ModelCheckpoint`` of either package that writes slowly."""

    class SlowCheckpoint(package.callbacks.ModelCheckpoint):  # type: ignore[misc,name-defined]
        def _save_checkpoint(self, trainer: Any, filepath: str) -> None:
            with waits.checkpoint.around():
                super()._save_checkpoint(trainer, filepath)

    return SlowCheckpoint(dirpath=folder)


def slow_callback(package: ModuleType, waits: Waits) -> Any:
    """A callback that takes its time after each batch."""

    class SlowCallback(package.Callback):  # type: ignore[misc,name-defined]
        def on_train_batch_end(self, *_: object) -> None:
            waits.callback()

    return SlowCallback()


def trainer(package: ModuleType, folder: Path, *callbacks: Any, **said: Any) -> Any:
    """A quiet one on the CPU."""
    quiet: dict[str, Any] = {
        "accelerator": "cpu",
        "default_root_dir": folder,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "logger": False,
        "max_epochs": 2,
        "num_sanity_val_steps": 0,
        "enable_checkpointing": any(
            isinstance(callback, package.callbacks.ModelCheckpoint) for callback in callbacks
        ),
    }
    return package.Trainer(callbacks=list(callbacks), **{**quiet, **said})
