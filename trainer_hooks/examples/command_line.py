"""The words that all examples take, and what they refuse."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Final

_MOST: Final = 1_000_000_000
_MOST_GPUS: Final = 64
"""As many as a ``follow:`` source has."""


def example_parser(description: str | None, *, workers: str) -> argparse.ArgumentParser:
    """A parser of ``--spans``, ``--gpu``, ``--steps``, ``--workers`` and ``--latency-ms``.

    A value that makes no sense ends the program with one sentence and exit
    code 2, before anything is trained.

    Args:
        description: What the example does.
        workers: What ``--workers`` are.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--spans", type=writable, required=True, help="file to which the true busy spans go"
    )
    parser.add_argument(
        "--gpu", type=_gpu, default=0, help="index of the simulated GPU they belong to"
    )
    parser.add_argument("--steps", type=positive, default=300, help="training steps in all")
    parser.add_argument("--workers", type=natural, default=0, help=workers)
    parser.add_argument(
        "--latency-ms", type=duration, default=12.0, help="of each of the 4 files of a batch"
    )
    return parser


def natural(text: str) -> int:
    """A whole number from 0 on."""
    number = int(text) if text.strip().isdecimal() else -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 on, got {text!r}")
    if number > _MOST:
        raise argparse.ArgumentTypeError(f"must be at most {_MOST}, got {text}")
    return number


def positive(text: str) -> int:
    """A whole number from 1 on."""
    number = natural(text)
    if number == 0:
        raise argparse.ArgumentTypeError("must be at least 1, got 0")
    return number


def duration(text: str) -> float:
    """A length of time, not below 0, which a sleep can take."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0.0 <= number <= _MOST:
        raise argparse.ArgumentTypeError(
            f"must be a number from 0 on, and at most {_MOST}, got {text!r}"
        )
    return number


def _gpu(text: str) -> int:
    number = natural(text)
    if number >= _MOST_GPUS:
        raise argparse.ArgumentTypeError(f"must be below {_MOST_GPUS}, got {number}")
    return number


def writable(text: str) -> Path:
    """A file that can be written to."""
    path = Path(text)
    try:
        path.open("a", encoding="ascii").close()
    except OSError as error:
        raise argparse.ArgumentTypeError(
            f"{text} cannot be written: {error.strerror}; name a file in a folder of your own"
        ) from None
    return path
