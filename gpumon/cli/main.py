"""The command line: finds and runs the subcommand, and turns errors into exit codes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Collection, Sequence
from importlib import import_module
from inspect import cleandoc
from pathlib import Path

from gpumon import __version__
from gpumon.cli.command import Command, print_error
from gpumon.cli.environment import CommandParser
from gpumon.errors import GpumonError, UsageError

_COMMANDS = {
    "serve": (
        "gpumon.cli.serve:ServeCommand",
        "watch this machine: page, /metrics, dstat --gpu",
    ),
    "top": (
        "gpumon.cli.top:TopCommand",
        "the GPUs on one screen: which, what, whose, and what to do",
    ),
    "analyze": (
        "gpumon.cli.analyze:AnalyzeCommand",
        "report on a GPU log you already have, from any tool",
    ),
    "why": (
        "gpumon.cli.why:WhyCommand",
        "which line of code a GPU waits for, in any training script",
    ),
    "report": (
        "gpumon.cli.report:ReportCommand",
        "where the time went: daemon, recording, comparison, or a fleet",
    ),
    "run": (
        "gpumon.cli.run:RunCommand",
        "run a training script with tags, without a change to it",
    ),
    "demo": (
        "gpumon.cli.demo:DemoCommand",
        "see it work without a GPU: slow input, then prefetch",
    ),
    "doctor": (
        "gpumon.cli.doctor.doctor:DoctorCommand",
        "what this machine can report, and how to fix the rest",
    ),
    "record": (
        "gpumon.cli.record:RecordCommand",
        "record GPUs and training runs in a file, for gpumon replay",
    ),
    "replay": ("gpumon.cli.report:ReplayCommand", "report on a recording"),
    "dstat": (
        "gpumon.cli.dstat:DstatCommand",
        "install `dstat --gpu` and `dool --gpu`",
    ),
    "completion": (
        "gpumon.cli.completion:CompletionCommand",
        "complete commands and options in bash and zsh",
    ),
}
"""Each command's class and its line in the list, which is shown without importing any."""

_CONFIGURED = "serve"
"""The command whose options may be variables, for units and containers."""

_DESCRIPTION = """\
Shows how much GPU time is lost, why, and what to change first.

  gpumon demo                       see it work; no GPU needed
  gpumon analyze gpu.csv            analyze a log you already have
  gpumon doctor                     what this machine can report, and what to fix
  gpumon serve                      watch this machine: page, /metrics, dstat --gpu
"""

_EPILOG = """\
`gpumon COMMAND --help` shows an example.
Exit codes: 0 success, 1 failure or a limit is exceeded, 2 wrong arguments, 3 no
readable GPU, 4 no daemon, 5 a limit was given but no GPU had a verdict.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    _open_closed_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = build_parser([name for name in arguments if name in _COMMANDS][:1])
    if not arguments:
        parser.print_help(sys.stderr)
        return 2
    try:
        if arguments[:1] == [_CONFIGURED]:
            arguments[1:1] = parser.commands[_CONFIGURED].arguments_of(os.environ, arguments[1:])
        if arguments[0] not in _COMMANDS and not arguments[0].startswith("-"):
            from gpumon.cli.did_you_mean import about_command

            raise UsageError(about_command(arguments[0], _COMMANDS))
        args, unknown = parser.parse_known_args(arguments)
        if unknown:
            _check_options(arguments, unknown, args.command)
            args.fail(f"unrecognized arguments: {' '.join(unknown)}")
        code: int = args.run(args)
        sys.stdout.flush()
    except GpumonError as error:
        print_error(error)
        return error.exit_code
    except BrokenPipeError:
        # The reader has closed the pipe; avoid an error of the interpreter at exit.
        _close_output()
        return 0
    except OSError as error:  # such as a full disk
        print_error(error.strerror or error)
        _close_output()
        return 1
    except KeyboardInterrupt:
        return 130
    return code


def _check_options(arguments: Sequence[str], unknown: Sequence[str], command: str) -> None:
    """Raise ``UsageError`` if it is known which option was meant."""
    from gpumon.cli.did_you_mean import about_options

    commands = build_parser().commands
    options = {name: parser.option_names for name, parser in commands.items()}
    meant = about_options(arguments, unknown, command, options)
    if meant is not None:
        raise UsageError(meant)


def build_parser(loaded: Collection[str] = tuple(_COMMANDS)) -> CommandParser:
    """The parser of the command line: lists all commands, and imports only those loaded."""
    parser = CommandParser(
        prog="gpumon",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"gpumon {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (place, summary) in _COMMANDS.items():
        subparser = subparsers.add_parser(
            name, help=summary, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name in loaded:
            parser.commands[name] = subparser
            module, _, class_name = place.partition(":")
            _declare(subparser, getattr(import_module(module), class_name)())
            if name == _CONFIGURED:
                subparser.add_variables_to_help()
    return parser


def _declare(subparser: CommandParser, command: Command) -> None:
    subparser.description = cleandoc(command.__doc__ or "")
    subparser.epilog = f"example:\n  {command.example}"
    subparser.example = command.example
    command.add_arguments(subparser)
    subparser.set_defaults(run=command.run, fail=subparser.error, parser=subparser)


def _open_closed_streams() -> None:
    """Open streams that were closed at the start (`<&-`); the next file would get their number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115  (open until exit)
            setattr(sys, name, stream)


def _close_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
