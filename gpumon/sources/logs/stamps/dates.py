"""Dates in numbers, or in words of many languages, and times of day."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import Enum
from functools import lru_cache
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
    """The order of the first two numbers of a date."""

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
    """A time as it was written.

    Attributes:
        day: Days since 1970-01-01; in a fixed year if none is written.
        zone_s: Seconds east of UTC; ``None``: unknown.
    """

    day: int
    clock_ns: int
    zone_s: int | None
    has_year: bool

    @property
    def stamp_ns(self) -> int:
        """Nanoseconds since 1970, in UTC if the zone is known."""
        return self.day * DAY_NS + self.clock_ns - (self.zone_s or 0) * NS_PER_S


def written_time(
    text: str, shape: re.Pattern[str], order: DateOrder = DateOrder.DAY_FIRST
) -> WrittenTime | None:
    """Return the date and time in one of ``DATED_SHAPES``; ``None``: invalid."""
    found = shape.fullmatch(text)
    return None if found is None else time_of_parts(found.groupdict(), order)


def time_of_parts(
    parts: Mapping[str, str | None], order: DateOrder = DateOrder.DAY_FIRST
) -> WrittenTime | None:
    """Return the time from parts named as the groups of ``DATED_SHAPES``; ``None``: invalid."""
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
    """Return the days since 1970-01-01; ``None``: no such day."""
    try:
        return date(year, month, day).toordinal() - _DAY_ZERO
    except ValueError:
        return None


def clock_of(parts: Mapping[str, str | None]) -> int | None:
    """Return nanoseconds of ``hour``, ``minute``, ``second``, ``fraction``, ``half``, or ``None``.

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
    full_ns = ((hour * 60 + minute) * 60 + second) * NS_PER_S
    return full_ns + int((parts.get("fraction") or "").ljust(9, "0"))


def order_of(texts: Iterable[str], shape: re.Pattern[str]) -> DateOrder | None:
    """Return whether days or months come first, if a number above 12 shows it."""
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
    """Return seconds east of UTC; ``None``: no zone, or ambiguous letters such as CET.

    >>> zone_seconds("Z"), zone_seconds("-03:30"), zone_seconds("CET")
    (0, -12600, None)
    """
    if not zone:
        return None
    if zone[0] not in "+-":
        return 0 if zone.upper() in ("UTC", "GMT", "Z") else None
    sign = -1 if zone[0] == "-" else 1
    return sign * (min(int(zone[1:3]), 23) * 60 + min(int(zone[-2:]), 59)) * 60


_MONTHS: Final = (
    "january february march april may june july august september october november december",
    "januar februar märz april mai juni juli august september oktober november dezember",
    "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
    "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
    "januari februari maart april mei juni juli augustus september oktober november december",
    "januari februari mars april maj juni juli augusti september oktober november desember",
    "stycznia lutego marca kwietnia maja czerwca lipca sierpnia września października listopada "
    "grudnia",
    "января февраля марта апреля мая июня июля августа сентября октября ноября декабря",
    "ocak şubat mart nisan mayıs haziran temmuz ağustos eylül ekim kasım aralık",  # noqa: RUF001
    "jänner feber mrz apr май jun jul aug set okt nov dez",
    "jan feb mrt apr mei jun jul aug sep okt nov dec",
)
"""Month names by language; the last two rows are abbreviations that are no prefixes."""
_SHORTEST_MONTH: Final = 3
_TIME_WITH_SECONDS: Final = re.compile(
    r"(?P<hour>\d{1,2}):(?P<minute>[0-5]\d):(?P<second>[0-5]\d|60)(?:[.,](?P<fraction>\d{1,9}))?",
    re.ASCII,
)
_PART: Final = re.compile(
    r"(?P<year>(?:19|20)\d\d)[年년.]?|(?P<day>[0-3]?\d)[日일.]?|(?P<half>[APap])\.?[Mm]\.?"
    r"|\(?(?P<zone>(?:UTC|GMT)?[+-](?:0\d|1[0-4]):?[0-5]\d|Z|[A-Z]{2,5})\)?",
    re.ASCII,
)
_MONTH_NUMBER: Final = re.compile(r"(\d{1,2})[月월]", re.ASCII)
_WORD: Final = re.compile(r"\(?[^\W\d_]{1,12}[.]?\)?")
_CLOCK: Final = re.compile(
    r"(?:(上午|오전)|(下午|오후))? ?(\d\d?)[:时時시] ?(\d\d)[:分분] ?(\d\d)[秒초]?", re.ASCII
)
_DATE_SIGN: Final = re.compile(r"(?<=\d)([年月日년월일])", re.ASCII)
_HYPHEN: Final = re.compile(r"(?<=\d)-(?=[^\W\d_])|(?<=[^\W\d_])-(?=\d)")
_BETWEEN: Final = frozenset("de of den the à um at kl".split())  # noqa: SIM905


