"""Lengths of time as people type them, the same in every command.

``--nvml-off`` and ``--nvml-on``: what the driver is asked, in every command that opens it.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence

from gpumon.core.clock import LONGEST_LOOK_BACK_S
from gpumon.errors import UsageError
from gpumon.sources.nvml.details.fields import (
    ALWAYS_ON,
    DEFAULT_OPTIONS,
    NVML_FIELDS,
    NvmlOptions,
    nvml_options,
)

_SHORTEST_PERIOD_S, _LONGEST_PERIOD_S = 0.05, 3600.0
_SECONDS_OF = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def period_argument(text: str) -> float:
    """A period as typed. ``argparse`` prints the sentence and exits with 2."""
    try:
        period_s = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not math.isfinite(period_s) or not _SHORTEST_PERIOD_S <= period_s <= _LONGEST_PERIOD_S:
        raise argparse.ArgumentTypeError(
            f"must be between {_SHORTEST_PERIOD_S:g} and {_LONGEST_PERIOD_S:g} seconds, got {text}"
        )
    return period_s


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


def count_argument(least: int, most: int) -> Callable[[str], int]:
    """Reads a whole number within bounds. ``argparse`` prints the sentence and exits with 2.

    >>> count_argument(20, 100_000)("300")
    300
    """

    def read(text: str) -> int:
        try:
            count = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if not least <= count <= most:
            raise argparse.ArgumentTypeError(f"must be between {least} and {most}, got {text}")
        return count

    return read


def add_period_argument(parser: argparse.ArgumentParser) -> None:
    """``--period``: how often a live source is read."""
    parser.add_argument(
        "--period",
        metavar="SECONDS",
        type=period_argument,
        default=1.0,
        help="time between two readings (default: %(default)s)",
    )


def add_nvml_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare both options; each may be said several times, with several words or commas."""
    by_default = ", ".join(
        field.name for field in NVML_FIELDS if not field.opt_in and field.name != ALWAYS_ON
    )
    opt_in = ", ".join(field.name for field in NVML_FIELDS if field.opt_in)
    parser.add_argument(
        "--nvml-off",
        metavar="FIELD",
        type=lambda words: _checked(words, off=_names([words])),
        nargs="+",
        action="extend",
        default=[],
        help=f"do not ask the driver for: {by_default}",
    )
    parser.add_argument(
        "--nvml-on",
        metavar="FIELD",
        type=lambda words: _checked(words, on=_names([words])),
        nargs="+",
        action="extend",
        default=[],
        help=f"ask it, too, for: {opt_in}",
    )


def nvml_options_of(args: argparse.Namespace) -> NvmlOptions:
    """What the words of both options amount to; ``args.source`` is the source they are for.

    Raises:
        UsageError: A word names no field, or one that cannot be switched, or
            the source is not NVML.
    """
    off, on = _names(args.nvml_off), _names(args.nvml_on)
    if not off and not on:
        return DEFAULT_OPTIONS
    if args.source != "nvml":
        option = "--nvml-off" if off else "--nvml-on"
        raise UsageError(f"{option} is for --source nvml: {args.source} does not ask the driver")
    return nvml_options(off=off, on=on)


def _checked(words: str, *, off: Sequence[str] = (), on: Sequence[str] = ()) -> str:
    """The same words, if they name fields that can be switched so."""
    nvml_options(off=off, on=on)
    return words


def _names(words: list[str]) -> list[str]:
    return [name for word in words for name in word.replace(",", " ").split()]
