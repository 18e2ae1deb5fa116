"""What commands share: protocol, error messages, signals, argument types, checks of pictures."""

from __future__ import annotations

import argparse
import math
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar

from gpumon.core.clock import LONGEST_LOOK_BACK_S
from gpumon.core.wording import label_text
from gpumon.errors import UsageError

_Number = TypeVar("_Number", int, float)

SHORTEST_PERIOD_S = 0.05
LONGEST_PERIOD_S = 10
"""Boards were seen to keep 71 utilisation samples of 0.2 s, 14 s in all."""
_WHY_NO_LONGER = "NVIDIA drivers keep about 14 s of samples, so a longer period would lose some"
_SECONDS_OF = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_LONGEST_SENTENCE = 4_000


class Command(Protocol):
    """One subcommand. Its class docstring is its help text."""

    example: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare its arguments."""
        ...

    def run(self, args: argparse.Namespace) -> int:
        """Do the work and return the exit code.

        Raises:
            GpumonError: Its message is printed and its exit code returned.
        """
        ...


def print_error(sentence: object) -> None:
    """Print a message on standard error, as one safe line."""
    print(f"gpumon: {label_text(sentence, _LONGEST_SENTENCE)}", file=sys.stderr)


def end_on_signals(stop: Callable[[], object]) -> None:
    """Call this on Ctrl-C, SIGTERM and SIGHUP."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # nohup ignores SIGHUP.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda *_: stop())


# -- argument types --------------------------------------------------------------


def number_argument(
    read: Callable[[str], _Number],
    kind: str,
    least: float,
    most: float,
    *,
    unit: str = "",
    why_no_more: str = "",
) -> Callable[[str], _Number]:
    """The ``type`` of an argument that is a number within bounds.

    Args:
        read: Parses the text, or raises ``ValueError``.
        kind: What the text should be, such as "a whole number".
        least: Lower bound.
        most: Upper bound.
        unit: Unit of both bounds.
        why_no_more: Why ``most`` is the upper bound.

    >>> number_argument(int, "a whole number", 20, 100_000)("300")
    300
    """

    def typed(text: str) -> _Number:
        try:
            number = read(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not {kind}") from None
        if not least <= number <= most:  # false for NaN
            why = f": {why_no_more}" if why_no_more and number > most else ""
            raise argparse.ArgumentTypeError(
                f"must be between {least} and {most}{unit}, got {text}{why}"
            )
        return number

    return typed


def period_argument(
    shortest_s: float, longest_s: float, *, why_no_longer: str = ""
) -> Callable[[str], float]:
    """The ``type`` of a period in seconds."""
    return number_argument(
        float,
        "a number of seconds",
        shortest_s,
        longest_s,
        unit=" seconds",
        why_no_more=why_no_longer,
    )


def time_argument(text: str) -> float:
    """The ``type`` of a time such as ``90s``, ``15m`` or ``2d``, in seconds."""
    number, unit = (text[:-1], text[-1]) if text[-1:] in _SECONDS_OF else (text, "s")
    try:
        length_s = float(number) * _SECONDS_OF[unit]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time such as 90s, 15m, 1h or 2d"
        ) from None
    if math.isnan(length_s) or length_s <= 0:
        raise argparse.ArgumentTypeError(f"must be positive, got {text}")
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


# -- pictures and pages ----------------------------------------------------------


def check_path(path: str, source: str | None) -> None:
    """Refuse a path that is not a file, or that of the file to draw.

    Raises:
        UsageError: Says what to name instead.
    """
    if path in ("", "-"):
        raise UsageError("a picture or page cannot be written to standard output: name a file")
    with suppress(OSError, ValueError):  # one of them does not exist
        if source is not None and Path(path).samefile(source):
            raise UsageError(f"{path}: is the file to draw: name another one")


def can_draw() -> bool:
    """Return whether matplotlib is installed; otherwise print how to install it."""
    try:
        import gpumon.outlets.plot.html  # noqa: F401
    except ImportError:
        print_error(
            "cannot write a picture or page without matplotlib: install it with "
            f"`{sys.executable} -m pip install 'matplotlib>=3.8'`"
        )
        return False
    return True
