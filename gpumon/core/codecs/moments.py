"""Instants of a report or a state as ISO 8601 text, and back."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from gpumon.core.clock import seconds
from gpumon.core.codecs.field_codec import text


class Moments(NamedTuple):
    """What an instant on the clock of the intervals is on the wall clock.

    Attributes:
        began: The wall clock's time at ``origin_ns``; ``None``: nobody knows it.
        origin_ns: On the clock of the intervals.
    """

    began: datetime | None
    origin_ns: int = 0

    def encode(self, at_ns: int | None) -> str | None:
        """An instant as text; ``None`` where there is none, or no wall clock."""
        if at_ns is None or self.began is None:
            return None
        return (self.began + timedelta(seconds=seconds(at_ns - self.origin_ns))).isoformat()

    def decode(self, value: object) -> int | None:
        """The instant that a text says; ``None`` where it says none.

        Raises:
            MalformedError: It is no text.
            ValueError: It is no moment.
        """
        if value is None or self.began is None:
            return None
        passed = datetime.fromisoformat(text(value)) - self.began
        return self.origin_ns + passed // timedelta(microseconds=1) * 1_000


def began_at(started_at: str | None) -> datetime | None:
    """The moment at which a report began, as it says itself."""
    return None if started_at is None else datetime.fromisoformat(started_at)
