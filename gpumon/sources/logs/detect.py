"""Which format a log has: by its content, never by its file name."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Final

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.formats import formats
from gpumon.sources.logs.in_order import LogInOrder
from gpumon.sources.logs.log_format import line_like
from gpumon.sources.logs.log_sample import LogOptions, LogReader
from gpumon.sources.logs.unknown_json import refuse_json

LOOKED_AT_LINES: Final = 64
"""Lines of a log that a format is known by."""
_NOT_READ: Final = {
    "the XML of nvidia-smi -q -x": line_like(r"<nvidia_smi_log\b"),
}
"""Known by sight, so that the sentence can say what it is and what to log instead."""
_ADVICE: Final = (
    "log with `nvidia-smi --query-gpu=timestamp,index,utilization.gpu --format=csv -l 1` instead"
)


def reader_for(lines: Iterator[str], *, name: str, options: LogOptions) -> LogReader:
    """The reader that understands a log.

    Args:
        lines: The log's text; only its first lines are consumed here.
        name: What to call the log in sentences.
        options: What the user said about it.

    Raises:
        UnreadableLogError: A format that is known and not read, or JSON of a
            kind that nobody knows.
    """
    head = list(islice(lines, LOOKED_AT_LINES))
    if not head:
        raise UnreadableLogError(f"{name}: has no lines")
    for title, mark in _NOT_READ.items():
        number = mark(head)
        if number is not None:
            raise UnreadableLogError(
                f"{name}: line {number}: this is {title}, which gpumon does not read; {_ADVICE}"
            )
    known = next(known for known in formats() if known.mark(head) is not None)
    if known.is_last_resort:
        refuse_json(head, name=name)
    return LogInOrder(known.reader(chain(head, lines), name=name, options=options), name=name)
