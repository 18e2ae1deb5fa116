"""Trains on pictures that are turned and made smaller one by one: the loader is the limit."""

from __future__ import annotations

import sys

import numpy
import torch
from torch.nn.functional import affine_grid, grid_sample
from torch.utils.data import DataLoader, Dataset

from tests.truth.untagged import board

PICTURE = torch.rand(1, 3, 1200, 1600)
QUARTER_TURN = torch.tensor([[[0.0, -1.0, 0.0], [1.0, 0.0, 0.0]]])


class Pictures(Dataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 960

    def __getitem__(self, number: int) -> torch.Tensor:
        turned = grid_sample(PICTURE, affine_grid(QUARTER_TURN, [1, 3, 800, 800]))
        return torch.nn.functional.interpolate(turned, (224, 224), mode="bilinear")[0]


def train(model: torch.nn.Module, images: torch.Tensor) -> None:
    board.begins()
    loss = model(images.flatten(1)).square().mean()
    loss.backward()
    board.compute(0.25)


def write_log(step: int) -> None:
    board.does("write_log")
    numpy.sort(numpy.random.default_rng(step).random(3_000_000))


def main(workers: int, batch: int) -> None:
    torch.set_num_threads(1)
    model = torch.nn.Linear(3 * 224 * 224, 10)
    loader = DataLoader(Pictures(), batch_size=batch, num_workers=workers)
    board.does("input_wait")
    while True:
        for step, images in enumerate(loader):
            board.does("step")
            train(model, images)
            if step % 4 == 0:
                write_log(step)
            board.does("input_wait")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
