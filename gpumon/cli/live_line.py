"""What a terminal shows while a log is read: a bar, or a status line until a signal ends it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING, Final, TextIO, TypeVar

from gpumon.core.clock import nanoseconds, seconds
from gpumon.core.report.report import Report
from gpumon.core.wording import counted, in_about, in_percent, in_time
from gpumon.sources.live_input import LiveReading
from gpumon.sources.system_clock import SystemClock

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from gpumon.sources.logs.log_text import LogText
    from gpumon.sources.recording import RecordingFile

_EVERY_S: Final = 1.0
_MAX_SHARE: Final = 0.05
"""Share of the time spent on the status line."""
_MAX_GPUS: Final = 4
_SILENT_FROM_S: Final = 3.0
_SILENT_ROWS: Final = 3
"""After a longer silence than both, the newest row no longer describes the present."""
_MAX_BYTES: Final = 4_096
_SPINNER_COLUMNS, _USUAL_COLUMNS = 3, 80
_NOTHING: Final = "nothing yet that can be analysed; Ctrl-C ends it"
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def ended_by_signals(live: LiveReading) -> Iterator[None]:
    """Let Ctrl-C, SIGTERM or a lost terminal end a live input; a second one ends the program.

    While a regular file is read, signals have their usual effect.
    """
    before = {number: signal.getsignal(number) for number in _ENDING}

    def end(number: int, _: FrameType | None) -> None:
        if not live.ended:
            live.ended = True
        elif number == signal.SIGINT:
            raise KeyboardInterrupt
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def begin() -> None:
        for number, handler in before.items():
            if number != signal.SIGHUP or handler != signal.SIG_IGN:  # nohup
                signal.signal(number, end)

    live.on_begin = begin
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class LiveLine:
    """Shows a summary of a live input so far, on a terminal only.

    Each second a forked child treats the input as ended, makes the report, sends one sentence of it
    and exits. So the line shows what Ctrl-C would print now, including the rows that readers hold
    back, and memory does not grow.

    Args:
        live: The input; the line is updated whenever it is waited for.
        stream: Standard error, so that a report can be piped.
    """

    def __init__(self, live: LiveReading, stream: TextIO) -> None:
        self._live = live
        self._stream = stream
        self._progress: Progress | None = None
        self._next_s = monotonic() + _EVERY_S
        self._forked_s = 0.0
        self._child: int | None = None
        self._pipe = -1
        self.is_child = False

    def __enter__(self) -> LiveLine:
        if self._stream.isatty():
            self._live.on_wait = self._update
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_child:
            os._exit(1)  # there is no report yet
        self._live.on_wait = lambda: None
        if self._child is not None:
            os.kill(self._child, signal.SIGKILL)
            self._reap(self._child)
        if self._progress is not None:
            self._progress.stop()

    def send(self, report: Report, rows: int, busy_ratios: Sequence[float]) -> None:
        """In a child: send the summary of ``so_far``, and exit."""
        if self.is_child:
            newest_s = self._live.newest_s
            silent_s = 0.0 if newest_s is None else SystemClock().wall_time_s() - newest_s
            columns = os.get_terminal_size(self._stream.fileno()).columns or _USUAL_COLUMNS
            sentence = so_far(report, rows, busy_ratios, silent_s, columns - _SPINNER_COLUMNS)
            os.write(self._pipe, sentence.encode()[:_MAX_BYTES])
            os._exit(0)

    def _update(self) -> None:
        if self._child is not None:
            self._listen(self._child)
        now_s = monotonic()
        if self._child is None and now_s >= self._next_s:
            self._fork(now_s)
        if self._progress is not None:
            self._progress.refresh()

    def _fork(self, now_s: float) -> None:
        received, sent = os.pipe()
        self._forked_s = now_s
        child = os.fork()
        if child == 0:
            os.close(received)
            self._pipe, self.is_child = sent, True
            self._live.ended = True
            return
        os.close(sent)
        self._child, self._pipe = child, received

    def _listen(self, child: int) -> None:
        """Show the child's sentence, if it is ready."""
        arrivals = select.poll()
        arrivals.register(self._pipe, select.POLLIN)
        if not arrivals.poll(0):
            return
        sentence = os.read(self._pipe, _MAX_BYTES)
        self._reap(child)
        took_s = monotonic() - self._forked_s
        self._next_s = self._forked_s + max(_EVERY_S, took_s / _MAX_SHARE)
        self._show(sentence.decode(errors="replace") or _NOTHING)

    def _reap(self, child: int) -> None:
        os.close(self._pipe)
        os.waitpid(child, 0)
        self._child = None

    def _show(self, sentence: str) -> None:
        if self._progress is None:
            from rich.console import Console
            from rich.progress import Progress, SpinnerColumn, TextColumn
            from rich.table import Column

            words = Column(no_wrap=True, overflow="ellipsis")
            self._progress = Progress(
                SpinnerColumn("line"),
                TextColumn("{task.description}", markup=False, table_column=words),
                console=Console(file=self._stream),
                auto_refresh=False,
                transient=True,
            )
            self._progress.add_task("")
            self._progress.start()
        self._progress.update(self._progress.task_ids[0], description=sentence)


