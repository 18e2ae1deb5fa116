"""Saves a model of 256 MB every 6 steps."""

from __future__ import annotations

import tempfile

import torch

from tests.truth.untagged import board


def save(model: torch.nn.Module, folder: str) -> None:
    torch.save(model.state_dict(), f"{folder}/model.pt")


def load_batch() -> torch.Tensor:
    return torch.rand(64, 4096)


def main() -> None:
    model = torch.nn.Linear(8192, 8192)
    folder = tempfile.mkdtemp()
    for step in range(1, 1_000_000):
        board.does("load_batch")
        load_batch()
        board.does("step")
        board.compute(0.25)
        if step % 6 == 0:
            board.does("checkpoint")
            save(model, folder)


main()
