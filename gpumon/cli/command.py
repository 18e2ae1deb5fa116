"""What commands have in common: their protocol, error messages and signals."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from typing import Protocol

from gpumon.core.wording import label_text

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


def complain(sentence: object) -> None:
    """Print a message on standard error, as one safe line."""
    print(f"gpumon: {label_text(sentence, _LONGEST_SENTENCE)}", file=sys.stderr)


def end_on_signals(stop: Callable[[], object]) -> None:
    """Call this on Ctrl-C, SIGTERM and SIGHUP."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # nohup ignores SIGHUP.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda *_: stop())
