"""Two ranks: the second has twice the work on the CPU, and the first waits for it."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

from tests.truth.untagged import board


def prepare(rank: int) -> None:
    """More of the shards are those of rank 1."""
    end_s = time.monotonic() + (0.1, 1.1)[rank]
    while time.monotonic() < end_s:
        torch.rand(1000).sort()


def main() -> None:
    dist.init_process_group("gloo")
    gradients = torch.zeros(1_000_000)
    while True:
        board.does("prepare")
        prepare(dist.get_rank())
        board.does("step")
        board.compute(0.4)
        board.does("within_step")
        dist.all_reduce(gradients)


main()
