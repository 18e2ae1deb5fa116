"""Whatever fails in the hooks, loops and trainers on torch end with the weights of without."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from tests.borders import Borders, broken

pytestmark = pytest.mark.keras_torch


def rows() -> Any:
    import torch

    data = torch.utils.data.TensorDataset(torch.arange(64.0).reshape(16, 4) / 64)
    return torch.utils.data.DataLoader(data, batch_size=4)


def own_loop(*, is_tagged: bool) -> list[float]:
    """The weights after two epochs."""
    import torch

    from trainer_hooks import phase, step, timed

    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)

    def train(batch: Any) -> None:
        optimizer.zero_grad()
        layer(batch).mean().backward()
        optimizer.step()

    for _ in range(2):
        if not is_tagged:
            for (batch,) in rows():
                train(batch)
            continue
        for (batch,) in timed(rows()):
            with phase("train_step"):
                train(batch)
            step(len(batch))
    weights: list[float] = layer.weight.flatten().tolist()
    return weights


def with_lightning(*, is_tagged: bool) -> list[float]:
    """The weights after an epoch with a validation."""
    import lightning.pytorch as pl
    import torch

    from trainer_hooks.lightning import PhaseTagger

    class Module(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, _: int) -> Any:
            return self.layer(batch[0]).mean()

        def validation_step(self, batch: Any, _: int) -> None:
            self.layer(batch[0])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    torch.manual_seed(0)
    module = Module()
    quiet = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    callbacks: list[Any] = [PhaseTagger()] if is_tagged else []
    trainer = pl.Trainer(max_epochs=1, accelerator="cpu", callbacks=callbacks, **quiet)
    trainer.fit(module, rows(), rows())
    weights: list[float] = module.layer.weight.flatten().tolist()
    return weights


def with_the_trainer(*, is_tagged: bool) -> list[float]:
    """The weights after an epoch of Hugging Face's with an evaluation and a checkpoint."""
    import torch
    import transformers as hf

    from trainer_hooks.huggingface import PhaseTagger

    class Module(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x: Any, labels: Any) -> Any:
            outputs = self.layer(x)
            return {"loss": ((outputs - labels) ** 2).mean(), "logits": outputs}

    class Idle(hf.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *_: Any, **__: Any) -> None:
            """Is timed, and does nothing."""

    torch.manual_seed(0)
    module = Module()
    data = [{"x": torch.full((4,), at / 16), "labels": torch.ones(1)} for at in range(16)]
    words = {"report_to": [], "disable_tqdm": True, "use_cpu": True, "logging_strategy": "no"}
    each = {"eval_strategy": "epoch", "save_strategy": "epoch"}
    with tempfile.TemporaryDirectory() as folder:
        settings = hf.TrainingArguments(
            folder, num_train_epochs=1, per_device_train_batch_size=4, **words, **each
        )
        callbacks: list[Any] = [PhaseTagger()] if is_tagged else []
        trainer = hf.Trainer(
            module, settings, train_dataset=data, eval_dataset=data, callbacks=[*callbacks, Idle()]
        )
        trainer.train()
        trainer.evaluate()
    weights: list[float] = module.layer.weight.flatten().tolist()
    return weights


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("train", [own_loop, with_lightning, with_the_trainer])
def test_a_training_goes_on_whichever_hook_raises(train: Callable[..., Any]) -> None:
    bare = train(is_tagged=False)
    train(is_tagged=True)  # so that nothing is imported below
    borders = Borders(lambda: train(is_tagged=True))
    # Creating a tagger for Lightning without Lightning raises on purpose.
    assert [name for name, caller in borders.open.items() if "__new__" not in caller] == []
    assert len(borders.guarded) > 5

    for name, code in borders.guarded.items():
        with warnings.catch_warnings(record=True) as caught, broken(code):
            warnings.simplefilter("always")
            left = train(is_tagged=True)
        assert left == bare, name
        assert len([one for one in caught if "gpumon" in str(one.message)]) <= 1, name
