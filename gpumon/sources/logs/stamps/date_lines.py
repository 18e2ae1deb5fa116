"""Lines that say when a table was printed, as nvidia-smi and ``date`` write them in English.

Moments as ``ctime`` and ``date`` write them, which tools for people print above their tables.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.sources.logs.stamps.date_shapes import MONTHS
from gpumon.sources.logs.stamps.stamps import DateStamps, LogClock, NumberStamps

_WORD: Final = re.compile(
    r"(?P<time>\d{1,2}:[0-5]\d:(?:[0-5]\d|60)(?:[.,]\d{1,9})?)"
    r"|(?P<year>(?:19|20)\d\d)"
    r"|(?P<day>[0-3]?\d)"
    r"|(?P<weekday>(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?)"
    rf"|(?P<month>{'|'.join(MONTHS)})(?P<rest>[a-z]*)"
    r"|(?P<half>[ap]m)"
    r"|(?P<zone>z|[+-](?:0\d|1[0-4]):?[0-5]\d|[a-z]{2,5})",
    re.I | re.A,
)
_MONTH_ENDS: Final = frozenset(
    ("", "uary", "ruary", "ch", "il", "e", "y", "ust", "t", "tember", "ober", "ember")
)
_NEEDED: Final = frozenset(["time", "year", "day", "month"])
_CLOCK_FACE: Final = re.compile(r"\d\d?:\d\d:\d\d", re.ASCII)
_EPOCH: Final = re.compile(r"1\d{9}(?:\.\d{1,9})?", re.ASCII)
_DAY_ZERO: Final = date(1970, 1, 1).toordinal()
_LONGEST: Final = 80


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
    clock = LogClock(is_wall=True, utc_offset_s=0)
    stamp_ns = NumberStamps(NS_PER_S, clock).parse(text)
    return None if stamp_ns is None else PrintedDate(stamp_ns, "epoch", clock)


def _worded(text: str) -> PrintedDate | None:
    words: dict[str, str] = {}
    for word in text.replace(",", " ").split():
        found = _WORD.fullmatch(word)
        if found is None or found.lastgroup is None:
            return None
        kind = "month" if found["month"] else found.lastgroup
        if kind in words or (kind == "month" and found["rest"].lower() not in _MONTH_ENDS):
            return None
        words[kind] = found["month"] or word
    if not words.keys() >= _NEEDED:
        return None
    stamp_ns = _nanoseconds(words)
    if stamp_ns is None:
        return None
    offset_s = _offset_s(words.get("zone", ""))
    utc_ns = stamp_ns - (offset_s or 0) * NS_PER_S
    return PrintedDate(utc_ns, " ".join(words), LogClock(is_wall=True, utc_offset_s=offset_s))


def _nanoseconds(words: dict[str, str]) -> int | None:
    hour, minute, second = words["time"].replace(",", ".").split(":")
    hours = int(hour)
    if "half" in words:
        if not 1 <= hours <= 12:
            return None
        hours = hours % 12 + (12 if words["half"].lower() == "pm" else 0)
    try:
        day = date(int(words["year"]), MONTHS.index(words["month"].lower()) + 1, int(words["day"]))
    except ValueError:
        return None
    if hours > 23:
        return None
    whole, _, fraction = second.partition(".")
    seconds = ((day.toordinal() - _DAY_ZERO) * 24 + hours) * 3_600 + int(minute) * 60 + int(whole)
    return seconds * NS_PER_S + int(fraction.ljust(9, "0"))


def _offset_s(zone: str) -> int | None:
    """Seconds east of UTC; ``None``: letters that do not tell it, such as CET.

    >>> _offset_s("UTC"), _offset_s("-0330"), _offset_s("CET")
    (0, -12600, None)
    """
    if zone.upper() in ("UTC", "GMT", "Z"):
        return 0
    if zone[:1] not in ("+", "-"):
        return None
    east_s = int(zone[1:3]) * 3_600 + int(zone[-2:]) * 60
    return -east_s if zone[0] == "-" else east_s


_MONTH: Final = "(?P<month>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}"
_DAY: Final = r"(?P<day>\d{1,2})"
_YEAR: Final = r"(?P<year>\d{4})"
_CLOCK: Final = r"(?P<hour>\d{1,2}):(?P<minute>\d\d):(?P<second>\d\d)(?: (?P<half>[AP]M))?"
_ZONE: Final = r"(?: [A-Z]{2,5}| [+-]\d{2,4})?"
_WEEKDAY: Final = r"\b[A-Z][a-z]{1,8},? +"
_FORMS: Final = (
    re.compile(rf"{_WEEKDAY}{_MONTH} +{_DAY} +{_CLOCK}{_ZONE} {_YEAR}\b"),
    re.compile(rf"{_WEEKDAY}{_DAY} +{_MONTH} +{_YEAR} +{_CLOCK}{_ZONE}(?!\S)"),
)
CLOCK: Final = LogClock(is_wall=True)
"""Local time: a zone's letters do not tell its distance from UTC."""


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
            return _ctime_ns(found)
    return None


def _ctime_ns(found: re.Match[str]) -> int | None:
    hour, minute, second = (int(found[name]) for name in ("hour", "minute", "second"))
    if found["half"]:
        hour = hour % 12 + (12 if found["half"] == "PM" else 0)
    if hour > 23 or minute > 59 or second > 60:
        return None
    try:
        day = date(int(found["year"]), MONTHS.index(found["month"].lower()) + 1, int(found["day"]))
    except ValueError:
        return None
    days = day.toordinal() - _DAY_ZERO
    return (((days * 24 + hour) * 60 + minute) * 60 + second) * NS_PER_S
