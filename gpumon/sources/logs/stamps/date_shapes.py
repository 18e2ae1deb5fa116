"""The many ways in which people write a date in numbers or a time of day, and how to tell them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Final

from gpumon.core.clock import NS_PER_S

_TIME: Final = (
    r"(?P<hour>\d{1,2}):(?P<minute>\d\d?)(?::(?P<second>\d\d?)(?:[.,](?P<fraction>\d{1,9})\d*)?)?"
    r"(?:[ ]?(?P<half>[ap])\.?m\.?)?"
)
_ZONE: Final = r"(?:[ ]?(?P<zone>z|utc|gmt|[+-]\d\d:?\d\d)|[ ][a-z]{3,4})?"
_DAY_ZERO: Final = date(1970, 1, 1).toordinal()
_LEAP_YEAR: Final = 2000
DAY_NS: Final = 86_400 * NS_PER_S


class DateOrder(Enum):
    """What the first two numbers of a date are."""

    DAY_FIRST = "day/month"
    MONTH_FIRST = "month/day"


def _shape(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.I | re.A)


_YEAR: Final = r"(?P<year>\d{4})"
_DAY: Final = r"(?P<day>\d\d?)"
_NUMBERS: Final = r"(?P<one>\d\d?)(?P<mark>[-/.])(?P<two>\d\d?)(?P=mark)(?P<year>\d{4}|\d\d)"
_COMPACT_DAY: Final = r"(?P<year>20\d\d)(?P<month>\d\d)(?P<day>\d\d)"
_COMPACT_TIME: Final = r"(?P<hour>\d\d)(?P<minute>\d\d)(?P<second>\d\d)"
DATED_SHAPES: Final = (
    _shape(rf"{_YEAR}(?P<mark>[-/.])(?P<month>\d\d?)(?P=mark){_DAY}[ T]+{_TIME}{_ZONE}"),
    _shape(rf"{_NUMBERS}[ T,]+{_TIME}{_ZONE}"),
    _shape(rf"(?P<one>\d\d?)(?P<mark>[-/.])(?P<two>\d\d?)\.?[ ]+{_TIME}"),
    _shape(rf"{_COMPACT_DAY}[-_T ]?{_COMPACT_TIME}(?:[.,](?P<fraction>\d{{1,9}}))?(?P<zone>z)?"),
    _shape(rf"{_COMPACT_DAY}[-_T ]{_TIME}{_ZONE}"),
)
TIME_SHAPE: Final = _shape(
    rf"(?:(?P<days>\d{{1,4}})[ ]days?,?[ ]*)?{_TIME.replace('{1,2}', '{1,4}', 1)}"
)


@dataclass(frozen=True, slots=True)
class WrittenTime:
    """A moment as it was written.

    Attributes:
        day: Days since 1970-01-01; in a year of their own where none is written.
        clock_ns: Nanoseconds since midnight.
        zone_s: Seconds east of UTC; ``None``: no zone that says how many.
        has_year: Whether the year was written.
    """

    day: int
    clock_ns: int
    zone_s: int | None
    has_year: bool

    @property
    def stamp_ns(self) -> int:
        """Nanoseconds since 1970, in UTC where the zone is known."""
        return self.day * DAY_NS + self.clock_ns - (self.zone_s or 0) * NS_PER_S


def written_time(
    text: str, shape: re.Pattern[str], order: DateOrder = DateOrder.DAY_FIRST
) -> WrittenTime | None:
    """A date with its time in one of ``DATED_SHAPES``; ``None``: no such moment."""
    found = shape.fullmatch(text)
    return None if found is None else time_of_parts(found.groupdict(), order)


def time_of_parts(
    parts: Mapping[str, str | None], order: DateOrder = DateOrder.DAY_FIRST
) -> WrittenTime | None:
    """The moment of parts named as the groups of ``DATED_SHAPES``; ``None``: there is none."""
    clock_ns = clock_of(parts)
    if clock_ns is None:
        return None
    year, day, month = parts.get("year"), parts.get("day"), parts.get("month")
    one, two = parts.get("one"), parts.get("two")
    if one:
        day_first = order is DateOrder.DAY_FIRST or parts["mark"] == "."
        day, month = (one, two) if day_first else (two, one)
        year = f"20{year}" if year and len(year) == 2 else year
    days = day_number(int(year or _LEAP_YEAR), int(month or 0), int(day or 0))
    if days is None:
        return None
    return WrittenTime(days, clock_ns, zone_seconds(parts.get("zone")), bool(year))


def day_number(year: int, month: int, day: int) -> int | None:
    """Days since 1970-01-01; ``None``: no calendar has that day."""
    try:
        return date(year, month, day).toordinal() - _DAY_ZERO
    except ValueError:
        return None


def clock_of(parts: Mapping[str, str | None]) -> int | None:
    """Nanoseconds of ``hour``, ``minute``, ``second``, ``fraction`` and ``half``; ``None``: none.

    >>> clock_of({"hour": "12", "minute": "30", "second": None, "half": "a"})
    1800000000000
    """
    hour, minute, second = (int(parts[name] or 0) for name in ("hour", "minute", "second"))
    half = parts.get("half")
    if half:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half[0] in "pP" else 0)
    if minute > 59 or second > 60 or (hour > 23 and "days" not in parts):
        return None
    whole_ns = ((hour * 60 + minute) * 60 + second) * NS_PER_S
    return whole_ns + int((parts.get("fraction") or "").ljust(9, "0"))


def order_of(texts: Iterable[str], shape: re.Pattern[str]) -> DateOrder | None:
    """Whether days or months come first, where a number above 12 shows it."""
    for text in texts:
        found = shape.fullmatch(text)
        if found is None or "one" not in found.groupdict():
            continue
        if int(found["one"]) > 12 or found["mark"] == ".":
            return DateOrder.DAY_FIRST
        if int(found["two"]) > 12:
            return DateOrder.MONTH_FIRST
    return None


def zone_seconds(zone: str | None) -> int | None:
    """Seconds east of UTC; ``None``: no zone, or letters that do not tell it, such as CET.

    >>> zone_seconds("Z"), zone_seconds("-03:30"), zone_seconds("CET")
    (0, -12600, None)
    """
    if not zone:
        return None
    if zone[0] not in "+-":
        return 0 if zone.upper() in ("UTC", "GMT", "Z") else None
    sign = -1 if zone[0] == "-" else 1
    return sign * (min(int(zone[1:3]), 23) * 60 + min(int(zone[-2:]), 59)) * 60
