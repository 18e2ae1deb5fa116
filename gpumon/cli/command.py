"""What every subcommand looks like to the command line."""

from __future__ import annotations

import argparse
from typing import Protocol


class Command(Protocol):
    """One subcommand: its class docstring is its help text."""

    name: str
    summary: str
    example: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare its options."""
        ...

    def run(self, args: argparse.Namespace) -> int:
        """Do the work and return the exit code.

        Raises:
            GpumonError: Its message is printed and its exit code returned.
        """
        ...
