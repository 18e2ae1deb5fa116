"""``gpumon why``: which line of code a GPU waits for."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from typing import Any, Final, NamedTuple

from gpumon.cli.command import can_draw, check_path, end_on_signals, print_error, time_argument
from gpumon.cli.source_option import LIVE_SOURCE_HELP, check_source, open_source, replay_of
from gpumon.cli.started_command import CommandError, StartedCommand
from gpumon.cli.why_progress import WhyProgress
from gpumon.cli.why_reader import NoStacksError, reader_of
from gpumon.cli.why_target import WANTS_PID, TargetFinder
from gpumon.core.clock import seconds
from gpumon.core.codecs.why_codec import (
    WHY_SCHEMA,
    encode_advice,
    encode_device,
    encode_finding,
    encode_reasons,
)
from gpumon.core.diagnosis.stack_advice import SeenIdle, SeenProcess, held_up_by, stack_advice
from gpumon.core.stacks.place import Place
from gpumon.core.stacks.sample_join import SampleKind
from gpumon.core.stacks.stack import StackSample
from gpumon.core.stacks.stack_counts import StackCounts
from gpumon.errors import GpumonError, UsageError
from gpumon.outlets.atomic_write import write_whole
from gpumon.outlets.stack_file import StackFile
from gpumon.outlets.text.stack_text import stacks_text, state_sentence
from gpumon.outlets.text.style import style_for
from gpumon.outlets.text.why_text import Why, why_text
from gpumon.pipeline.stack_watch import SourcePace, StackWatch, Target, WatchedTime, WatchReader
from gpumon.pipeline.watch import SourceThread
from gpumon.sources.nvml.fields.table import DEFAULT_OPTIONS, ReadTimes
from gpumon.sources.stacks.permission import refusal
from gpumon.sources.stacks.source_lines import SourceLines
from gpumon.sources.stacks.thread_states import ThreadStates
from gpumon.sources.system_clock import SystemClock

_LONGER: Final = 2
_LEAST_LONGER_S: Final = 120.0
_PERIOD_S: Final = 0.25
_PERIOD_OF_SPANS_S: Final = 0.1
_STOP_PATIENCE_S: Final = 1.5
_PICTURES: Final = ("png", "svg", "pdf")


class WhyCommand:
    """Find the line of code that a GPU waits for, in a training script without any tag.

    Watches one GPU and one process on it, and reads where the process is at
    random times: twice a second while the GPU is idle, else once. Needs no
    daemon, no tag, no restart, and no root for your own processes. Ctrl-C ends
    early, with what was found. A command after -- is started, and its exit
    code is returned; it continues after --for.
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
        parser.add_argument(
            "--once",
            action="store_true",
            help="print the stacks now, of the process and its children",
        )
        parser.add_argument("--json", action="store_true", help="print the result as JSON")
        parser.add_argument(
            "--record",
            metavar="FILE",
            help="keep the stacks for a flame graph: for speedscope, or collapsed if FILE ends "
            "with .collapsed or .txt",
        )
        parser.add_argument(
            "--plot", metavar="FILE", help="draw them: a .png, a .svg or a .pdf (needs matplotlib)"
        )
        parser.add_argument("--source", metavar="SOURCE", default="nvml", help=LIVE_SOURCE_HELP)

    def run(self, args: argparse.Namespace) -> int:
        check_source(args.source)
        if replay_of(args.source) is not None:
            raise UsageError("a recording has no processes to look at: use a live source")
        pid, command = _pid_or_command(args.words)
        if pid is not None:
            _check_pid(pid)
        if args.once:
            return _with_states(lambda: _show_once(pid))
        if args.record == "":
            raise UsageError("--record needs the name of a file")
        if args.plot is not None and not _can_plot(args.plot):
            return 1
        return _watch(args, pid, command)


def _with_states(work: Callable[[], int]) -> int:
    """Do it, or print what the kernel shows of a process whose stacks cannot be read."""
    try:
        return work()
    except NoStacksError as error:
        print_error(error)
        print(state_sentence(ThreadStates(SystemClock()).read(error.pid)))
        return error.exit_code


