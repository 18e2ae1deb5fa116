"""What stands before each line of a log that another program passed on: a time, a name, a level."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
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
_MOST_TRIES: Final = 40
"""So often the lines are held against every format: a log that hides deeper is not found."""
_MOST_SIGNS: Final = 1 << 15
_FEWEST_LINES: Final = 8


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


def prefixes_of(head: Sequence[str], telling_line: Mark, *, name: str) -> tuple[LinePrefix, ...]:
    """What stands before each line, the outermost first; empty where nothing does.

    Only what hides a log is taken for a prefix: without it a format knows the
    lines, by one of those that had it.

    Raises:
        UnreadableLogError: The logs of several writers are mixed; says whose.
    """
    return _Search(telling_line, name).layers(_beginning_of(head), _MOST_LAYERS)


def _beginning_of(head: Sequence[str]) -> Sequence[str]:
    """The first lines, of so many characters as are looked at again and again."""
    signs = accumulate(map(len, head))
    count = sum(1 for until in signs if until <= _MOST_SIGNS)
    return head[: max(count, _FEWEST_LINES)]


class _Search:
    """Tries what may stand before the lines of one log, only so often: each takes its time."""

    def __init__(self, telling_line: Mark, name: str) -> None:
        self._telling_line = telling_line
        self._name = name
        self._tries_left = _MOST_TRIES

    def layers(self, head: Sequence[str], most: int) -> tuple[LinePrefix, ...]:
        """The prefixes of a log, the outermost first, at most so many."""
        for shape in _shapes_of(head):
            known = list(islice(self._of_shape(shape, head, most), 2))
            if len(known) > 1:
                raise self._mixed(known)
            if known:
                return known[0]
        return ()

    def _of_shape(
        self, shape: re.Pattern[str], head: Sequence[str], most: int
    ) -> Iterator[tuple[LinePrefix, ...]]:
        """What each writer's lines are without their prefixes, where a format knows them then."""
        writers = _writers(shape, head)
        if len(writers) > 1 and not self._hides_a_log(shape, head, most):
            return
        is_known = False
        for who in writers:
            shown = self._shown(LinePrefix(shape, who, ""), head)
            if shown is not None:
                is_known = True
                yield (LinePrefix(shape, who, shown),)
        if is_known or most <= 1:
            return
        for who in writers:
            bare = list(LinePrefix(shape, who, "").without(iter(head)))
            inner = self.layers(bare, most - 1)
            if inner:
                first = next(found[0] for line in head if (found := shape.match(line)))
                yield (LinePrefix(shape, who, first.strip()), *inner)

    def _hides_a_log(self, shape: re.Pattern[str], head: Sequence[str], most: int) -> bool:
        """Whether a format knows the lines without any prefix: else it knows nobody's."""
        every = LinePrefix(shape, None, "")
        if self._shown(every, head) is not None:
            return True
        bare = list(every.without(iter(head)))
        return most > 1 and any(self._hides_a_log(one, bare, most - 1) for one in _shapes_of(bare))

    def _shown(self, prefix: LinePrefix, head: Sequence[str]) -> str | None:
        """The prefix of the line that gives a log away without it; ``None``: none does."""
        if not self._tries_left:
            return None
        self._tries_left -= 1
        bare = list(prefix.without(iter(head)))
        number = self._telling_line(bare)
        if number is None or len(bare[number - 1]) >= len(head[number - 1]):
            return None
        return head[number - 1][: len(head[number - 1]) - len(bare[number - 1])].strip()

    def _mixed(self, known: Sequence[tuple[LinePrefix, ...]]) -> UnreadableLogError:
        one, other = (layers[0].who for layers in known)
        return UnreadableLogError(
            f"{self._name}: the lines of several logs are mixed, such as {one} and {other}; keep "
            f"those of one of them, as with `grep -F '{one}'`"
        )


def _shapes_of(head: Sequence[str]) -> Iterator[re.Pattern[str]]:
    filled = [line for line in head if line.strip()]
    for shape in _SHAPES:
        found = sum(shape.match(line) is not None for line in filled)
        if found and found >= _MIN_SHARE * len(filled):
            yield shape


def _writers(shape: re.Pattern[str], head: Sequence[str]) -> list[str | None]:
    if "who" not in shape.groupindex:
        return [None]
    names = list(dict.fromkeys(found["who"] for line in head if (found := shape.match(line))))
    return names if len(names) <= _MOST_WRITERS else []
