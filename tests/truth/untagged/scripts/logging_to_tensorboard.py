"""Writes histograms of all weights every 5 steps."""

from __future__ import annotations

import tempfile

import torch
from torch.utils.tensorboard import SummaryWriter

from tests.truth.untagged import board


def log_weights(writer: SummaryWriter, model: torch.nn.Module, step: int) -> None:
    for name, weights in model.named_parameters():
        writer.add_histogram(name, weights, step)
    writer.flush()


def main() -> None:
    model = torch.nn.Sequential(*(torch.nn.Linear(1500, 1500) for _ in range(8)))
    writer = SummaryWriter(tempfile.mkdtemp())
    for step in range(1, 1_000_000):
        board.does("step")
        board.compute(0.2)
        if step % 5 == 0:
            board.does("log_weights")
            log_weights(writer, model, step)


main()
