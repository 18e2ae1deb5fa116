"""What a script in ``scripts`` writes down: when its GPU truly works, and what it does meanwhile.

Each line has CLOCK_MONOTONIC in nanoseconds and a word. The scripts import nothing else of ours.
"""

from __future__ import annotations

import os
import time
from functools import cache

BUSY, IDLE, PID = "busy", "idle", "pid"


def file_of(folder: str, rank: int) -> str:
    return f"{folder}/board-{rank}"


@cache
def _file() -> int:
    path = file_of(os.environ["BOARD_FOLDER"], int(os.environ.get("RANK", "0")))
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{time.monotonic_ns()} {PID} {os.getpid()}\n".encode())
    return file


def _write(word: str) -> None:
    at_ns = time.monotonic_ns()
    os.write(_file(), f"{at_ns} {word}\n".encode())


def begins() -> None:
    """The GPU begins to work."""
    _write(BUSY)


def ends() -> None:
    """Its work is done."""
    _write(IDLE)


def compute(seconds: float) -> None:
    """Wait for the GPU, which works for so long."""
    begins()
    time.sleep(seconds)
    ends()


def does(what: str) -> None:
    """What the script does from now on: the name of a cause, or of its own function."""
    _write(what)