def _pid_or_command(words: list[str]) -> tuple[int | None, list[str]]:
    """The process that is named, or the command.

    >>> _pid_or_command(["4711"]), _pid_or_command(["python", "train.py"])
    ((4711, []), (None, ['python', 'train.py']))
    """
    if len(words) == 1 and words[0].isascii() and words[0].isdigit():
        return int(words[0]), []
    return None, words


def _check_pid(pid: int) -> None:
    if pid == os.getpid():
        raise UsageError(f"process {pid} is gpumon itself: name the training process")
    refused = refusal(pid)
    if refused is not None and refused.has_ended:
        raise GpumonError(refused.text)


def _can_plot(path: str) -> bool:
    if Path(path).suffix.lower().removeprefix(".") not in _PICTURES:
        raise UsageError(f"{path}: a plot is a .png, a .svg or a .pdf; name it so")
    check_path(path, None)
    if not Path(path).absolute().parent.is_dir():
        raise UsageError(f"{path}: there is no such folder")
    return can_draw()


def _show_once(pid: int | None) -> int:
    if pid is None:
        raise UsageError("--once wants a process: write `gpumon why 4711 --once`")
    reader = reader_of(pid, SystemClock())
    sample = reader.read(pid)
    if sample.is_retryable:
        sample = reader.read(pid)
    if sample.error is not None:
        raise GpumonError(sample.error)
    print(style_for(sys.stdout, os.environ).plain(stacks_text(sample)), end="")
    return 0


# -- watching ------------------------------------------------------------------------


def _watch(args: argparse.Namespace, pid: int | None, words: list[str]) -> int:
    clock, has_lists = SystemClock(), args.source == "nvml"
    if pid is None and not words and not has_lists:
        raise UsageError(WANTS_PID)
    with ExitStack() as open_until_end:
        command = StartedCommand(words) if words else None  # before any thread
        if command is not None:
            open_until_end.callback(command.close)
        source = open_until_end.enter_context(_opened(args.source, clock))
        finder = TargetFinder(source, clock, has_lists=has_lists)
        file = None if args.record is None else StackFile(args.record)
        try:
            if command is None:
                target = finder.find(pid, args.gpu)
            else:
                finder.check(args.gpu)
        except BaseException:
            if file is not None:
                file.discard()
            raise
        session = _Session(args, source, clock, file, command)
        if command is None:
            return _with_states(lambda: session.watch(target))
        return _beside(command, finder, session)


def _beside(command: StartedCommand, finder: TargetFinder, session: _Session) -> int:
    """Watch a command, and then wait for its end: it goes on whatever happens to the watch."""
    code, is_stopped = 1, Event()
    _stop_on_signals(is_stopped.set, command)
    try:
        command.begin()
        found = finder.await_command(
            command, session.args.gpu, session.args.length_s, is_stopped.is_set
        )
        code = 0 if found is None else _with_states(lambda: session.watch(found))
        if found is None:
            session.discard()
    except CommandError:
        session.discard()
        raise
    except GpumonError as error:
        print_error(error)
        code = error.exit_code
    return command.wait() or code


class _Session(NamedTuple):
    """One watch: what was asked for, and what it is read from and written to."""

    args: argparse.Namespace
    source: SourceThread
    clock: SystemClock
    file: StackFile | None
    command: StartedCommand | None

    def watch(self, target: Target) -> int:
        """Watch, and print the result.

        Raises:
            NoStacksError: The stacks cannot be read.
        """
        try:
            reader = reader_of(target.pid, self.clock)
        except BaseException:
            self.discard()
            raise
        return _watched(self, target, reader)

    def discard(self) -> None:
        if self.file is not None:
            self.file.discard()


