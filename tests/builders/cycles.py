"""Bursts and pauses in turn, regular and irregular."""

from __future__ import annotations

import random
from collections.abc import Iterable

from hypothesis import strategies as st


@st.composite
def cycles(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Bursts and pauses in samples, some regular, some irregular."""
    pieces = [
        draw(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 58)), max_size=30)),
        [(draw(st.integers(1, 4)), draw(st.integers(1, 6)))] * draw(st.integers(1, 40)),
    ]
    return [one for piece in draw(st.permutations(pieces * 2)) for one in piece]


def waits_of_a_person(count: int) -> list[float]:
    """Seconds between two cells of a notebook: half of them below 5, a few near a minute."""
    draws = random.Random(7)
    return [min(1.0 + 4.0 * draws.lognormvariate(0.0, 1.2), 55.0) for _ in range(count)]


def late_waves(count: int) -> list[tuple[int, int]]:
    """Samples of work and pause, as with a late loader: bursts vary."""
    return [((3, 5, 8)[k % 3], 3) for k in range(count)]


def on_and_off(cycles: Iterable[tuple[int, int]]) -> list[float]:
    """Busy and idle samples in turn; a busy one ends the last pause."""
    return [ratio for busy, idle in cycles for ratio in [1.0] * busy + [0.0] * idle] + [1.0]
