"""Progress bars: on a terminal only, and never among the results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TextIO

Advance = Callable[[float], None]


class Progress(Protocol):
    """Shows how far a run is."""

    def bar(self, name: str, seconds: float) -> AbstractContextManager[Advance]:
        """A bar for so many seconds; what it gives is called with those that have passed."""


class NoProgress:
    """Shows nothing."""

    @contextmanager
    def bar(self, name: str, seconds: float) -> Iterator[Advance]:
        yield lambda passed: None


class BarsOnTerminal:
    """A bar on stderr, gone when its run is over."""

    @contextmanager
    def bar(self, name: str, seconds: float) -> Iterator[Advance]:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
        with Progress(*columns, console=Console(file=sys.stderr), transient=True) as shown:
            task = shown.add_task(name, total=seconds)
            yield lambda passed: shown.advance(task, passed)


def progress_for(stream: TextIO) -> Progress:
    """Bars where somebody looks at the stream."""
    return BarsOnTerminal() if stream.isatty() else NoProgress()
