"""Actors play on the CPU; the learner uses the GPU once all of them have played."""

from __future__ import annotations

import multiprocessing as mp
from typing import Any

from tests.truth.untagged import board

ACTORS = 2


def play_episode(seed: int) -> int:
    reward = seed
    for _ in range(5_000_000):
        reward = (reward * 1_103_515_245 + 12_345) % (1 << 31)
    return reward


def act(weights: Any, episodes: Any) -> None:
    while True:
        episodes.put(play_episode(weights.get()))


def main() -> None:
    context = mp.get_context("spawn")
    weights: Any = context.Queue()
    episodes: Any = context.Queue()
    for _ in range(ACTORS):
        context.Process(target=act, args=(weights, episodes), daemon=True).start()
    while True:
        board.does("episodes")
        for seed in range(ACTORS):
            weights.put(seed)
        for _ in range(ACTORS):
            episodes.get()
        board.does("step")
        board.compute(0.4)


if __name__ == "__main__":
    main()
