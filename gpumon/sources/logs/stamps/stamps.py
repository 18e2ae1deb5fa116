"""When a row was written: local time, ISO 8601, or seconds since the epoch or the start.

Stamps for a log that has none: its rows, counted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from typing import Final, Protocol

from gpumon.core.clock import NS_PER_S, seconds
from gpumon.core.wording import plainly

_MINUTE: Final = re.compile(r"(\d{4})([-/])(\d\d?)\2(\d\d?)[ T](\d\d?):(\d\d):")
_SECOND: Final = re.compile(r"([0-5]\d)(?:[.,](\d{1,9})\d*)? ?(Z|[+-]\d\d:?\d\d)?", re.ASCII)
_NUMBER: Final = re.compile(r"(\d{1,20})(?:[.,](\d{0,12}))?(?: ?([A-Za-z]{1,3}))?", re.ASCII)
_UNITS_NS: Final = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": NS_PER_S, "sec": NS_PER_S,
                    "m": 60 * NS_PER_S, "min": 60 * NS_PER_S, "h": 3_600 * NS_PER_S}  # fmt: skip
_DAY_ZERO: Final = date(1970, 1, 1).toordinal()
_MEMO_LIMIT: Final = 65_536

_EPOCH_UNITS: Final = (
    (10**17, 1),
    (10**14, 1_000),
    (10**11, 1_000_000),
    (10**8, NS_PER_S),
)
"""Smallest number taken for an epoch stamp (1973) in ns, us, ms, s. Below: since the start."""


@dataclass(frozen=True, slots=True)
class LogClock:
    """What the stamps of a log mean.

    Attributes:
        is_wall: Whether they count from 1970-01-01; else from nobody knows when.
        utc_offset_s: Zone of the log, in seconds east of UTC; ``None``: local
            time of a machine that did not write its zone.
    """

    is_wall: bool
    utc_offset_s: int | None = None

    def iso(self, stamp_ns: int) -> str | None:
        """ISO 8601, without a zone where the log has none; ``None`` without a wall clock.

        >>> LogClock(True).iso(86_400_500_000_000)
        '1970-01-02T00:00:00.500'
        """
        if not self.is_wall:
            return None
        zone = None
        if self.utc_offset_s is not None:
            zone = timezone(timedelta(seconds=self.utc_offset_s))
        local_us = stamp_ns // 1_000 + (self.utc_offset_s or 0) * 1_000_000
        try:
            moment = datetime(1970, 1, 1) + timedelta(microseconds=local_us)
        except OverflowError:
            return None
        return moment.replace(tzinfo=zone).isoformat(timespec="milliseconds")


NO_CLOCK: Final = LogClock(is_wall=False)
_EPOCH_CLOCK: Final = LogClock(is_wall=True, utc_offset_s=0)
_FIRST_EPOCH_NS: Final = 10**17 * 9  # 1998
_LAST_EPOCH_NS: Final = 10**17 * 41  # 2099


class StampParser(Protocol):
    """Reads the stamps of one log, which all look alike."""

    @property
    def clock(self) -> LogClock: ...

    def parse(self, text: str) -> int | None:
        """Nanoseconds on the log's clock; ``None``: not a stamp of this log."""
        ...


def parser_for(text: str, unit_ns: int = NS_PER_S) -> StampParser | None:
    """The parser that understands a log's first stamp; ``None`` if nobody does.

    Args:
        text: The stamp as written, without surrounding blanks.
        unit_ns: What a number counts; where that is seconds, a number too
            large for them may be of another unit and since the epoch.
    """
    dates = DateStamps()
    if dates.parse(text) is not None:
        return dates
    found = _NUMBER.fullmatch(text)
    if found is None:
        return None
    if found[3]:
        scale_ns = _UNITS_NS.get(found[3])
        return NumberStamps(scale_ns, NO_CLOCK, found[3]) if scale_ns else None
    number = int(found[1])
    if unit_ns != NS_PER_S:
        # A heading that names its unit is believed, also by times since the log began.
        is_wall = _FIRST_EPOCH_NS <= number * unit_ns < _LAST_EPOCH_NS
        return NumberStamps(unit_ns, _EPOCH_CLOCK if is_wall else NO_CLOCK)
    for smallest, scale_ns in _EPOCH_UNITS:
        if number >= smallest:
            return NumberStamps(scale_ns, _EPOCH_CLOCK)
    return NumberStamps(NS_PER_S, NO_CLOCK)


