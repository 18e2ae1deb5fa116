"""A small Lightning model and loader that sleep, and time their sleeps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import lightning.pytorch as pl
import torch

from tests.loops.builders_loops import Sleeps, Waits, raise_error
from trainer_hooks.lightning import PhaseTagger

FEATURES = 8
BATCH = 4
tagger, Callback = PhaseTagger, pl.Callback


class SlowLoader(torch.utils.data.DataLoader):  # type: ignore[misc]
    """A loader whose batches take a while."""

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


def model(
    sleeps: Waits | None = None, *, fails_at: int | None = None, package: ModuleType = pl
) -> Any:
    """A linear model of either package that sleeps where it computes."""
    waits = sleeps or Waits()

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
                if number == fails_at:
                    raise_error()
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


def model_that_optimizes_by_hand(*, fails_at: int | None = None) -> Any:
    """A model with two optimizers, like a GAN."""

    class ByHand(type(model(fails_at=fails_at))):  # type: ignore[misc]
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


def model_that_fetches(waits: Waits) -> Any:
    """A model that fetches its batches itself."""

    class Fetching(type(model(waits))):  # type: ignore[misc]
        def training_step(self, dataloader_iter: Iterator[Any]) -> Any:
            batch, number, _ = next(dataloader_iter)
            return super().training_step(batch, number)

    return Fetching()


def slow_checkpoints(waits: Waits, folder: Path, package: ModuleType = pl) -> Any:
    """A ``ModelCheckpoint`` of either package that writes slowly."""

    class SlowCheckpoint(package.callbacks.ModelCheckpoint):  # type: ignore[misc,name-defined]
        def _save_checkpoint(self, trainer: Any, filepath: str) -> None:
            with waits.checkpoint.around():
                super()._save_checkpoint(trainer, filepath)

    return SlowCheckpoint(dirpath=folder)


def callback(package: ModuleType = pl, **methods: Any) -> Any:
    """A callback with these methods."""
    return type("Acting", (package.Callback,), methods)()


def trainer(folder: Path, *callbacks: Any, package: ModuleType = pl, **settings: Any) -> Any:
    """A quiet trainer on the CPU."""
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
    return package.Trainer(callbacks=list(callbacks), **{**quiet, **settings})


def weights(model: Any) -> Any:
    return [weight.tolist() for weight in model.parameters()]


class KeepingLogger(pl.loggers.Logger):  # type: ignore[misc]
    """Keeps what it receives."""

    name, version = "keeping", 0

    def __init__(self) -> None:
        super().__init__()
        self.received: list[dict[str, float]] = []

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.received.append(metrics)

    def log_hyperparams(self, *_: Any) -> None: ...


class FailingLogger(KeepingLogger):
    """A logger whose server is away, for keys of gpumon."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        if "input_wait_ratio" in metrics:
            raise OSError("no network")
        super().log_metrics(metrics, step)
