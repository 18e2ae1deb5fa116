"""Numbers and lengths of time as people type them, the same in every command."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import TypeVar

from gpumon.core.clock import LONGEST_LOOK_BACK_S

_Number = TypeVar("_Number", int, float)

SHORTEST_PERIOD_S = 0.05
LONGEST_PERIOD_S = 10
"""Boards were seen to keep 71 utilisation samples of 0.2 s, 14 s in all: what is older is lost."""
_WHY_NO_LONGER = "NVIDIA drivers keep about 14 s of samples, so a longer period would lose some"
_SECONDS_OF = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def number_argument(
    read: Callable[[str], _Number],
    kind: str,
    least: float,
    most: float,
    *,
    unit: str = "",
    why_no_more: str = "",
) -> Callable[[str], _Number]:
    """Reads a number within bounds. ``argparse`` prints the sentence and exits with 2.

    Args:
        read: Raises ``ValueError`` where the text is none.
        kind: What it should have been, such as "a whole number".
        least: The lowest that will do.
        most: The highest.
        unit: What both bounds are in.
        why_no_more: Why ``most`` is the highest, for whoever typed more.

    >>> number_argument(int, "a whole number", 20, 100_000)("300")
    300
    """

    def typed(text: str) -> _Number:
        try:
            number = read(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not {kind}") from None
        if not least <= number <= most:  # nor is what is no number at all
            why = f": {why_no_more}" if why_no_more and number > most else ""
            raise argparse.ArgumentTypeError(
                f"must be between {least} and {most}{unit}, got {text}{why}"
            )
        return number

    return typed


def period_argument(
    shortest_s: float, longest_s: float, *, why_no_longer: str = ""
) -> Callable[[str], float]:
    """Reads a period, in seconds. ``argparse`` prints the sentence and exits with 2."""
    return number_argument(
        float,
        "a number of seconds",
        shortest_s,
        longest_s,
        unit=" seconds",
        why_no_more=why_no_longer,
    )


def time_argument(text: str) -> float:
    """A length of time as typed, in seconds. ``argparse`` prints the sentence and exits with 2."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in _SECONDS_OF else (text, "s")
    try:
        length_s = float(number) * _SECONDS_OF[unit]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time such as 90s, 15m, 1h or 2d"
        ) from None
    if math.isnan(length_s) or length_s <= 0:
        raise argparse.ArgumentTypeError(f"must be longer than nothing, got {text}")
    if length_s > LONGEST_LOOK_BACK_S:
        raise argparse.ArgumentTypeError(
            f"must be at most {LONGEST_LOOK_BACK_S / 86_400:.0f}d, got {text}"
        )
    return length_s


def add_period_argument(parser: argparse.ArgumentParser) -> None:
    """``--period``: how often a live source is read."""
    parser.add_argument(
        "--period",
        metavar="SECONDS",
        type=period_argument(SHORTEST_PERIOD_S, LONGEST_PERIOD_S, why_no_longer=_WHY_NO_LONGER),
        default=1.0,
        help=f"time between two readings, at most {LONGEST_PERIOD_S} (default: %(default)s)",
    )
