"""Every 8 steps, scores texts on the CPU."""

from __future__ import annotations

import itertools
import random
from collections import Counter

from tests.truth.untagged import board

WORDS = [str(number) for number in range(2_000)]


def next_batch(chance: random.Random) -> list[str]:
    """Ready after a moment."""
    return chance.choices(WORDS, k=100_000)


def overlap(text: list[str], reference: list[str]) -> float:
    pairs = Counter(itertools.pairwise(text))
    known = Counter(itertools.pairwise(reference))
    return sum(min(count, known[pair]) for pair, count in pairs.items()) / len(text)


def evaluate(chance: random.Random) -> float:
    scores = []
    for _ in range(30):
        text, reference = (chance.choices(WORDS, k=40_000) for _ in range(2))
        scores.append(overlap(text, reference))
    return sum(scores) / len(scores)


def main() -> None:
    chance = random.Random(1)
    for step in range(1, 1_000_000):
        board.does("next_batch")
        next_batch(chance)
        board.does("step")
        board.compute(0.2)
        if step % 8 == 0:
            board.does("evaluate")
            evaluate(chance)


main()