def _watched(session: _Session, target: Target, reader: WatchReader) -> int:
    args, source, clock, file, command = session
    name = ThreadStates(clock).program(target.pid) or f"process {target.pid}"
    lines, counts = SourceLines(target.pid), StackCounts()
    keeps_stacks = file is not None or args.plot is not None

    def keep(kind: SampleKind, sample: StackSample, place: Place) -> None:
        for frame in (place.caller, place.inside):
            if frame is not None:
                lines.line_of(frame)
        if keeps_stacks:
            counts.add(kind, sample)

    pace = SourcePace(
        _PERIOD_S if args.source == "nvml" else _PERIOD_OF_SPANS_S,
        spans_come_late=args.source.startswith("follow:"),
    )
    watch = StackWatch(source, target, reader, clock, pace, keep)
    _stop_on_signals(watch.stop, command)

    def is_alive() -> bool:
        refused = refusal(target.pid)
        return refused is None or not refused.has_ended

    with WhyProgress(sys.stderr, target, name, args.length_s) as progress:
        watched = watch.run(args.length_s, is_alive=is_alive, show=progress.update)
    process = SeenProcess(_script(name), target.pid, watched.reasons)
    why = _why(watched, process, lines, args, is_python=reader.is_python)
    _print(args, why, name)
    if file is not None:
        file.write(counts, name)
        print(
            f"gpumon: {args.record} has the stacks, for speedscope or flamegraph", file=sys.stderr
        )
    if args.plot is not None:
        from gpumon.outlets.plot.stacks import stack_picture

        kind = Path(args.plot).suffix.lower().removeprefix(".")
        write_whole(args.plot, stack_picture(counts, _headline(why), kind))
    return 0


def _stop_on_signals(stop: Callable[[], object], command: StartedCommand | None) -> None:
    """Stop on signals; SIGTERM and SIGHUP end the command, too; Ctrl-C reaches it anyhow."""
    end_on_signals(stop)
    if command is None:
        return

    def end(number: int, _: object) -> None:
        command.forward(number)
        stop()

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, end)


def _why(
    watched: WatchedTime,
    process: SeenProcess,
    lines: SourceLines,
    args: argparse.Namespace,
    *,
    is_python: bool,
) -> Why:
    advice = None
    if watched.device is not None and watched.finding.is_enough:
        idle = SeenIdle(watched.idle_ns, watched.seen_idle_ns)
        advice = stack_advice(watched.device, watched.busy_ns, idle, watched.finding, process)
    longer = f"gpumon why {process.pid} --for {max(_LEAST_LONGER_S, _LONGER * args.length_s):g}"
    if args.source != "nvml":
        longer += f" --source {args.source}"
    return Why(
        watched,
        process.name,
        advice,
        lines.line_of,
        held_up_by=held_up_by(watched.finding, process),
        longer=longer,
        is_python=is_python,
    )


def _headline(why: Why) -> str:
    """The first line of the text."""
    return why_text(why).partition("\n")[0]


def _script(program: str) -> str:
    """The script of ``"python train.py"``, else the program."""
    return program.rpartition(" ")[2]


# -- the result ----------------------------------------------------------------------


def _print(args: argparse.Namespace, why: Why, program: str) -> None:
    if args.json:
        print(json.dumps(_document(why, program), indent=2))
        return
    style = style_for(sys.stdout, os.environ)
    print(style.plain(why_text(why)), end="", flush=True)


def _document(why: Why, program: str) -> dict[str, Any]:
    watched = why.watched
    return {
        "schema": WHY_SCHEMA,
        "device": encode_device(watched.device),
        "pid": watched.pid,
        "program": program,
        "ended_by": watched.ending.value,
        "watched_seconds": seconds(watched.passed_ns),
        "observed_seconds": seconds(watched.observed_ns),
        "busy_seconds": seconds(watched.busy_ns),
        "idle_seconds": seconds(watched.idle_ns),
        "seen_idle_seconds": seconds(watched.seen_idle_ns),
        "longest_window_seconds": seconds(watched.window_ns),
        "pauses_are_short": watched.is_short,
        "trouble": watched.trouble,
        **encode_finding(watched.finding),
        "reasons": encode_reasons(watched.reasons),
        "advice": encode_advice(why.advice),
    }


@contextmanager
def _opened(name: str, clock: SystemClock) -> Iterator[SourceThread]:
    times = ReadTimes(_PERIOD_S)
    source = SourceThread(lambda: open_source(name, clock, DEFAULT_OPTIONS, times), clock)
    try:
        yield source
    finally:
        source.stop(_STOP_PATIENCE_S)
