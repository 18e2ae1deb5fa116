"""Runs a program that must not take for ever. Standard library only."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

TAKEN_DOWN_S: Final = 20.0
"""What pytest has to take its tests down once it is told to end."""
OVER_TIME: Final = 1


def code_within(limit_s: float | None, command: Sequence[str], folder: Path) -> int:
    """The exit code of a program; one that takes longer is told to end, and then made to.

    Args:
        limit_s: How long it may take; ``None``: as long as it likes.
        command: Its words.
        folder: Where it runs.
    """
    child = subprocess.Popen(command, cwd=folder, preexec_fn=_hear_interrupts)
    try:
        return child.wait(limit_s)
    except subprocess.TimeoutExpired:
        sentence = f"make gpu: the tests have taken {limit_s:.0f} s and are ended"
        print(sentence, file=sys.stderr, flush=True)
        child.send_signal(signal.SIGINT)  # pytest then says what it has so far
        try:
            return child.wait(TAKEN_DOWN_S) or OVER_TIME
        except subprocess.TimeoutExpired:
            return OVER_TIME
    finally:
        child.kill()
        child.wait()


def _hear_interrupts() -> None:
    """A shell has what it starts with ``&`` ignore them, and whoever that starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
