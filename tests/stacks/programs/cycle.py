"""Runs functions in turn for ever, each for a third of a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

TURN_S = 0.35


def turn() -> Iterator[None]:
    """For the loop of a function: as often as it fits into its turn."""
    until_s = time.monotonic() + TURN_S
    while time.monotonic() < until_s:
        yield


def run_in_turn(*functions: Callable[[], object]) -> None:
    """Once before the line "there", so that nothing is compiled or imported after it."""
    for function in functions:
        function()
    print("there", flush=True)
    while True:
        for function in functions:
            function()
