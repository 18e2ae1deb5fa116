"""A followed file that another one replaces: read on only where the same reader can use it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.core.wording import label_text
from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.detect import reader_for
from gpumon.sources.logs.log_sample import LogOptions
from gpumon.sources.logs.log_text import LogText

_LOOKED_AT_LINES: Final = 20
"""Where so many first lines of a new file are of no use, the rest of it is of none either."""
_HEAD_LINES: Final = 64
"""So many lines tell how the first file is to be read."""


def readable_lines(text: LogText, options: LogOptions) -> Iterator[str]:
    """The lines of a log; of a new file in its place none more, once its first ones are of no use.

    ``text.damage`` then says so.
    """
    head: list[str] = []
    first: list[str] = []
    files = 0
    for line in text.available_lines():
        if text.new_files != files:
            files, first = text.new_files, []
        if not files and len(head) < _HEAD_LINES:
            head.append(line)
        if files and len(first) < _LOOKED_AT_LINES:
            first.append(line)
            if len(first) == _LOOKED_AT_LINES and _are_of_no_use(first, head, options):
                break
        yield line
    if first and text.damage is None and _are_of_no_use(first, head, options):
        text.damage = UnreadableLogError(
            f"{text.name}: was replaced by a file that the reader of the first one cannot use (it "
            f"begins with {label_text(first[0].strip(), 60)!r}): analyze the new file by itself"
        )


def _are_of_no_use(first: Sequence[str], head: Sequence[str], options: LogOptions) -> bool:
    """Whether a reader that has seen the head of the old file uses none of these lines."""
    try:
        before, after = (_skipped([*head, *lines], options) for lines in ((), first))
    except UnreadableLogError:
        return False  # the reader says itself what is wrong
    return after - before >= len(first)


def _skipped(lines: Sequence[str], options: LogOptions) -> int:
    reader = reader_for(iter(lines), name="", options=options)
    for _ in reader.blocks():
        pass
    return reader.facts().skipped_lines
