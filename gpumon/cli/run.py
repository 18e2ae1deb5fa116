"""``gpumon run``: a training script with tags that are not in its code."""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Final

from gpumon.cli.command import print_error
from gpumon.cli.run_end import print_end
from gpumon.cli.started_command import CommandError, StartedCommand
from gpumon.errors import GpumonError

_NOTES: Final = "GPUMON_RUN_NOTES"
"""The variable with the file for notes; ``sitecustomize.py`` reads it."""
_PATH: Final = "PYTHONPATH"
_FORWARDED: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_OF_THE_TERMINAL: Final = (signal.SIGINT, signal.SIGQUIT)
"""Sent to the whole process group, so the command receives them without gpumon."""
_TAKE_A_VALUE: Final = "WX"
_KEEP_HOOKS_OUT: Final = "IES"
"""Options of Python without which nothing on ``PYTHONPATH`` is run at its start."""


class RunCommand:
    """Run a training script with tags, without a change to it.

    What follows is the command: `python train.py`, `python -m ...`, `torchrun`,
    `accelerate launch`. Each Python from 3.10 on that it starts gets a tagger for
    Keras, Lightning and the Hugging Face Trainer, and times the DataLoaders of
    PyTorch. A script that has a tagger keeps its own. At the end the report of
    the run is printed on standard error or, without a daemon, what its tags show.

    Exit codes: that of the command; 127 if there is no such command, 126 if it
    cannot be executed.
    """

    example = "gpumon run -- python train.py --epochs 3"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "words",
            metavar="COMMAND",
            nargs=argparse.REMAINDER,
            help="the command and its arguments",
        )

    def run(self, args: argparse.Namespace) -> int:
        """Run the command to its end and return its exit code, or end by its signal."""
        words = args.words[1:] if args.words[:1] == ["--"] else args.words
        if not words:
            args.fail("the command is missing")
        option = option_without_hooks(words)
        if option is not None:
            print_error(
                f"this run has no tags: with {option}, Python ignores them; leave {option} out, or "
                "put a PhaseTagger into the script"
            )
        with _notes_file() as notes:
            began_ns, environ = time.monotonic_ns(), _environment(os.environ, notes)
            command = StartedCommand(
                words, environ=environ, ends_with_gpumon=True, example=_example_for(words[0])
            )
            try:
                code = _wait_for(command)
            except CommandError as error:
                print_error(error)
                return error.exit_code
            if option is None:
                # Whatever is wrong now, the exit code is that of the command.
                with contextlib.suppress(KeyboardInterrupt, OSError, GpumonError):
                    print_end(notes, began_ns)
                    sys.stderr.flush()
        return code if command.ended_by is None else _end_by(command.ended_by)


def _example_for(command: str) -> str:
    is_script = command.endswith(".py")
    return f"gpumon run -- python {command if is_script else 'train.py'}"


def option_without_hooks(words: Sequence[str]) -> str | None:
    """The option of ``python`` that keeps the hooks out, if the command has one.

    >>> option_without_hooks(["python3", "-uI", "-m", "train"])
    '-I'
    >>> option_without_hooks(["python3", "-W", "E", "train.py", "-I"])
    """
    if not Path(words[0]).name.startswith("python"):
        return None
    options = iter(words[1:])
    for option in options:
        if not option.startswith("-") or option.startswith("--") or option == "-":
            return None
        for at, letter in enumerate(option[1:], 2):
            if letter in "cm":
                return None
            if letter in _KEEP_HOOKS_OUT:
                return f"-{letter}"
            if letter in _TAKE_A_VALUE:
                if at == len(option):
                    next(options, None)
                break
    return None


@contextlib.contextmanager
def _notes_file() -> Iterator[Path | None]:
    """A file in which each Python writes its pid; ``None`` where none can be made."""
    try:
        descriptor, name = tempfile.mkstemp(prefix="gpumon-run-")
    except OSError:
        yield None
        return
    os.close(descriptor)
    try:
        yield Path(name)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name)  # noqa: PTH108


def _environment(environ: Mapping[str, str], notes: Path | None) -> dict[str, str]:
    """The command's environment, with the folder of ``sitecustomize.py`` first on the path."""
    found = find_spec("trainer_hooks")
    if found is None or found.origin is None:
        return dict(environ)
    folder = str(Path(found.origin).resolve().parent / "injected" / "python_path")
    given = environ.get(_PATH)
    folders = given.split(os.pathsep) if given else []  # an empty one would add the working folder
    path = os.pathsep.join([folder, *(other for other in folders if other != folder)])
    return {**environ, _PATH: path, **({} if notes is None else {_NOTES: str(notes)})}


def _wait_for(command: StartedCommand) -> int:
    """Run the command to its end, and return its exit code, or 128 and the number of its signal.

    Raises:
        CommandError: It cannot be executed.
    """

    def forward(number: int, _: FrameType | None) -> None:
        command.forward(number)

    handlers = {**dict.fromkeys(_FORWARDED, forward), **dict.fromkeys(_OF_THE_TERMINAL, _leave)}
    before = {
        number: signal.signal(number, handler)
        for number, handler in handlers.items()
        if signal.getsignal(number) != signal.SIG_IGN  # as with nohup
    }
    try:
        command.begin()
        return command.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, _: FrameType | None) -> None:
    """The command has received it, too."""


def _end_by(number: int) -> int:
    """End by the signal that ended the command, so that a shell sees the same."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the command has left the core file
    with contextlib.suppress(OSError, ValueError):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + number
