"""Waiting for what another thread or process does, no longer than it takes."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 20.0
"""Far more than anything should take: on a busy machine a test is late, not wrong."""


def until(condition: Callable[[], bool], within_s: float = 5.0, *, every_s: float = 0.01) -> bool:
    """Whether it comes true within the time."""
    give_up_s = time.monotonic() + within_s
    while time.monotonic() < give_up_s:
        if condition():
            return True
        time.sleep(every_s)
    return condition()


def wait_until(met: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Return as soon as ``met()`` is true; fail if it is not in time."""
    assert until(met, patience_s, every_s=0.05), "it did not happen in time"
