"""Parsers for every form of timestamp, and which one a log has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final, NamedTuple

from gpumon.core.clock import NS_PER_S
from gpumon.sources.logs.stamps.dates import (
    DATED_SHAPES,
    DAY_NS,
    TIME_SHAPE,
    DateOrder,
    WrittenTime,
    clock_of,
    day_number,
    order_of,
    spaced,
    time_of_words,
    written_time,
    zone_seconds,
)
from gpumon.sources.logs.stamps.log_clock import LOCAL_CLOCK, NO_CLOCK, UTC_CLOCK, LogClock

_MINUTE: Final = re.compile(r"(\d{4})([-/])(\d\d?)\2(\d\d?)[ T](\d\d?):(\d\d):")
_SECOND: Final = re.compile(r"([0-5]\d)(?:[.,](\d{1,9})\d*)? ?(Z|[+-]\d\d:?\d\d)?", re.ASCII)
_NUMBER: Final = re.compile(r"(\d{1,20})(?:[.,](\d{0,12}))?(?: ?s)?", re.ASCII)
UNITS_NS: Final = MappingProxyType(
    {"ns": 1, "us": 1_000, "ms": 1_000_000, "milliseconds": 1_000_000, "s": NS_PER_S,
     "sec": NS_PER_S, "secs": NS_PER_S, "seconds": NS_PER_S, "min": 60 * NS_PER_S,
     "minutes": 60 * NS_PER_S, "h": 3_600 * NS_PER_S, "hours": 3_600 * NS_PER_S}
)  # fmt: skip
"""Units of time in headings."""
_SAYS_SECONDS: Final = re.compile(r"(?<![a-z])s(?:ecs?|econds?)?(?![a-z])", re.I)
_MEMO_LIMIT: Final = 65_536
_EPOCH_UNITS: Final = (
    (10**17, 1),
    (10**14, 1_000),
    (10**11, 1_000_000),
    (10**8, NS_PER_S),
)
"""Smallest epoch stamp (1973) in ns, us, ms, s. Smaller numbers count from the start."""
FIRST_EPOCH_NS: Final = 10**17 * 9
"""1998: no GPU was logged before."""
LAST_EPOCH_NS: Final = 10**17 * 41
"""2099."""
_HALF_YEAR_NS: Final = 183 * DAY_NS
_LEAP_YEAR_NS: Final = 366 * DAY_NS


class NumberStamps:
    """Seconds, or another unit, since the epoch or since the log began.

    Args:
        is_bare: Whether only a heading could say that they are seconds.
    """

    note: str | None = None

    def __init__(self, scale_ns: int, clock: LogClock, *, is_bare: bool = False) -> None:
        self.clock = clock
        self.is_bare = is_bare
        self._scale_ns = scale_ns

    def parse(self, text: str) -> int | None:
        found = _NUMBER.fullmatch(text)
        if found is None:
            return None
        whole, fraction = found.groups()
        stamp_ns = int(whole) * self._scale_ns
        if fraction:
            # Integers: a float cannot hold nanoseconds since 1970.
            stamp_ns += int(fraction) * self._scale_ns // 10 ** len(fraction)
        return stamp_ns


class DateStamps:
    """nvidia-smi's ``2025/06/13 00:27:52.195``, or ISO 8601 with or without a zone.

    Millions of rows share few minutes and few texts of seconds, so both are remembered.
    """

    note: str | None = None

    def __init__(self) -> None:
        self._minute_text = "none yet"
        self._minute_ns = 0
        self._minute_length = 0
        self._seconds_ns: dict[str, int] = {}
        self.clock = LOCAL_CLOCK

    def parse(self, text: str) -> int | None:
        if not text.startswith(self._minute_text) and not self._enter_minute(text):
            return None
        rest = text[self._minute_length :]
        after_minute_ns = self._seconds_ns.get(rest)
        if after_minute_ns is None:
            after_minute_ns = self._read_seconds(rest)
            if after_minute_ns is None:
                return None
        return self._minute_ns + after_minute_ns

    def _enter_minute(self, text: str) -> bool:
        found = _MINUTE.match(text)
        if found is None:
            return False
        year, _, month, day, hour, minute = found.groups()
        days = day_number(int(year), int(month), int(day))
        if days is None or int(hour) > 23 or int(minute) > 59:
            return False
        minutes = (days * 24 + int(hour)) * 60 + int(minute)
        self._minute_ns = minutes * 60 * NS_PER_S
        self._minute_length = found.end()
        self._minute_text = text[: self._minute_length]
        return True

    def _read_seconds(self, rest: str) -> int | None:
        found = _SECOND.fullmatch(rest)
        if found is None:
            return None
        second, fraction, zone = found.groups()
        after_minute_ns = int(second) * NS_PER_S + int((fraction or "").ljust(9, "0"))
        if zone is not None:
            offset_s = zone_seconds(zone) or 0
            after_minute_ns -= offset_s * NS_PER_S
            if not self._seconds_ns:  # the first zone counts
                self.clock = LogClock(is_wall=True, utc_offset_s=offset_s)
        if len(self._seconds_ns) < _MEMO_LIMIT:
            self._seconds_ns[rest] = after_minute_ns
        return after_minute_ns


class WrittenStamps:
    """Dates of one shape, or in words.

    Args:
        shape: One of ``DATED_SHAPES``; ``None``: in words.
        order: Of day and month, if the first rows show it.
        first: The first stamp.
    """

    def __init__(self, shape: re.Pattern[str] | None, order: DateOrder | None, first: str) -> None:
        self._shape = shape
        self._is_unsure = order is None and shape is not None and "(?P<one>" in shape.pattern
        found = None if shape is None else shape.fullmatch(first)
        has_half = found is not None and bool(found.groupdict().get("half"))
        self._order = order or (DateOrder.MONTH_FIRST if has_half else DateOrder.DAY_FIRST)
        self._text, self._stamp_ns = "", 0
        self._last: WrittenTime | None = None
        self._moved_ns = 0
        known = _written(first, shape, self._order)
        self._has_year = known is not None and known.has_year
        zone_s = known.zone_s if known else None
        self.clock = LogClock(True, zone_s) if self._has_year else NO_CLOCK

    @property
    def note(self) -> str | None:
        """A note for the report."""
        if self._is_unsure:
            return (
                f"The dates of the log could begin with day or month: read as {self._order.value}."
            )
        if not self._has_year:
            return "The dates in the log have no year, so the report has no start time."
        return None

    def parse(self, text: str) -> int | None:
        if text == self._text:
            return self._stamp_ns
        written = _written(text, self._shape, self._order)
        if written is None:
            return None
        if self._is_unsure and self._last is not None and written.day != self._last.day:
            written = self._settled_order(text, written, self._last)
        stamp_ns = written.stamp_ns + self._moved_ns
        if not self._has_year and stamp_ns < self._stamp_ns - _HALF_YEAR_NS:
            self._moved_ns += _LEAP_YEAR_NS  # from December to January
            stamp_ns += _LEAP_YEAR_NS
        self._text, self._stamp_ns, self._last = text, stamp_ns, written
        return stamp_ns

    def _settled_order(self, text: str, written: WrittenTime, before: WrittenTime) -> WrittenTime:
        """Use the order that makes the log's first new day the nearer one."""
        self._is_unsure = False
        other_order = next(order for order in DateOrder if order is not self._order)
        other = _written(text, self._shape, other_order)
        other_before = _written(self._text, self._shape, other_order)
        if other is None or other_before is None:
            return written
        if abs(other.day - other_before.day) >= abs(written.day - before.day):
            return written
        self._moved_ns = before.stamp_ns - other_before.stamp_ns
        self.clock = replace(self.clock, shift_ns=-self._moved_ns)
        self._order = other_order
        return other


