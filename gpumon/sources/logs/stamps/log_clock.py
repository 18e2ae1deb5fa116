"""What the stamps of a log mean, and a clock that counts rows where there are none."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Final

from gpumon.core.clock import NS_PER_S, seconds
from gpumon.core.wording import plainly


@dataclass(frozen=True, slots=True)
class LogClock:
    """What the stamps of a log mean.

    Attributes:
        is_wall: Whether they count from 1970-01-01.
        utc_offset_s: Zone of the log, in seconds east of UTC; ``None``: local time of unknown zone.
        shift_ns: Correction to all stamps that a later row showed.
    """

    is_wall: bool
    utc_offset_s: int | None = None
    shift_ns: int = 0

    def iso(self, stamp_ns: int) -> str | None:
        """Return ISO 8601, without a zone if the log has none; ``None`` without a wall clock.

        >>> LogClock(True).iso(86_400_500_000_000)
        '1970-01-02T00:00:00.500'
        """
        if not self.is_wall:
            return None
        zone = None
        if self.utc_offset_s is not None:
            zone = timezone(timedelta(seconds=self.utc_offset_s))
        local_us = (stamp_ns + self.shift_ns) // 1_000 + (self.utc_offset_s or 0) * 1_000_000
        try:
            time = datetime(1970, 1, 1) + timedelta(microseconds=local_us)
        except OverflowError:
            return None
        return time.replace(tzinfo=zone).isoformat(timespec="milliseconds")


NO_CLOCK: Final = LogClock(is_wall=False)
LOCAL_CLOCK: Final = LogClock(is_wall=True)
"""Local time of a machine that did not write its zone, or only letters."""
UTC_CLOCK: Final = LogClock(is_wall=True, utc_offset_s=0)


class RowClock:
    """Counts the rows of each GPU, one period each.

    ``period_ns``: ``None`` if the user does not give it; then a second.
    """

    def __init__(self, period_ns: int | None) -> None:
        self.period_ns = period_ns or NS_PER_S
        self._is_given = period_ns is not None
        self._rows: Counter[int] = Counter()

    def next_ns(self, gpu: int) -> int:
        """Return the stamp of a GPU's next row."""
        self._rows[gpu] += 1
        return self._rows[gpu] * self.period_ns

    @property
    def note(self) -> str:
        """A note for the report."""
        source = "from --period" if self._is_given else "assumed; --period changes it"
        return f"The log has no time stamps: {plainly(seconds(self.period_ns))} s a row ({source})."
