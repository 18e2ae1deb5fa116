"""What ``gpumon why`` shows on standard error while it watches."""

from __future__ import annotations

from typing import Final, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

from gpumon.core.clock import NS_PER_S, nanoseconds, seconds
from gpumon.core.wording import counted, in_percent, in_time, label_text
from gpumon.pipeline.stack_watch import Progress as Watched
from gpumon.pipeline.stack_watch import Target

_SHOWN_EVERY_NS: Final = NS_PER_S
_LINE_EVERY_NS: Final = 30 * NS_PER_S


class WhyProgress:
    """A line that says what is watched, then a bar on a terminal, or a line now and then."""

    def __init__(self, stream: TextIO, target: Target, name: str, length_s: float) -> None:
        self._stream = stream
        self._shown_ns: int | None = None
        self._is_terminal = stream.isatty()
        self._first = (
            f"gpumon: watching GPU {target.label} and process {target.pid} "
            f"({label_text(name)}) for {in_time(nanoseconds(length_s))}; Ctrl-C ends it"
        )
        self._note = target.note
        columns: tuple[ProgressColumn, ...] = (
            TextColumn("{task.description}", markup=False),
            BarColumn(10),
            TimeRemainingColumn(compact=True),
        )
        self._progress = Progress(
            *columns,
            console=Console(file=stream),
            auto_refresh=False,
            transient=True,
            disable=not self._is_terminal,
        )
        self._task = self._progress.add_task("watching", total=length_s)

    def __enter__(self) -> WhyProgress:
        for line in filter(None, (self._first, self._note and f"gpumon: {self._note}")):
            print(line, file=self._stream, flush=True)
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(self, watched: Watched) -> None:
        """Show how far it is, at most once a second."""
        every_ns = _SHOWN_EVERY_NS if self._is_terminal else _LINE_EVERY_NS
        if self._shown_ns is None:
            self._shown_ns = 0 if self._is_terminal else watched.passed_ns
        elif watched.passed_ns - self._shown_ns < every_ns:
            return
        self._shown_ns = watched.passed_ns
        idle = watched.idle_ns / watched.observed_ns if watched.observed_ns else None
        words = (
            f"idle {in_percent(idle)} of the time so far; "
            f"{counted(watched.idle_samples, 'stack sample', 'stack samples')} of it"
        )
        if watched.observed_ns == 0:
            words = "waiting for samples of the GPU"
        if self._is_terminal:
            self._progress.update(
                self._task, completed=seconds(watched.passed_ns), description=words, refresh=True
            )
        elif watched.passed_ns >= _LINE_EVERY_NS:
            print(f"gpumon: {words}", file=self._stream, flush=True)
