"""``gpumon completion``: what a shell needs to complete commands and options."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from gpumon.cli.main import build_parser
from gpumon.errors import GpumonError

_FILES = frozenset({"FILE", "RECORDING", "PAGE", "PICTURE", "BEFORE", "AFTER"})


class CompletionCommand:
    """Print the completion of commands, options and files for bash or zsh.

    bash    the example below, then start a new shell
    zsh     gpumon completion zsh > ~/.zfunc/_gpumon, in a folder of your fpath

    A TAB then starts no Python. Print it again after an update of gpumon. It needs
    shtab, of the extra [completion].
    """

    example = (
        "mkdir -p ~/.local/share/bash-completion/completions\n"
        "  gpumon completion bash > ~/.local/share/bash-completion/completions/gpumon"
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("shell", choices=("bash", "zsh"), help="bash or zsh")

    def run(self, args: argparse.Namespace) -> int:
        """Print the script.

        Raises:
            GpumonError: shtab is not installed.
        """
        try:
            import shtab
        except ImportError:
            raise GpumonError(
                "cannot print a completion without shtab: install it with "
                f"`{sys.executable} -m pip install shtab`"
            ) from None
        parser = build_parser()
        for argument in _arguments_of(parser):
            names = argument.metavar if isinstance(argument.metavar, tuple) else (argument.metavar,)
            if _FILES & {*names}:
                argument.complete = shtab.FILE  # type: ignore[attr-defined]  # as shtab wants it
        print(shtab.complete(parser, args.shell))
        return 0


def _arguments_of(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All arguments, also of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action.choices, dict):
            for command in action.choices.values():
                yield from _arguments_of(command)