def _written(text: str, shape: re.Pattern[str] | None, order: DateOrder) -> WrittenTime | None:
    if shape is not None:
        return written_time(spaced(text), shape, order)
    return time_of_words(spaced(text).split())


class ClockStamps:
    """Times of day that restart at midnight, or lengths of time that do not.

    Args:
        is_elapsed: Whether they count from the start of the log.
    """

    def __init__(self, *, is_elapsed: bool) -> None:
        dateless = "The log has times of day but no date, so the report has no start time."
        self.clock = NO_CLOCK
        self.note = None if is_elapsed else dateless
        self._is_elapsed = is_elapsed
        self._day_ns = 0
        self._last_ns = 0

    def parse(self, text: str) -> int | None:
        found = TIME_SHAPE.fullmatch(text)
        if found is None:
            return None
        parts = found.groupdict()
        clock_ns = clock_of(parts)
        if clock_ns is None:
            return None
        if self._is_elapsed or parts["days"]:
            return clock_ns + int(parts["days"] or 0) * DAY_NS
        if clock_ns < self._last_ns - DAY_NS // 2:
            self._day_ns += DAY_NS
        self._last_ns = clock_ns
        return self._day_ns + clock_ns


StampParser = NumberStamps | DateStamps | WrittenStamps | ClockStamps
"""Reads the stamps of one log.

``parse`` returns nanoseconds on the log's ``clock``; ``None``: not a stamp of this form. ``note``
is for the report.
"""


