"""A worker plays with the GPU whenever its learner has new weights, which take their time."""

from __future__ import annotations

import multiprocessing as mp
from typing import Any

from tests.truth.untagged import board


def play(weights: Any, episodes: Any) -> None:
    board.does("weights")
    while True:
        step = weights.get()
        board.compute(0.4)
        episodes.put(step)


def learn() -> int:
    return sum(number * number for number in range(8_000_000))


def main() -> None:
    context = mp.get_context("spawn")
    weights: Any = context.Queue()
    episodes: Any = context.Queue()
    context.Process(target=play, args=(weights, episodes), daemon=True).start()
    while True:
        weights.put(learn())
        episodes.get()


if __name__ == "__main__":
    main()
