"""Compiles the step again for each length of its texts."""

from __future__ import annotations

import random

import torch

from tests.truth.untagged import board


def forward(rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return torch.relu(rows @ weights).sum()


def main() -> None:
    torch._dynamo.config.cache_size_limit = 100_000
    torch._dynamo.config.accumulated_cache_size_limit = 100_000
    step = torch.compile(forward, dynamic=False)
    weights = torch.rand(32, 32)
    chance = random.Random(1)
    while True:
        rows = torch.rand(chance.randrange(8, 100_000), 32)
        board.does("compile")
        step(rows, weights)
        board.does("step")
        board.compute(0.8)


main()