def parser_for(
    text: str,
    others: Sequence[str] = (),
    *,
    unit_ns: int = NS_PER_S,
    is_elapsed: bool = False,
) -> StampParser | None:
    """Return the parser of a log's first stamp; ``None``: no known form.

    Args:
        text: Without surrounding blanks.
        others: Further stamps, which may show days and months.
        unit_ns: Unit of a number. If it is seconds, a number too large for them is taken as another
            unit since the epoch.
        is_elapsed: Whether a bare time is no time of day.
    """
    dates = DateStamps()
    if dates.parse(text) is not None:
        return dates
    written = _written_parser(text, others, is_elapsed=is_elapsed)
    if written is not None and text.isdigit():  # a date of digits alone
        return written
    return _number_parser(text, unit_ns) or written


def parser_among(
    texts: Sequence[str], unit_ns: int = NS_PER_S, *, is_elapsed: bool = False
) -> StampParser | None:
    """Return the parser of the first stamp that has a form; ``None``: none has."""
    parsers = (
        parser_for(text, texts[at + 1 :], unit_ns=unit_ns, is_elapsed=is_elapsed)
        for at, text in enumerate(texts)
    )
    return next((parser for parser in parsers if parser is not None), None)


def _number_parser(text: str, unit_ns: int) -> NumberStamps | None:
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    number = int(found[1])
    if unit_ns != NS_PER_S:
        # A heading with a unit also holds for times since the log began.
        is_wall = FIRST_EPOCH_NS <= number * unit_ns < LAST_EPOCH_NS
        return NumberStamps(unit_ns, UTC_CLOCK if is_wall else NO_CLOCK)
    for smallest, scale_ns in _EPOCH_UNITS:
        if number >= smallest:
            return NumberStamps(scale_ns, UTC_CLOCK)
    return NumberStamps(NS_PER_S, NO_CLOCK, is_bare=not text.endswith("s"))


def without_unit(stamps: StampParser | None, heading: str) -> str | None:
    """Return the heading of numbers that were read as seconds by assumption; else ``None``."""
    is_bare = isinstance(stamps, NumberStamps) and stamps.is_bare
    return heading.strip() if is_bare and not _SAYS_SECONDS.search(heading) else None


def _written_parser(
    first: str, others: Sequence[str], *, is_elapsed: bool
) -> WrittenStamps | ClockStamps | None:
    if len(first) > 60:
        return None
    bare = spaced(first)
    for shape in DATED_SHAPES:
        if shape.fullmatch(bare) is not None:
            order = order_of((bare, *map(spaced, others)), shape)
            parser = WrittenStamps(shape, order, first)
            return parser if parser.parse(first) is not None else None
    if ":" in bare and time_of_words(bare.split()) is not None:
        return WrittenStamps(None, None, first)
    found = TIME_SHAPE.fullmatch(first)
    if found is None or clock_of(found.groupdict()) is None:
        return None
    # No time of day has 24 hours or more.
    counts = is_elapsed or bool(found["days"]) or int(found["hour"]) > 23
    return ClockStamps(is_elapsed=counts)


_CLOCK_FACE: Final = re.compile(r"\d\d?:\d\d:\d\d", re.ASCII)
_LONGEST: Final = 80
_MAX_WORDS: Final = 64
_MAX_CHARACTERS: Final = 1_000


class PrintedDate(NamedTuple):
    """A line with nothing but a date.

    Attributes:
        stamp_ns: Since 1970, in the line's own zone if ``clock`` has none.
        clock: What the stamp means.
    """

    stamp_ns: int
    clock: LogClock


def date_in(line: str) -> PrintedDate | None:
    """Return the date that a line consists of; ``None``: it is none.

    It has the forms of a column of stamps, with a year and unambiguous.

    >>> own, wordy = date_in("Sat Jan 24 21:52:14 2026"), date_in("Sat 24 Jan 2026 09:52:14 PM CET")
    >>> own.stamp_ns == wordy.stamp_ns == date_in("sam. 24 janv. 2026 21:52:14").stamp_ns
    True
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
    return PrintedDate(stamp_ns, parser.clock)


def find_ctime(text: str) -> int | None:
    """Return nanoseconds since 1970 of the date in a line, on the clock of the log.

    >>> find_ctime("node7  Sun Nov 22 00:00:09 2026  580.95") == find_ctime(
    ...     "Sun 22 Nov 2026 12:00:09 AM UTC"
    ... )
    True
    >>> find_ctime("[0] NVIDIA A40 | 45'C") is None
    True
    """
    words = spaced(text[:_MAX_CHARACTERS])
    if _CLOCK_FACE.search(words) is None:
        return None
    found = time_of_words(words.split()[:_MAX_WORDS], must_be_all=False)
    return found.stamp_ns if found is not None and found.has_year else None
