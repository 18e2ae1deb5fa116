"""What stands before each line of a log that another program passed on: a time, a name, a level."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gpumon.errors import UnreadableLogError

_DAY: Final = r"\d{4}[-/]\d\d[-/]\d\d"
_CLOCK: Final = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_ZONE: Final = r"(?:Z|[+-]\d\d:?\d\d)"
_EXACT: Final = rf"{_DAY}T{_CLOCK}{_ZONE}"
_MOMENT: Final = rf"{_DAY}[ T]{_CLOCK}{_ZONE}?"
_SYSLOG: Final = rf"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d {_CLOCK}"
_LEVEL: Final = r"\[?(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL)\]?"
_NAME: Final = r"[\w.:@/-]{1,120}"
_PROGRAM: Final = r"[^\s:\[\]]{1,80}(?:\[\d{1,10}\])?:"
_LOGGING: Final = rf"\[?{_MOMENT}\]?[ :|,-]+(?P<who>(?:{_NAME}[ :|-]+)?){_LEVEL}"
_SHAPES: Final = (
    # Python's logging as it is before anybody sets it up
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
            r"[\[(](?P<who>[\w.:@/= -]{1,120})[\])]:?",  # kubectl logs --prefix, Ray, torchrun
            rf"(?P<who>{_NAME}) *\|",  # docker compose
            r"(?P<who>[\w.-]{1,80}):",  # srun --label, pdsh
        )
    ),
)
_MIN_SHARE: Final = 0.8
"""Share of the lines that have to begin alike."""
_MOST_LAYERS: Final = 2
"""A pod's name may stand before a time."""
_MOST_WRITERS: Final = 32
"""So many names are none: a time or a number stands there, another before each line."""

TellingLine = Callable[[Sequence[str]], "int | None"]
"""Number, from 1, of the line that gives a log away; ``None``: it is none."""


@dataclass(frozen=True, slots=True)
class LinePrefix:
    """What is taken from the beginning of each line.

    Attributes:
        shape: What it looks like.
        who: The writer whose lines are meant; ``None``: it names none.
        shown: How it stands before the line that gave the log away.
    """

    shape: re.Pattern[str]
    who: str | None
    shown: str

    @property
    def note(self) -> str:
        """What the report has to say of it."""
        return f'Passed over what stands before each line, such as "{self.shown}".'

    def without(self, lines: Iterator[str]) -> Iterator[str]:
        """The lines, or pieces of lines, without it; those that do not have it as they are."""
        at_line_start = True
        for piece in lines:
            found = self.shape.match(piece) if at_line_start else None
            at_line_start = piece.endswith("\n")
            is_meant = found is not None and (self.who is None or found["who"] == self.who)
            yield piece[found.end() :] if found is not None and is_meant else piece


def prefixes_of(
    head: Sequence[str], telling_line: TellingLine, *, name: str
) -> tuple[LinePrefix, ...]:
    """What stands before each line, the outermost first; empty where nothing does.

    Only what hides a log is taken for a prefix: without it a format knows the
    lines, by one of those that had it.

    Args:
        head: The first lines of the log.
        telling_line: Finds the line by which a format knows a log.
        name: What to call the log in sentences.

    Raises:
        UnreadableLogError: The logs of several writers are mixed; says whose.
    """
    return _layers(head, telling_line, name, _MOST_LAYERS)


def _layers(
    head: Sequence[str], telling_line: TellingLine, name: str, most: int
) -> tuple[LinePrefix, ...]:
    filled = [line for line in head if line.strip()]
    for shape in _SHAPES:
        found = list(filter(None, map(shape.match, filled)))
        if not found or len(found) < _MIN_SHARE * len(filled):
            continue
        known = [
            layers
            for who in _writers(shape, found)
            if (layers := _of_writer(shape, who, head, telling_line, name, most))
        ]
        if len(known) > 1:
            one, other = (layers[0].who for layers in known[:2])
            raise UnreadableLogError(
                f"{name}: the lines of several logs are mixed, such as {one} and {other}; keep "
                f"those of one of them, as with `grep -F '{one}'`"
            )
        if known:
            return known[0]
    return ()


def _of_writer(
    shape: re.Pattern[str],
    who: str | None,
    head: Sequence[str],
    telling_line: TellingLine,
    name: str,
    most: int,
) -> tuple[LinePrefix, ...]:
    prefix = LinePrefix(shape, who, "")
    bare = list(prefix.without(iter(head)))
    number = telling_line(bare)
    if number is not None and len(bare[number - 1]) < len(head[number - 1]):
        shown = head[number - 1][: len(head[number - 1]) - len(bare[number - 1])]
        return (LinePrefix(shape, who, shown.strip()),)
    inner = _layers(bare, telling_line, name, most - 1) if most > 1 else ()
    if not inner:
        return ()
    first = next(found[0] for line in head if (found := shape.match(line)))
    return (LinePrefix(shape, who, first.strip()), *inner)


def _writers(shape: re.Pattern[str], found: Sequence[re.Match[str]]) -> list[str | None]:
    if "who" not in shape.groupindex:
        return [None]
    names = list(dict.fromkeys(one["who"] for one in found))
    return names if len(names) <= _MOST_WRITERS else []
