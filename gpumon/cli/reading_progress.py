"""A progress bar for reading that takes more than a second."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, TextIO, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from gpumon.sources.logs.log_text import LogText
    from gpumon.sources.recording import RecordingFile

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
