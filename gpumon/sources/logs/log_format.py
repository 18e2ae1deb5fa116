"""What a format of logs is: how to know one by sight, and who reads it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from gpumon.sources.logs.column_names import Column
from gpumon.sources.logs.log_sample import LogReader


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFormat:
    """A format gpumon knows by its content, whatever the file is called.

    Attributes:
        title: What to call it in sentences.
        mark: Number, from 1, of the first line that gives it away, among the
            first lines of a log; ``None``: the log is no such one.
        reader: Makes the reader: ``reader(lines, name=..., options=...)``,
            with every line of the log, the first ones included. It raises
            ``UnreadableLogError`` or ``UsageError`` as ``LogReader.samples``
            does.
        settable: The columns that a user may name by ``LogOptions.columns``.
        is_last_resort: Tried only where no other format knows the log.
    """

    title: str
    mark: Callable[[Sequence[str]], int | None]
    reader: Callable[..., LogReader]
    settable: Collection[Column] = ()
    is_last_resort: bool = False


def line_like(pattern: str) -> Callable[[Sequence[str]], int | None]:
    """A mark: the first line in which ``pattern`` is found.

    >>> line_like("^# gpu")(["", "# gpu  pwr", "    0   43"])
    2
    """
    sought = re.compile(pattern)

    def mark(head: Sequence[str]) -> int | None:
        for number, line in enumerate(head, start=1):
            if sought.search(line):
                return number
        return None

    return mark
