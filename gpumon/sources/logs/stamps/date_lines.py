"""Lines that say when a table was printed, as nvidia-smi, ``ctime`` and ``date`` write them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.sources.logs.stamps.date_shapes import MONTHS, time_of_parts
from gpumon.sources.logs.stamps.log_clock import UTC_CLOCK, LogClock
from gpumon.sources.logs.stamps.stamp_parsers import DateStamps, NumberStamps

_WORD: Final = re.compile(
    r"(?P<time>(?P<hour>\d{1,2}):(?P<minute>[0-5]\d):(?P<second>[0-5]\d|60)"
    r"(?:[.,](?P<fraction>\d{1,9}))?)"
    r"|(?P<year>(?:19|20)\d\d)"
    r"|(?P<day>[0-3]?\d)"
    r"|(?P<weekday>(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?)"
    rf"|(?P<name>{'|'.join(MONTHS)})(?P<rest>[a-z]*)"
    r"|(?P<half>[ap]m)"
    r"|(?P<zone>z|[+-](?:0\d|1[0-4]):?[0-5]\d|[a-z]{2,5})",
    re.I | re.A,
)
_MONTH_ENDS: Final = frozenset(
    ("", "uary", "ruary", "ch", "il", "e", "y", "ust", "t", "tember", "ober", "ember")
)
_NEEDED: Final = frozenset(["time", "year", "day", "name"])
_CLOCK_FACE: Final = re.compile(r"\d\d?:\d\d:\d\d", re.ASCII)
_EPOCH: Final = re.compile(r"1\d{9}(?:\.\d{1,9})?", re.ASCII)
_LONGEST: Final = 80
_MONTH: Final = "(?P<name>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}"
_DAY: Final = r"(?P<day>\d{1,2})"
_YEAR: Final = r"(?P<year>\d{4})"
_CLOCK: Final = r"(?P<hour>\d{1,2}):(?P<minute>\d\d):(?P<second>\d\d)(?: (?P<half>[AP]M))?"
_ZONE: Final = r"(?: [A-Z]{2,5}| [+-]\d{2,4})?"
_WEEKDAY: Final = r"\b[A-Z][a-z]{1,8},? +"
_FORMS: Final = (
    re.compile(rf"{_WEEKDAY}{_MONTH} +{_DAY} +{_CLOCK}{_ZONE} {_YEAR}\b"),
    re.compile(rf"{_WEEKDAY}{_DAY} +{_MONTH} +{_YEAR} +{_CLOCK}{_ZONE}(?!\S)"),
)


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

    Understood are nvidia-smi's and ``date``'s in English, ISO 8601, and seconds since 1970.

    >>> own, wordy = date_in("Sat Jan 24 21:52:14 2026"), date_in("Sat 24 Jan 2026 09:52:14 PM CET")
    >>> own.stamp_ns == wordy.stamp_ns == date_in("2026-01-24 21:52:14").stamp_ns
    True
    >>> own.form == wordy.form
    False
    """
    text = line.strip()
    if not text or len(text) > _LONGEST or not text[-1].isalnum():
        return None
    if text[0].isdigit():
        return _iso(text) or _epoch(text) or _worded(text)
    return _worded(text)


def looks_like_date(line: str) -> bool:
    """Whether a line has the time on it and might be a date in another language."""
    return len(line) <= _LONGEST and _CLOCK_FACE.search(line) is not None


def _iso(text: str) -> PrintedDate | None:
    stamps = DateStamps()
    stamp_ns = stamps.parse(text)
    return None if stamp_ns is None else PrintedDate(stamp_ns, "iso", stamps.clock)


def _epoch(text: str) -> PrintedDate | None:
    if _EPOCH.fullmatch(text) is None:
        return None
    stamp_ns = NumberStamps(NS_PER_S, UTC_CLOCK).parse(text)
    return None if stamp_ns is None else PrintedDate(stamp_ns, "epoch", UTC_CLOCK)


def _worded(text: str) -> PrintedDate | None:
    kinds: list[str] = []
    parts: dict[str, str | None] = {}
    for word in text.replace(",", " ").split():
        found = _WORD.fullmatch(word)
        if found is None or found.lastgroup is None:
            return None
        kind = "name" if found["name"] else found.lastgroup
        if kind in kinds or (kind == "name" and found["rest"].lower() not in _MONTH_ENDS):
            return None
        kinds.append(kind)
        parts |= {name: said for name, said in found.groupdict().items() if said is not None}
    written = time_of_parts(parts) if _NEEDED.issubset(kinds) else None
    if written is None:
        return None
    clock = LogClock(is_wall=True, utc_offset_s=written.zone_s)
    return PrintedDate(written.stamp_ns, " ".join(kinds), clock)


def find_ctime(text: str) -> int | None:
    """Nanoseconds since 1970 of the moment in a line, on the clock it was written by.

    >>> find_ctime("node7  Sun Nov 22 00:00:09 2026  580.95") == find_ctime(
    ...     "Sun 22 Nov 2026 12:00:09 AM UTC"
    ... )
    True
    >>> find_ctime("[0] NVIDIA A40 | 45'C") is None
    True
    """
    for form in _FORMS:
        found = form.search(text)
        if found is not None:
            written = time_of_parts(found.groupdict())
            return None if written is None else written.stamp_ns
    return None
