"""What all examples share: options, reading ahead, and the JSON line at the end."""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from trainer_hooks.examples.busy_spans import BusySpans

T = TypeVar("T")

_MOST: Final = 1_000_000_000
_MOST_GPUS: Final = 64
"""As many as a ``follow:`` source has."""


def spans_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser of ``--spans``.

    A wrong value ends the program with one sentence and exit code 2, before training starts.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--spans", type=writable, required=True, help="file to which the true busy spans go"
    )
    return parser


def example_parser(description: str | None, *, workers: str) -> argparse.ArgumentParser:
    """Return a parser that also has ``--gpu``, ``--steps``, ``--workers`` and ``--latency-ms``."""
    parser = spans_parser(description)
    parser.add_argument(
        "--gpu", type=_gpu, default=0, help="index of the simulated GPU they belong to"
    )
    parser.add_argument("--steps", type=positive, default=300, help="training steps in all")
    parser.add_argument("--workers", type=natural, default=0, help=workers)
    parser.add_argument(
        "--latency-ms", type=non_negative, default=12.0, help="of each of the 4 files of a batch"
    )
    return parser


class ExampleRun:
    """One running example."""

    def __init__(self, args: argparse.Namespace, folder: Path, spans: BusySpans) -> None:
        self.args, self.folder, self.spans = args, folder, spans
        self._started_ns = time.monotonic_ns()

    def starts(self) -> None:
        self._started_ns = time.monotonic_ns()

    def print_result(self, **figures: Any) -> None:
        """Print the line: these figures, and the wall and busy time since the start."""
        wall_ns = time.monotonic_ns() - self._started_ns
        seconds = {"wall_seconds": wall_ns / 1e9, "busy_seconds": self.spans.busy_ns / 1e9}
        print_json({**figures, **seconds})


def run_example(parser: argparse.ArgumentParser, train: Callable[[ExampleRun], None]) -> None:
    """Train once, with the options of a parser from ``example_parser``."""
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, BusySpans(args.spans, args.gpu) as spans:
        train(ExampleRun(args, Path(name), spans))


def read_ahead(read: Callable[[int], T], *, batches: int, workers: int) -> Iterator[T]:
    """Yield the batches ``read(0)``, ``read(1)``, ... in order, as without threads.

    Args:
        read: Reads the batch of that number; called on any of the threads.
        batches: How many to read.
        workers: How many threads read ahead, two batches each; 0: each batch is read on demand.
    """
    if not workers:
        yield from map(read, range(batches))
        return
    ahead = 2 * workers
    with ThreadPoolExecutor(workers) as threads:
        coming = deque(threads.submit(read, number) for number in range(min(ahead, batches)))
        for number in range(ahead, ahead + batches):
            batch = coming.popleft().result()
            if number < batches:
                coming.append(threads.submit(read, number))
            yield batch


def print_json(result: dict[str, Any]) -> None:
    """Print one line of JSON."""
    print(json.dumps(result), flush=True)


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


def non_negative(text: str) -> float:
    """A number from 0 on, none larger than a sleep can take."""
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
