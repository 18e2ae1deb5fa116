"""Prefixes that another program put before each line: a time, a name, a level."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.log_sample import Mark

_DAY: Final = r"\d{4}[-/]\d\d[-/]\d\d"
_CLOCK: Final = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_ZONE: Final = r"(?:Z|[+-]\d\d:?\d\d)"
_EXACT: Final = rf"{_DAY}T{_CLOCK}{_ZONE}"
_MOMENT: Final = rf"{_DAY}[ T]{_CLOCK}{_ZONE}?"
_SYSLOG: Final = rf"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d {_CLOCK}"
_LEVEL: Final = r"\[?(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL)\]?"
_NAME: Final = r"[\w.:@/-]{1,120}"
_PROGRAM: Final = r"[^\s:\[\]]{1,80}(?:\[\d{1,10}\])?:"
_LOGGING: Final = rf"\[?{_MOMENT}\]?[ :|,-]{{1,8}}(?P<who>(?:{_NAME}[ :|-]{{1,40}})?){_LEVEL}"
_QUOTE: Final = re.compile(r"\s{0,3}(?:> ?)+")
_ESCAPED: Final = re.compile(r"\\([\\#|_*<>\[\]()-])")
"""Signs that Markdown escapes."""
_SHAPES: Final = (
    _QUOTE,
    # Python's logging without any setup
    re.compile(rf"{_LEVEL}:(?P<who>[\w.]{{1,80}}):", re.ASCII),
    *(
        re.compile(rf"\s{{0,40}}{shape}(?: |(?=\s{{0,40}}$))", re.ASCII)
        for shape in (
            rf"{_EXACT} std(?:out|err) [FP]",  # containerd's files
            rf"{_EXACT} (?P<who>{_NAME} {_PROGRAM})",  # journalctl -o short-iso
            rf"{_SYSLOG} (?P<who>{_NAME} {_PROGRAM})",  # syslog and journalctl
            rf"{_LOGGING}[ ]?[:|-]",  # Python's logging, in many of its forms
            _LOGGING,
            rf"\[?{_MOMENT}\]?",  # kubectl logs --timestamps, docker logs -t
            _SYSLOG,  # ts
            rf"\[(?P<who>{_NAME})\] {_EXACT}",  # kubectl logs --prefix --timestamps
            r"[\[(](?P<who>[\w.:@/= -]{1,120})[\])]:?",  # kubectl logs --prefix, Ray, torchrun
            rf"(?P<who>{_NAME}) *\|",  # docker compose
            r"(?P<who>[\w.-]{1,80}):",  # srun --label, pdsh
        )
    ),
)
_MIN_SHARE: Final = 0.8
"""Share of the lines that must begin alike."""


@dataclass(frozen=True, slots=True)
class LinePrefix:
    """What is removed from the start of each line.

    Attributes:
        who: The writer whose lines are read; ``None``: there are no names.
    """

    shape: re.Pattern[str]
    who: str | None
    shown: str

    @property
    def note(self) -> str:
        """A note for the report."""
        return f'Ignored the prefix of each line, such as "{self.shown}".'

    def without(self, lines: Iterator[str]) -> Iterator[str]:
        """Yield the lines, or pieces of lines, without it; others stay as they are."""
        at_line_start = True
        for piece in lines:
            found = self.shape.match(piece) if at_line_start else None
            at_line_start = piece.endswith("\n")
            is_wanted = found is not None and (self.who is None or found["who"] == self.who)
            bare = piece[found.end() :] if found is not None and is_wanted else piece
            yield _ESCAPED.sub(r"\1", bare) if self.shape is _QUOTE else bare


def prefix_of(head: Sequence[str], format_line: Mark, *, name: str) -> LinePrefix | None:
    """Return the prefix of each line; ``None``: there is none.

    It counts as a prefix only if a format recognises the lines without it.

    Raises:
        UnreadableLogError: The logs of several writers are mixed.
    """
    for shape in _shapes_of(head):
        number = format_line(list(LinePrefix(shape, None, "").without(iter(head))))
        began = shape.match(head[number - 1]) if number is not None else None
        if began is None:
            continue
        who = began["who"] if "who" in shape.groupindex else None
        if who is not None:
            _refuse_mixed(head, shape, who, format_line, name)
        return LinePrefix(shape, who, began[0].strip())
    return None


def _refuse_mixed(
    head: Sequence[str], shape: re.Pattern[str], who: str, format_line: Mark, name: str
) -> None:
    """Refuse a log in which another writer than ``who`` logs GPUs, too."""
    matches = [(found, line) for line in head if (found := shape.match(line))]
    others = [(found["who"], line[found.end() :]) for found, line in matches if found["who"] != who]
    number = format_line([line for _, line in others])
    if number is not None:
        raise UnreadableLogError(
            f"{name}: the lines of several logs are mixed, such as {who} and "
            f"{others[number - 1][0]}; keep those of one of them, as with `grep -F '{who}'`"
        )


def _shapes_of(head: Sequence[str]) -> Iterator[re.Pattern[str]]:
    filled = [line for line in head if line.strip()]
    for shape in _SHAPES:
        found = sum(shape.match(line) is not None for line in filled)
        if found and found >= _MIN_SHARE * len(filled):
            yield shape
