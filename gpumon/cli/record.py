"""``gpumon record``: records GPUs and training runs in a file."""

from __future__ import annotations

import argparse
import platform
import shlex
import sys
import threading
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

from gpumon import __version__
from gpumon.cli.command import add_period_argument, end_on_signals, time_argument
from gpumon.cli.source_option import (
    LIVE_SOURCE_HELP,
    add_nvml_arguments,
    check_source,
    folders_without_a_daemon,
    nvml_options_of,
    replay_of,
    watch_machine,
)
from gpumon.core.clock import NS_PER_S, seconds
from gpumon.core.codecs.recording_codec import RecordingHeader
from gpumon.core.reading import Reading
from gpumon.core.wording import counted, label_text
from gpumon.errors import RestartNeededError, UsageError
from gpumon.outlets.recording import RecordingWriter
from gpumon.pipeline.watch import Watch
from gpumon.sources.nvml.fields.table import ReadTimes
from gpumon.sources.ring_reader.phase_rings import leave_alone
from gpumon.sources.system_clock import SystemClock

_EVERY_NS = NS_PER_S // 2
_MAX_GPUS = 4


class RecordProgress:
    """Shows the recording's size, how busy the GPUs are and the time left; on a terminal only.

    ``length_s`` is ``None`` if it is recorded until it is stopped.
    """

    def __init__(
        self, stream: TextIO, writer: RecordingWriter, length_s: float | None = None
    ) -> None:
        self._writer = writer
        self._shown_ns: int | None = None
        columns: tuple[ProgressColumn, ...] = (TextColumn("{task.description}", markup=False),)
        if length_s is not None:
            columns = (*columns, BarColumn(10), TimeRemainingColumn(compact=True))
        self._progress = Progress(
            *columns,
            console=Console(file=stream),
            auto_refresh=False,
            transient=True,
            disable=not stream.isatty(),
        )
        self._task = self._progress.add_task("recording", total=length_s)

    def __enter__(self) -> RecordProgress:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(self, reading: Reading) -> None:
        """Show the newest tick, at most twice a second."""
        at_ns = reading.tick.at_ns
        if self._shown_ns is not None and at_ns - self._shown_ns < _EVERY_NS:
            return
        self._shown_ns = at_ns
        self._progress.update(
            self._task,
            completed=seconds(self._writer.elapsed_ns),
            description=f"{amount(self._writer)}; {_now(reading)}; Ctrl-C ends it",
            refresh=True,
        )


def amount(writer: RecordingWriter) -> str:
    """The size of a recording as text."""
    readings = counted(writer.kept_count, "reading", "readings")
    minutes, rest_s = divmod(round(seconds(writer.elapsed_ns)), 60)
    hours, minutes = divmod(minutes, 60)
    length = f"{hours}:{minutes:02}:{rest_s:02} h" if hours else f"{minutes}:{rest_s:02} min"
    return f"{readings} of {length}, {writer.written_bytes / 1000:,.1f} kB"


def _now(reading: Reading) -> str:
    """How busy the GPUs are, or why that is unknown."""
    if reading.tick.error is not None:
        return label_text(reading.tick.error)
    if not reading.tick.frames:
        return "no answer"
    gpus = reading.tick.frames[-1].gpus
    texts = [
        f"GPU {gpu.device.label} {gpu.utilization_ratio:.0%}".replace("%", " %")
        if gpu.utilization_ratio is not None
        else f"GPU {gpu.device.label} -"
        for gpu in gpus[:_MAX_GPUS]
    ]
    more = f", {len(gpus) - _MAX_GPUS} more" if len(gpus) > _MAX_GPUS else ""
    return f"busy now: {', '.join(texts)}{more}" if texts else "no GPU"


class RecordCommand:
    """Record the GPUs and training runs of this machine, to look at them later.

    Writes one small file with every sample of every GPU and every tagged phase
    of training runs. `gpumon replay FILE` prints its report, and
    `gpumon serve --source replay:FILE` plays it, here or on another machine.
    Ends on Ctrl-C, SIGTERM or after --for; if killed, only the last few seconds
    are lost. A daemon may run at the same time. Only you can read the file,
    because it has names of processes and runs.
    """

    example = (
        "gpumon record night.gpumon --for 8h\n"
        "  gpumon replay night.gpumon\n"
        "  gpumon serve --source replay:night.gpumon,speed=10"
    )

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", help="the recording to create")
        parser.add_argument("--source", metavar="SOURCE", default="nvml", help=LIVE_SOURCE_HELP)
        add_period_argument(parser)
        parser.add_argument(
            "--for",
            metavar="TIME",
            dest="length_s",
            type=time_argument,
            help="end after 90s, 10m, 8h or 2d (default: at Ctrl-C)",
        )
        parser.add_argument(
            "--note", metavar="TEXT", default="", help="a note to show in its report"
        )
        parser.add_argument(
            "--force", action="store_true", help="replace FILE if it is a recording already"
        )
        add_nvml_arguments(parser)

    def run(self, args: argparse.Namespace) -> int:
        check_source(args.source)
        if replay_of(args.source) is not None:
            raise UsageError("the source is a recording already: copy the file instead")
        clock, nvml = SystemClock(), nvml_options_of(args)
        with RecordingWriter(Path(args.file), replaces=args.force) as writer:
            watch = watch_machine(
                args.source,
                clock,
                nvml,
                times=ReadTimes(args.period),
                folders=folders_without_a_daemon(),
                unlink=leave_alone,
            )
            recorder = Recorder(watch, writer, clock, note=args.note)
            end_on_signals(recorder.stop)
            try:
                recorder.run(args.length_s)
            except RestartNeededError:
                writer.close("the driver has gone")
                _print_result(writer)
                raise
        return _print_result(writer)


class Recorder:
    """Records every tick of a watch until it is stopped."""

    def __init__(
        self, watch: Watch, writer: RecordingWriter, clock: SystemClock, *, note: str
    ) -> None:
        self._watch, self._writer, self._clock = watch, writer, clock
        self._stopped = False
        facts = watch.facts
        self._header = RecordingHeader(
            version=__version__,
            source=facts.source,
            simulated=facts.simulated,
            boot_id=facts.boot_id,
            host=platform.node(),
            started_wall_time_s=facts.started_wall_time_s,
            started_ns=clock.monotonic_ns(),
            period_ns=facts.period_ns,
            note=note,
        )

    def stop(self) -> None:
        """Take a last reading and end. Safe in a signal handler."""
        self._stopped = True
        self._clock.wake()

    def run(self, length_s: float | None) -> None:
        """Record until ``stop``, or for ``length_s``.

        Raises:
            SourceUnavailableError: The source cannot be read.
            GpumonError: The recording cannot be written.
        """
        timer = threading.Timer(min(length_s or 0.0, threading.TIMEOUT_MAX), self.stop)
        timer.daemon = True
        try:
            self._watch.require_source()
            if length_s is not None:
                timer.start()
            with RecordProgress(sys.stderr, self._writer, length_s) as progress:
                while not self._stopped:
                    reading = self._watch.next_reading()
                    if reading is None:
                        break
                    self._writer.keep(reading, self._header)
                    progress.update(reading)
        finally:
            timer.cancel()
            self._watch.close()


def _print_result(writer: RecordingWriter) -> int:
    if not writer.kept_count:
        print("gpumon: stopped before the first reading: nothing was recorded", file=sys.stderr)
        return 1
    path = shlex.quote(str(writer.path))
    print(f"gpumon: {path} has {amount(writer)}\n  gpumon replay {path}    shows its report")
    return 0
