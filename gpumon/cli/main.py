"""Finds the subcommand, runs it, and turns errors into sentences and exit codes.

What every subcommand looks like to the command line.

How a command says what went wrong: one sentence on standard error.

What ends a command from outside: the same for every command that goes on until it is told.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Protocol

from gpumon.cli.environment import CommandParser
from gpumon.core.wording import label_text
from gpumon.errors import GpumonError


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


_LONGEST = 4_000


def complain(sentence: object) -> None:
    """Print one line, whatever names of files and columns it repeats.

    Args:
        sentence: What went wrong; an error says it itself.
    """
    print(f"gpumon: {label_text(sentence, _LONGEST)}", file=sys.stderr)


_COMMANDS = {
    "serve": ("gpumon.cli.serve", "ServeCommand"),
    "analyze": ("gpumon.cli.analyze", "AnalyzeCommand"),
    "report": ("gpumon.cli.report", "ReportCommand"),
    "demo": ("gpumon.cli.demo", "DemoCommand"),
    "doctor": ("gpumon.cli.doctor.command", "DoctorCommand"),
    "record": ("gpumon.cli.record", "RecordCommand"),
    "replay": ("gpumon.cli.replay", "ReplayCommand"),
    "dstat": ("gpumon.cli.dstat", "DstatCommand"),
}

_CONFIGURED = "serve"
"""The command whose options may also be variables: units and containers have no command line."""

_DESCRIPTION = """\
How much GPU time is lost, to what, and what to change first.

  gpumon demo                       see it work; no GPU needed
  gpumon analyze gpu.csv            a verdict on a log you already have
  gpumon doctor                     what this machine can report, and what to mend
  gpumon serve                      watch this machine: page, /metrics, dstat --gpu
"""

_EPILOG = """\
`gpumon COMMAND --help` shows an example of each.
Exit codes: 0 done, 1 the work failed or a limit is passed, 2 wrong words, 3 no
GPU can be read, 4 no daemon, 5 a limit was given and no GPU could be judged.
"""


def installed_version() -> str:
    """The version of the installed distribution; ``"unknown"`` in a bare checkout."""
    try:
        return version("gpumon-starvation")
    except PackageNotFoundError:
        return "unknown"


def load_command(name: str) -> Command:
    """The command of that name. Imports only that one: ``serve`` needs no ``rich``."""
    module, class_name = _COMMANDS[name]
    command: Command = getattr(import_module(module), class_name)()
    return command


def build_parser(commands: Sequence[Command]) -> CommandParser:
    """The parser for those commands; each one's docstring is its help."""
    parser = CommandParser(
        prog="gpumon",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"gpumon {installed_version()}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in commands:
        subparser = subparsers.add_parser(
            command.name,
            help=command.summary,
            description=_dedented(command.__doc__ or command.summary),
            epilog=f"example:\n  {command.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        subparser.example = command.example
        command.add_arguments(subparser)
        if command.name == _CONFIGURED:
            subparser.tell_variables()
        parser.commands[command.name] = subparser
        subparser.set_defaults(run=command.run, fail=subparser.error, parser=subparser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        0 done, 1 the work failed, 2 usage, 3 no source, 4 no daemon, 5 nothing to judge.
    """
    _open_closed_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    wanted = [words[0]] if words and words[0] in _COMMANDS else list(_COMMANDS)
    parser = build_parser([load_command(name) for name in wanted])
    if not words:
        parser.print_help(sys.stderr)
        return 2
    try:
        if words[:1] == [_CONFIGURED]:
            words[1:1] = parser.commands[_CONFIGURED].words_of(os.environ, words[1:])
        args, strange = parser.parse_known_args(words)
        if strange:
            args.fail(f"unrecognized arguments: {' '.join(strange)}")
        code: int = args.run(args)
        sys.stdout.flush()
    except GpumonError as error:
        complain(error)
        return error.exit_code
    except BrokenPipeError:
        # The reader has seen enough; keep the interpreter from complaining at exit.
        _close_output()
        return 0
    except OSError as error:  # a full disk behind the output, for one
        complain(error.strerror or error)
        _close_output()
        return 1
    except KeyboardInterrupt:
        return 130
    return code


def _open_closed_streams() -> None:
    """Give streams that were closed at the start (`<&-`) an end; else the next file takes it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115  (to the end)
            setattr(sys, name, stream)


def _close_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dedented(docstring: str) -> str:
    first, _, rest = docstring.partition("\n")
    lines = [line.removeprefix("    ") for line in rest.splitlines()]
    return "\n".join([first, *lines]).strip()


def end_on_signals(stop: Callable[[], object]) -> None:
    """Call this on Ctrl-C, on SIGTERM, and when the terminal goes.

    Args:
        stop: Ends the command soon. Called in a signal handler.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # Under nohup the terminal may go.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda *_: stop())
