"""Sources of batches that count how many were pulled, and the gaps between batches."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from statistics import median
from typing import Any

READER = "gpumon-prefetch"


class Source:
    """Batches that each take some time, counted as they are pulled."""

    def __init__(self, batches: Iterable[Any], seconds: float = 0.0) -> None:
        self.batches = list(batches)
        self.seconds = seconds
        self.pulled = 0

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        for batch in self.batches:
            self.pulled += 1
            time.sleep(self.seconds)
            yield batch


def most_ahead(batches: Iterable[Any], pulled: Callable[[], int], pause_s: float = 0.03) -> int:
    """The largest number of batches pulled ahead of those in use."""
    ahead: list[int] = []
    for count, _ in enumerate(batches, start=1):
        time.sleep(pause_s)
        ahead.append(pulled() - count)
    return max(ahead)


def usual_gap_s(batches: Iterable[Any], step: Callable[[Any], object]) -> float:
    """The median wait for a batch, without the first."""
    gaps_s: list[float] = []
    source = iter(batches)
    while True:
        began_s = time.monotonic()
        try:
            batch = next(source)
        except StopIteration:
            return median(gaps_s[1:])
        gaps_s.append(time.monotonic() - began_s)
        step(batch)


def readers() -> list[threading.Thread]:
    """The threads that prefetch now."""
    gc.collect()  # Keras keeps some data in reference cycles
    return [thread for thread in threading.enumerate() if thread.name == READER]