class NumberStamps:
    """Seconds (or another unit) since the epoch or since the log began.

    Args:
        scale_ns: What they count.
        clock: What they count from.
        unit: The unit that every one of them names, if they do.
    """

    def __init__(self, scale_ns: int, clock: LogClock, unit: str | None = None) -> None:
        self._scale_ns = scale_ns
        self._clock = clock
        self._unit = unit

    @property
    def clock(self) -> LogClock:
        return self._clock

    def parse(self, text: str) -> int | None:
        found = _NUMBER.fullmatch(text)
        if found is None or found[3] != self._unit:
            return None
        whole, fraction, _ = found.groups()
        stamp_ns = int(whole) * self._scale_ns
        if fraction:
            # Whole-number arithmetic: a float cannot hold nanoseconds since 1970.
            stamp_ns += int(fraction) * self._scale_ns // 10 ** len(fraction)
        return stamp_ns


class DateStamps:
    """``2025/06/13 00:27:52.195`` as nvidia-smi writes it, or ISO 8601 with or without a zone.

    Millions of rows share few minutes and few ways to write a second, so both
    are remembered.
    """

    def __init__(self) -> None:
        self._minute_text = "none yet"
        self._minute_ns = 0
        self._cut = 0
        self._seconds_ns: dict[str, int] = {}
        self._utc_offset_s: int | None = None

    @property
    def clock(self) -> LogClock:
        return LogClock(is_wall=True, utc_offset_s=self._utc_offset_s)

    def parse(self, text: str) -> int | None:
        if not text.startswith(self._minute_text) and not self._enter_minute(text):
            return None
        rest = text[self._cut :]
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
        try:
            days = date(int(year), int(month), int(day)).toordinal() - _DAY_ZERO
        except ValueError:
            return False
        if int(hour) > 23 or int(minute) > 59:
            return False
        minutes = (days * 24 + int(hour)) * 60 + int(minute)
        self._minute_ns = minutes * 60 * NS_PER_S
        self._cut = found.end()
        self._minute_text = text[: self._cut]
        return True

    def _read_seconds(self, rest: str) -> int | None:
        found = _SECOND.fullmatch(rest)
        if found is None:
            return None
        second, fraction, zone = found.groups()
        after_minute_ns = int(second) * NS_PER_S + int((fraction or "").ljust(9, "0"))
        if zone is not None:
            offset_s = _zone_seconds(zone)
            after_minute_ns -= offset_s * NS_PER_S
            if self._utc_offset_s is None and not self._seconds_ns:
                self._utc_offset_s = offset_s
        if len(self._seconds_ns) < _MEMO_LIMIT:
            self._seconds_ns[rest] = after_minute_ns
        return after_minute_ns


def _zone_seconds(zone: str) -> int:
    """Seconds east of UTC.

    >>> _zone_seconds("Z"), _zone_seconds("-03:30")
    (0, -12600)
    """
    if zone == "Z":
        return 0
    sign = -1 if zone[0] == "-" else 1
    hours, minutes = int(zone[1:3]), int(zone[-2:])
    return sign * (min(hours, 23) * 60 + min(minutes, 59)) * 60


class RowClock:
    """Counts the rows of each GPU, and gives each the time that rows before it took.

    Args:
        period_ns: Time between two rows of one GPU, as the user said;
            ``None``: a second is assumed.
    """

    def __init__(self, period_ns: int | None) -> None:
        self.period_ns = period_ns or NS_PER_S
        self._is_told = period_ns is not None
        self._rows: list[int] = []

    def next_ns(self, gpu: int) -> int:
        """Stamp of the next row of a GPU, by its position."""
        while gpu >= len(self._rows):
            self._rows.append(0)
        self._rows[gpu] += 1
        return self._rows[gpu] * self.period_ns

    @property
    def note(self) -> str:
        """What the report has to say of it."""
        said = "--period" if self._is_told else "assumed; --period changes it"
        return f"The log has no time stamps: {plainly(seconds(self.period_ns))} s a row ({said})."
