"""Saves a model of 256 MB every 6 steps."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import torch

from tests.truth.untagged import board


def save(model: torch.nn.Module, path: Path) -> None:
    unfinished = path.with_suffix(".tmp")
    with unfinished.open("wb") as file:
        torch.save(model.state_dict(), file)
    unfinished.replace(path)


def load_batch() -> torch.Tensor:
    return torch.rand(64, 4096)


def main() -> None:
    model = torch.nn.Linear(8192, 8192)
    path = Path(tempfile.mkdtemp()) / "model.pt"
    for step in range(1, 1_000_000):
        board.does("load_batch")
        load_batch()
        board.does("step")
        board.compute(0.25)
        if step % 6 == 0:
            board.does("checkpoint")
            save(model, path)


if __name__ == "__main__":
    os.umask(0o077)
    main()