def so_far(
    report: Report,
    rows: int,
    busy_ratios: Sequence[float],
    silent_s: float,
    columns: int = _MAX_BYTES,
) -> str:
    """Return a summary in one line: the longest of four that fits, or the shortest.

    Args:
        report: Of the input so far.
        rows: Number of its rows.
        busy_ratios: Busy ratio of each GPU in its newest row.
        silent_s: Seconds since anything new was written.
        columns: Width of the terminal.
    """
    busy_gpus = [
        f"GPU {gpu.label} {in_percent(ratio)}"
        for gpu, ratio in zip(report.gpus[:_MAX_GPUS], busy_ratios, strict=False)
    ]
    more = len(report.gpus) - _MAX_GPUS
    busy = ", ".join(busy_gpus) + (f", {more} more" if more > 0 else "")
    now, mean_now = f"busy now: {busy}", f"busy now: {in_percent(fmean(busy_ratios or [0.0]))}"
    if silent_s > max(_SILENT_FROM_S, _SILENT_ROWS * seconds(report.period_ns)):
        now = mean_now = f"nothing new for {in_about(nanoseconds(silent_s))}"
    lost = little = "nothing in use yet"
    if report.in_use_ns:
        of_gpus = " of GPU time" if len(report.gpus) > 1 else ""
        share = in_percent(report.lost_ns / report.in_use_ns)
        lost = f"lost so far {in_time(report.lost_ns)}{of_gpus}, {share} of the time in use"
        little = f"lost {in_time(report.lost_ns)} ({share})"
    count, passed = counted(rows, "row", "rows"), in_time(report.observed_ns)
    lines = (
        f"{count}, {passed}; {now}; {lost}; Ctrl-C ends it with the report",
        f"{count}, {passed}; {now}; {little}; Ctrl-C: report",
        f"{passed}; {mean_now}; {little}; Ctrl-C: report",
        f"{mean_now}; {little}",
    )
    return next((line for line in lines if len(line) <= columns), lines[-1])


_Item = TypeVar("_Item")
_PATIENCE_S = 1.0
_NAME_LENGTH = 24
_CHECK_EVERY = 16_384
"""Rows between two checks of the clock, which cost more than a row."""


class ReadingProgress:
    """Shows on a terminal how much of a file is read, if that takes more than a second.

    The stream is standard error, so that a report can be piped.
    """

    def __init__(
        self, text: LogText | RecordingFile, stream: TextIO, *, check_every: int = _CHECK_EVERY
    ) -> None:
        self._check_every = check_every
        self._text = text
        self._stream = stream
        self._began_s = monotonic()
        self._progress: Progress | None = None
        self._task: TaskID

    def __enter__(self) -> ReadingProgress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def watched(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """Yield the same items; the bar moves as they pass."""
        if not self._stream.isatty():
            yield from items
            return
        for count, item in enumerate(items):
            if count % self._check_every == 0:
                self._update(count)
            yield item

    def _update(self, rows: int) -> None:
        if self._progress is None:
            if monotonic() - self._began_s < _PATIENCE_S:
                return
            self._progress, self._task = _bar(self._text, self._stream)
        completed = self._text.position_bytes() or 0
        self._progress.update(self._task, completed=completed, rows=rows)


@contextlib.contextmanager
def asking(server: str, stream: TextIO) -> Iterator[Callable[[int], object]]:
    """Show on a terminal that a server is asked, if that takes more than a second.

    Yields:
        What to call with the number of answers so far.
    """
    if not stream.isatty():
        yield lambda answers: None
        return
    from rich import progress  # slow to import, and rarely needed
    from rich.console import Console
    from rich.markup import escape

    line = progress.Progress(
        progress.SpinnerColumn(),
        progress.TextColumn("asking {task.description}"),
        progress.TextColumn("{task.completed:.0f} answers"),
        progress.TimeElapsedColumn(),
        console=Console(file=stream),
        transient=True,
    )
    task = line.add_task(escape(server), total=None)
    start = threading.Timer(_PATIENCE_S, line.start)
    start.daemon = True
    start.start()
    try:
        yield lambda answers: line.update(task, completed=answers)
    finally:
        start.cancel()
        start.join()
        line.stop()


def _bar(text: LogText | RecordingFile, stream: TextIO) -> tuple[Progress, TaskID]:
    """Return a bar by the size of a file, packed or not, or a row counter for a pipe."""
    from rich import progress  # slow to import, and rarely needed
    from rich.console import Console
    from rich.markup import escape

    title, size_bytes = progress.TextColumn("reading {task.description}"), text.size_bytes
    columns: tuple[progress.ProgressColumn, ...] = (
        title,
        progress.BarColumn(),
        progress.TextColumn("{task.percentage:>3.0f} %"),
        progress.TimeRemainingColumn(),
    )
    if size_bytes is None:
        columns = (
            progress.SpinnerColumn(),
            title,
            progress.TextColumn("{task.fields[rows]:,} rows"),
            progress.TimeElapsedColumn(),
        )
    bar = progress.Progress(*columns, console=Console(file=stream), transient=True)
    name = escape(Path(text.name).name[-_NAME_LENGTH:])
    task = bar.add_task(name, total=size_bytes, rows=0)
    bar.start()
    return bar, task
