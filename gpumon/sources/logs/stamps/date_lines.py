"""Lines that say when a table was printed, as nvidia-smi, ``ctime`` and ``date`` write them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gpumon.sources.logs.stamps.date_words import spaced, time_of_words
from gpumon.sources.logs.stamps.log_clock import LogClock
from gpumon.sources.logs.stamps.stamp_parsers import (
    FIRST_EPOCH_NS,
    LAST_EPOCH_NS,
    NumberStamps,
    parser_for,
)

_CLOCK_FACE: Final = re.compile(r"\d\d?:\d\d:\d\d", re.ASCII)
_LONGEST: Final = 80
_MOST_WORDS: Final = 64
_MOST_SIGNS: Final = 1_000


@dataclass(frozen=True, slots=True)
class PrintedDate:
    """When a line says it was printed.

    Attributes:
        stamp_ns: Since 1970, in the line's own zone where ``clock`` has none.
        form: How it was written: two lines of one program have the same.
        clock: What the stamp means.
    """

    stamp_ns: int
    form: str
    clock: LogClock


def date_in(line: str) -> PrintedDate | None:
    """The moment a line consists of; ``None``: it is no date, or none that is understood.

    Understood is what a column of stamps may hold, with a year and without a doubt.

    >>> own, wordy = date_in("Sat Jan 24 21:52:14 2026"), date_in("Sat 24 Jan 2026 09:52:14 PM CET")
    >>> own.stamp_ns == wordy.stamp_ns == date_in("sam. 24 janv. 2026 21:52:14").stamp_ns
    True
    >>> own.form == wordy.form
    False
    """
    text = line.strip()
    if not text or len(text) > _LONGEST:
        return None
    parser = parser_for(text)
    if parser is None or parser.note or not parser.clock.is_wall:
        return None
    stamp_ns = parser.parse(text)
    if stamp_ns is None:
        return None
    if isinstance(parser, NumberStamps) and not FIRST_EPOCH_NS <= stamp_ns < LAST_EPOCH_NS:
        return None  # a program may print any number
    return PrintedDate(stamp_ns, parser.form, parser.clock)


def looks_like_date(line: str) -> bool:
    """Whether a line has the time on it and might be a date in another language."""
    return len(line) <= _LONGEST and _CLOCK_FACE.search(line) is not None


def find_ctime(text: str) -> int | None:
    """Nanoseconds since 1970 of the moment in a line, on the clock it was written by.

    >>> find_ctime("node7  Sun Nov 22 00:00:09 2026  580.95") == find_ctime(
    ...     "Sun 22 Nov 2026 12:00:09 AM UTC"
    ... )
    True
    >>> find_ctime("[0] NVIDIA A40 | 45'C") is None
    True
    """
    words = spaced(text[:_MOST_SIGNS])
    if _CLOCK_FACE.search(words) is None:
        return None
    found = time_of_words(words.split()[:_MOST_WORDS], is_all=False)
    return found[0].stamp_ns if found is not None and found[0].has_year else None
