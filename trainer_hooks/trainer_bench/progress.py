"""Progress bars: on a terminal only, and never among the results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TextIO

Advance = Callable[[float], None]

Bar = Callable[[str, float], AbstractContextManager[Advance]]
"""A bar of that name for so many seconds; what it gives is called with those that have passed."""


def bar_for(stream: TextIO) -> Bar:
    """A bar where somebody looks at the stream."""
    return bar_on_stderr if stream.isatty() else no_bar


@contextmanager
def no_bar(name: str, seconds: float) -> Iterator[Advance]:
    """Shows nothing."""
    yield lambda passed: None


@contextmanager
def bar_on_stderr(name: str, seconds: float) -> Iterator[Advance]:
    """Gone when its run is over."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as shown:
        task = shown.add_task(name, total=seconds)
        yield lambda passed: shown.advance(task, passed)
