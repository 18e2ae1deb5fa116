"""How many errors of each XID every GPU has had. Written by one thread, read by another."""

from __future__ import annotations

import threading
from typing import Final

MOST_XIDS: Final = 64
"""Different XIDs kept of one GPU: there are fewer that a board in use can have."""

Counts = tuple[tuple[int, int], ...]
"""Pairs of XID and count, by XID."""


class XidCounts:
    """Counts that only rise, by UUID and XID."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, dict[int, int]] = {}
        self._pairs: dict[str, Counts] = {}

    def add(self, uuid: str, xid: int) -> None:
        """Count one error; one of a new XID is left out where there are too many of those."""
        with self._lock:
            counts = self._counts.setdefault(uuid, {})
            if xid not in counts and len(counts) >= MOST_XIDS:
                return
            counts[xid] = counts.get(xid, 0) + 1
            self._pairs[uuid] = tuple(sorted(counts.items()))

    def of(self, uuid: str) -> Counts:
        """What that GPU has had: the same object until there is more."""
        with self._lock:
            return self._pairs.get(uuid, ())
