"""Stamps in less usual shapes: other dates, dates without a year, times of day, time elapsed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.sources.logs.stamps.date_shapes import (
    DATED_SHAPES,
    TIME_SHAPE,
    DateOrder,
    WrittenTime,
    clock_of,
    order_of,
    written_time,
)
from gpumon.sources.logs.stamps.stamps import NO_CLOCK, LogClock, StampParser

_DAY_NS: Final = 86_400 * NS_PER_S
_HALF_YEAR_NS: Final = 183 * _DAY_NS
_YEAR_DAYS: Final = 366


class WrittenStamps:
    """Dates of one shape.

    Args:
        shape: One of ``DATED_SHAPES``.
        order: Of day and month, where the first rows tell it.
        first: The first stamp.
    """

    def __init__(self, shape: re.Pattern[str], order: DateOrder | None, first: str) -> None:
        self._shape = shape
        self._is_unsure = order is None and "(?P<one>" in shape.pattern
        self._order = order or _usual_order(first, shape)
        self._text, self._stamp_ns = "", 0
        self._newest: WrittenTime | None = None
        self._moved_ns = 0
        known = written_time(first, shape, self._order)
        self._has_year = known is not None and known.has_year
        self._zone_s = known.zone_s if known else None

    @property
    def clock(self) -> LogClock:
        return LogClock(is_wall=True, utc_offset_s=self._zone_s) if self._has_year else NO_CLOCK

    @property
    def note(self) -> str | None:
        """What the report has to say of it."""
        if self._is_unsure:
            return (
                f"The dates of the log could begin with day or month: read as {self._order.value}."
            )
        if not self._has_year:
            return "The dates of the log name no year: when it began is not known."
        return None

    def parse(self, text: str) -> int | None:
        """As ``StampParser`` has it."""
        if text == self._text:
            return self._stamp_ns
        written = written_time(text, self._shape, self._order)
        if written is None:
            return None
        if self._is_unsure and self._newest is not None and written.day != self._newest.day:
            written = self._settled_order(text, written, self._newest)
        stamp_ns = _nanoseconds(written) + self._moved_ns
        if not self._has_year and stamp_ns < self._stamp_ns - _HALF_YEAR_NS:
            self._moved_ns += _YEAR_DAYS * _DAY_NS  # from December to January
            stamp_ns += _YEAR_DAYS * _DAY_NS
        self._text, self._stamp_ns, self._newest = text, stamp_ns, written
        return stamp_ns

    def _settled_order(self, text: str, written: WrittenTime, before: WrittenTime) -> WrittenTime:
        """The order by which the log's first new day is the nearer one."""
        self._is_unsure = False
        other_order = next(order for order in DateOrder if order is not self._order)
        other = written_time(text, self._shape, other_order)
        other_before = written_time(self._text, self._shape, other_order)
        if other is None or other_before is None:
            return written
        if abs(other.day - other_before.day) >= abs(written.day - before.day):
            return written
        self._moved_ns = _nanoseconds(before) - _nanoseconds(other_before)
        self._order = other_order
        return other


class ClockStamps:
    """Times of day that begin anew at midnight, or lengths of time that do not.

    Args:
        is_elapsed: Whether they count from the log's beginning.
    """

    def __init__(self, *, is_elapsed: bool) -> None:
        self._is_elapsed = is_elapsed
        self._day_ns = 0
        self._last_ns = 0

    @property
    def clock(self) -> LogClock:
        return NO_CLOCK

    @property
    def note(self) -> str | None:
        """What the report has to say of it."""
        if self._is_elapsed:
            return None
        return "The log has times of day and no date: when it began is not known."

    def parse(self, text: str) -> int | None:
        """As ``StampParser`` has it."""
        found = TIME_SHAPE.fullmatch(text)
        if found is None:
            return None
        parts = found.groupdict()
        clock_ns = clock_of(parts)
        if clock_ns is None:
            return None
        if self._is_elapsed or parts["days"]:
            return clock_ns + int(parts["days"] or 0) * _DAY_NS
        if clock_ns < self._last_ns - _DAY_NS // 2:
            self._day_ns += _DAY_NS
        elif self._day_ns and clock_ns > self._last_ns + _DAY_NS // 2:
            return self._day_ns - _DAY_NS + clock_ns  # a late row of the day before
        self._last_ns = clock_ns
        return self._day_ns + clock_ns


def shaped_parser_for(
    first: str, others: Sequence[str], *, is_elapsed: bool
) -> WrittenStamps | ClockStamps | None:
    """The parser for a log's first stamp in one of the less usual shapes; ``None``: in none.

    Args:
        first: The stamp as written, without surrounding blanks.
        others: Further ones, which may tell days from months.
        is_elapsed: Whether a bare time is known to be no time of day.
    """
    if len(first) > 60:
        return None
    for shape in DATED_SHAPES:
        if shape.fullmatch(first) is not None:
            parser = WrittenStamps(shape, order_of((first, *others), shape), first)
            return parser if parser.parse(first) is not None else None
    found = TIME_SHAPE.fullmatch(first)
    if found is None or clock_of(found.groupdict()) is None:
        return None
    # No day has 24 hours and more, and a log that begins at 0:00:00 counts from there.
    counts = is_elapsed or bool(found["days"]) or int(found["hour"]) > 23
    return ClockStamps(is_elapsed=counts)


def note_of(parser: StampParser) -> str | None:
    """What has to be said of how stamps were read."""
    return parser.note if isinstance(parser, WrittenStamps | ClockStamps) else None


def _usual_order(first: str, shape: re.Pattern[str]) -> DateOrder:
    found = shape.fullmatch(first)
    has_half = found is not None and bool(found.groupdict().get("half"))
    return DateOrder.MONTH_FIRST if has_half else DateOrder.DAY_FIRST


def _nanoseconds(written: WrittenTime) -> int:
    return written.day * _DAY_NS + written.clock_ns - (written.zone_s or 0) * NS_PER_S