def spaced(text: str) -> str:
    """Return a text with blanks in its date and colons in its time.

    >>> spaced("2026年03月02日 09时00分05秒"), spaced("오후 09시 00분 05초"), spaced("13-Jun-2025")
    ('2026年 03月 02日  09:00:05', '09:00:05 PM', '13 Jun 2025')
    """
    if not text.isascii():
        text = _CLOCK.sub(
            lambda at: f" {at[3]}:{at[4]}:{at[5]} " + ("AM" if at[1] else "PM" if at[2] else ""),
            text,
        )
        text = _DATE_SIGN.sub(r"\1 ", text)
    return _HYPHEN.sub(" ", text).strip()


def time_of_words(written: Sequence[str], *, must_be_all: bool = True) -> WrittenTime | None:
    """Return the date around the first time of day among words.

    ``None``: there is none, or ``must_be_all`` and other words remain.
    """
    words = [bare for word in written if (bare := word.strip(",")) not in _BETWEEN]
    at = next((i for i, word in enumerate(words) if _TIME_WITH_SECONDS.fullmatch(word)), None)
    if at is None:
        return None
    date = _Date(words[at])
    first = at
    if first and not words[first - 1].isascii():
        first -= 1
        date.adds(words[first])  # or it is the day of the week
    while first and date.adds(words[first - 1]):
        first -= 1
    end = at + 1
    while end < len(words) and date.adds(words[end]):
        end += 1
    before, after = words[:first], words[end:]
    is_weekday = len(before) == 1 and _WORD.fullmatch(before[0]) is not None
    if is_weekday and month_of(before[0]) and before[0].lower().rstrip(".") != "mar":
        is_weekday = False  # in four languages Tuesday is written as March is
    if must_be_all and (after or (before and not is_weekday)):
        return None
    return time_of_parts(date.parts) if {"month", "day"} <= date.kinds else None


class _Date:
    """The parts of a date, each at most once.

    Attributes:
        parts: By the names of ``time_of_parts``.
        kinds: What was added.
    """

    def __init__(self, time: str) -> None:
        found = _TIME_WITH_SECONDS.fullmatch(time)
        self.parts: dict[str, str | None] = dict(found.groupdict()) if found else {}
        self.kinds = {"time"}

    def adds(self, word: str) -> bool:
        """Add a word; return whether it is a part of the date."""
        month = _MONTH_NUMBER.fullmatch(word)
        number = int(month[1]) if month else month_of(word)
        found = _PART.fullmatch(word)
        kind, text = "month", f"{number or ''}"
        if not number:
            if found is None or found.lastgroup is None:
                return False
            kind, text = found.lastgroup, found[found.lastgroup]
        if kind == "day" and kind in self.kinds:
            kind = "month"  # 2026. 03. 02.: numbers are read backwards from the time
        if kind in self.kinds:
            return False
        self.kinds.add(kind)
        self.parts[kind] = text.removeprefix("UTC").removeprefix("GMT") or text
        return True


@lru_cache(256)
def month_of(word: str) -> int | None:
    """Return the number of a month by its name or a prefix of it.

    >>> month_of("janv."), month_of("Mär"), month_of("сент"), month_of("Mayor"), month_of("jui")
    (1, 3, 9, None, None)
    """
    bare = word.rstrip(".").casefold()
    if len(bare) < _SHORTEST_MONTH or not bare.isalpha():
        return None
    found = {
        number
        for names in _MONTHS
        for number, name in enumerate(names.split(), start=1)
        if name.startswith(bare)
    }
    return found.pop() if len(found) == 1 else None
