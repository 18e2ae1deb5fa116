"""What ``gpumon why`` shows on standard error while it watches."""

from __future__ import annotations

from typing import Final, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

from gpumon.core.clock import NS_PER_S, nanoseconds, seconds
from gpumon.core.stacks.frame_text import where_text
from gpumon.core.wording import counted, in_percent, in_time, label_text
from gpumon.pipeline.stack_watch import Progress as Watched
from gpumon.pipeline.stack_watch import Target

_SHOWN_EVERY_NS: Final = NS_PER_S
_FIRST_LINE_NS: Final = 10 * NS_PER_S
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
        """Show how far it is: on a terminal each second, else after 10 s and then each 30 s."""
        every_ns = _SHOWN_EVERY_NS if self._is_terminal else _LINE_EVERY_NS
        if self._shown_ns is None:
            self._shown_ns = 0 if self._is_terminal else _FIRST_LINE_NS - every_ns
        if watched.passed_ns - self._shown_ns < every_ns:
            return
        self._shown_ns = watched.passed_ns
        words = _so_far(watched)
        if self._is_terminal:
            self._progress.update(
                self._task, completed=seconds(watched.passed_ns), description=words, refresh=True
            )
        else:
            print(f"gpumon: {words}", file=self._stream, flush=True)


def _so_far(watched: Watched) -> str:
    """The idle time, and the line of most of its stack samples."""
    if watched.observed_ns == 0:
        return "waiting for samples of the GPU"
    idle = in_percent(watched.idle_ns / watched.observed_ns)
    samples = counted(watched.idle_samples, "stack sample", "stack samples")
    if watched.place is None or watched.place.caller is None:
        return f"idle {idle} of the time so far; {samples} of it"
    line = where_text(watched.place.caller)
    return f"idle {idle} of the time so far; {watched.place.samples} of {samples} at {line}"
