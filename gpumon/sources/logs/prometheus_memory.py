"""Memory in use, which Prometheus tells in other series than utilisation, and before it."""

from __future__ import annotations

import re
from array import array
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.sources.logs.table.cell_values import bytes_of

_MAX_VALUES: Final = 2_000_000
"""Values kept for the utilisation that follows; more of them stay unread."""
_FINITE: Final = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d{1,3})?", re.ASCII | re.I)


@dataclass(slots=True)
class MemoryTrack:
    """Memory in use of one GPU."""

    stamps_ns: array[int] = field(default_factory=lambda: array("q"))
    used_bytes: array[int] = field(default_factory=lambda: array("q"))
    next: int = 0

    def at(self, stamp_ns: int) -> int | None:
        """What was in use at a moment; moments are asked for in order."""
        stamps_ns, position = self.stamps_ns, self.next
        while position < len(stamps_ns) and stamps_ns[position] < stamp_ns:
            position += 1
        self.next = position
        if position < len(stamps_ns) and stamps_ns[position] == stamp_ns:
            return self.used_bytes[position]
        return None


class MemorySeries:
    """Keeps what series of memory say until the utilisation of their GPU comes."""

    def __init__(self) -> None:
        self._tracks: dict[Hashable, MemoryTrack] = {}
        self._total_bytes: dict[Hashable, int] = {}
        self._kept = 0

    def keep(self, key: Hashable, pairs: Iterable[tuple[float, str]], unit_bytes: int) -> bool:
        """Keep values of a GPU; whether there was room for them."""
        values = [(stamp_of(at_s), value) for at_s, value in pairs if is_finite(value)]
        if self._kept + len(values) > _MAX_VALUES:
            return False
        self._kept += len(values)
        track = self._tracks.setdefault(key, MemoryTrack())
        track.stamps_ns.extend(stamp_ns for stamp_ns, _ in values)
        track.used_bytes.extend(bytes_of(value, unit_bytes=unit_bytes) or 0 for _, value in values)
        return True

    def keep_total(
        self, key: Hashable, pairs: Iterable[tuple[float, str]], unit_bytes: int
    ) -> None:
        """Keep how much memory a GPU has."""
        value = next((value for _, value in pairs if is_finite(value)), None)
        if value is not None:
            self._total_bytes.setdefault(key, bytes_of(value, unit_bytes=unit_bytes) or 0)

    def take(self, key: Hashable) -> MemoryTrack | None:
        """What was kept of a GPU, which is forgotten here."""
        track = self._tracks.pop(key, None)
        if track is not None:
            self._kept -= len(track.stamps_ns)
        return track

    def total_bytes(self, key: Hashable) -> int | None:
        """How much memory a GPU has, if it was said."""
        return self._total_bytes.get(key)


def stamp_of(moment_s: float) -> int:
    """Nanoseconds since 1970. Prometheus knows milliseconds; a float does not hold more either.

    >>> stamp_of(1700000000.125)
    1700000000125000000
    """
    if type(moment_s) is int:
        return moment_s * NS_PER_S
    return round(moment_s * 1_000) * 1_000_000


def is_finite(value: str) -> bool:
    """Whether a value is a number, as NaN and Inf are not."""
    return _FINITE.fullmatch(value) is not None
