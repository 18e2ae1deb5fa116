"""Whatever fails in the hooks, loops and trainers on torch end with the same weights."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.borders import Borders, broken
from tests.loops.builders_trainers import ADAPTERS

pytestmark = pytest.mark.keras_torch


def own_loop(*, is_tagged: bool) -> list[float]:
    """The weights after two epochs."""
    import torch

    from trainer_hooks import phase, step, timed

    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    data = torch.utils.data.TensorDataset(torch.arange(64.0).reshape(16, 4) / 64)
    loader = torch.utils.data.DataLoader(data, batch_size=4)

    def train(batch: Any) -> None:
        optimizer.zero_grad()
        layer(batch).mean().backward()
        optimizer.step()

    for _ in range(2):
        if not is_tagged:
            for (batch,) in loader:
                train(batch)
            continue
        for (batch,) in timed(loader):
            with phase("train_step"):
                train(batch)
            step(len(batch))
    weights: list[float] = layer.weight.flatten().tolist()
    return weights


def by_trainer(name: str, folder: Path) -> Callable[..., Any]:
    """Trains with validations and a callback that is timed, then evaluates."""
    on = ADAPTERS[name](folder)

    def train(*, is_tagged: bool) -> Any:
        hooks = [on.tagger()] if is_tagged else []
        idle = on.callback("Idle", lambda: None, "batch_end")
        outcome = on.train(*hooks, idle, batches=3, epochs=1, validated=1)
        on.evaluate(*hooks)
        return outcome

    return train


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("trainer", ["own loop", *ADAPTERS])
def test_a_run_continues_whichever_hook_raises(trainer: str, tmp_path: Path) -> None:
    train = own_loop if trainer == "own loop" else by_trainer(trainer, tmp_path)
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


HOOKED = {
    "own loop": ("torch.utils.data", "DataLoader", "__iter__", "torch_loaders"),
    "lightning": ("lightning.pytorch", "Trainer", "fit", "lightning_trainer"),
    "huggingface": ("transformers", "Trainer", "train", "huggingface_trainer"),
}
"""Module, class and method around which `gpumon run` goes, and with which of its modules."""


@contextmanager
def under_gpumon_run(trainer: str) -> Iterator[None]:
    """The method is replaced as by ``sitecustomize``."""
    module, kind, method, hook = HOOKED[trainer]
    owner = getattr(import_module(module), kind)
    around = import_module(f"trainer_hooks.injected.{hook}").around
    bare = getattr(owner, method)

    def entered(self: Any, *args: Any, **named: Any) -> Any:
        return around(method, bare, self, args, named)

    setattr(owner, method, entered)
    try:
        yield
    finally:
        setattr(owner, method, bare)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("trainer", HOOKED)
def test_a_run_continues_whatever_gpumon_run_put_in_raises(trainer: str, tmp_path: Path) -> None:
    train_bare = own_loop if trainer == "own loop" else by_trainer(trainer, tmp_path)

    def train() -> Any:
        with under_gpumon_run(trainer):
            return train_bare(is_tagged=False)

    bare = train_bare(is_tagged=False)
    assert train() == bare
    borders = Borders(train)
    assert [name for name, caller in borders.open.items() if "__new__" not in caller] == []
    injected = [code for name, code in borders.guarded.items() if name.startswith("injected/")]
    assert injected

    for code in injected:
        with broken(code):
            assert train() == bare, code
