"""Moments as ``ctime`` and ``date`` write them, which tools for people print above their tables."""

from __future__ import annotations

import re
from datetime import date
from typing import Final

from gpumon.core.units import NS_PER_S
from gpumon.sources.logs.date_shapes import MONTHS
from gpumon.sources.logs.stamps import LogClock

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
_DAY_ZERO: Final = date(1970, 1, 1).toordinal()
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
            return _nanoseconds(found)
    return None


def _nanoseconds(found: re.Match[str]) -> int | None:
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
