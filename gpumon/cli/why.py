"""``gpumon why``: which line of code a GPU waits for."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from gpumon.cli.command import end_on_signals, time_argument
from gpumon.cli.source_option import LIVE_SOURCE_HELP, check_source, open_source, replay_of
from gpumon.cli.why_progress import WhyProgress
from gpumon.cli.why_target import WANTS_PID, TargetFinder
from gpumon.core.diagnosis.stack_advice import SeenProcess, stack_advice
from gpumon.core.stacks.place import Place
from gpumon.core.stacks.sample_join import SampleKind
from gpumon.core.stacks.stack import StackSample
from gpumon.errors import GpumonError, UsageError
from gpumon.outlets.text.style import style_for
from gpumon.outlets.text.why_text import Why, why_text
from gpumon.pipeline.stack_watch import ReadStack, SourcePace, StackWatch, Target, WatchedTime
from gpumon.pipeline.watch import SourceThread
from gpumon.sources.nvml.fields.table import DEFAULT_OPTIONS, ReadTimes
from gpumon.sources.stacks.permission import refusal
from gpumon.sources.stacks.py_spy import PySpy, find_py_spy
from gpumon.sources.stacks.source_lines import SourceLines
from gpumon.sources.stacks.thread_states import ThreadStates
from gpumon.sources.system_clock import SystemClock

_LONGER: Final = 2
_PERIOD_S: Final = 0.25
_PERIOD_OF_SPANS_S: Final = 0.1
_STOP_PATIENCE_S: Final = 1.5


class WhyCommand:
    """Find the line of code that a GPU waits for, in a training script without any tag.

    Watches one GPU and one process on it, and reads where the process is:
    every half second while the GPU is idle, and seldom while it works. Needs
    no daemon, no tag, no restart, and no root for your own processes. Ctrl-C
    ends early, with what was found.
    """

    example = (
        "gpumon why                        # the process on the only GPU in use\n"
        "  gpumon why 4711 --for 2m          # that process\n"
        "  gpumon why -- python train.py     # start it, and watch it"
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "words",
            metavar="PID | -- COMMAND",
            nargs="*",
            help="the process, or a command to start (default: the process on the GPU)",
        )
        parser.add_argument("--gpu", metavar="N", help="the GPU: 0, or 0:1 for a MIG instance")
        parser.add_argument(
            "--for",
            metavar="TIME",
            dest="length_s",
            type=time_argument,
            default=60.0,
            help="how long to watch: 90, 90s or 5m (default: 60 s)",
        )
        parser.add_argument("--source", metavar="SOURCE", default="nvml", help=LIVE_SOURCE_HELP)

    def run(self, args: argparse.Namespace) -> int:
        check_source(args.source)
        if replay_of(args.source) is not None:
            raise UsageError("a recording has no processes to look at: use a live source")
        pid = _pid_of(args.words)
        clock = SystemClock()
        with _opened(args.source, clock) as source:
            has_lists = args.source == "nvml"
            if pid is None and not has_lists:
                raise UsageError(WANTS_PID)
            if pid is not None:
                _check_pid(pid)
            target = TargetFinder(source, clock, has_lists=has_lists).find(pid, args.gpu)
            return _watch(args, source, clock, target)


def _watch(
    args: argparse.Namespace, source: SourceThread, clock: SystemClock, target: Target
) -> int:
    name = ThreadStates(clock).program(target.pid) or f"process {target.pid}"
    lines = SourceLines(target.pid)

    def keep(_kind: SampleKind, _sample: StackSample, place: Place) -> None:
        if place.caller is not None:
            lines.line_of(place.caller)

    watch = StackWatch(
        source,
        target,
        _reader(clock),
        clock,
        SourcePace(
            _PERIOD_S if args.source == "nvml" else _PERIOD_OF_SPANS_S,
            spans_come_late=args.source.startswith("follow:"),
        ),
        keep,
    )
    end_on_signals(watch.stop)
    with WhyProgress(sys.stderr, target, name, args.length_s) as progress:
        watched = watch.run(
            args.length_s, is_alive=lambda: not _has_ended(target.pid), show=progress.update
        )
    process = SeenProcess(name=_script(name), pid=target.pid)
    _print(args, _why(watched, process, lines, target, args))
    return 0


def _why(
    watched: WatchedTime,
    process: SeenProcess,
    lines: SourceLines,
    target: Target,
    args: argparse.Namespace,
) -> Why:
    advice = None
    if watched.device is not None and watched.finding.is_enough:
        advice = stack_advice(
            watched.device, watched.busy_ns, watched.idle_ns, watched.finding, process
        )
    longer = f"gpumon why {target.pid} --for {_LONGER * args.length_s:g}"
    if args.source != "nvml":
        longer += f" --source {args.source}"
    return Why(watched, process.name, advice, lines.line_of, longer=longer)


def _print(args: argparse.Namespace, why: Why) -> None:
    style = style_for(sys.stdout, os.environ)
    print(style.plain(why_text(why)), end="")


def _reader(clock: SystemClock) -> ReadStack:
    program = find_py_spy()
    assert program is not None
    return PySpy(program, clock).read


def _script(program: str) -> str:
    """The script of ``"python train.py"``, else the program."""
    return program.split(" ")[-1] if program else program


@contextmanager
def _opened(name: str, clock: SystemClock) -> Iterator[SourceThread]:
    times = ReadTimes(_PERIOD_S)
    source = SourceThread(lambda: open_source(name, clock, DEFAULT_OPTIONS, times), clock)
    try:
        yield source
    finally:
        source.stop(_STOP_PATIENCE_S)


def _pid_of(words: list[str]) -> int | None:
    if not words:
        return None
    if len(words) == 1 and words[0].isdecimal():
        return int(words[0])
    raise UsageError(f"{words[0]!r} is no process id")


def _check_pid(pid: int) -> None:
    if pid == os.getpid():
        raise UsageError(f"process {pid} is gpumon itself: name the training process")
    refused = refusal(pid)
    if refused is not None and refused.has_ended:
        raise GpumonError(refused.text)


def _has_ended(pid: int) -> bool:
    refused = refusal(pid)
    return refused is not None and refused.has_ended
