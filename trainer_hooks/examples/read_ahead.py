"""Batches read ahead by threads, in the order in which a loop without prefetch would read them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")


def read_ahead(read: Callable[[int], T], *, batches: int, workers: int) -> Iterator[T]:
    """The batches ``read(0)``, ``read(1)``, ... in that order.

    Args:
        read: Reads the batch of that number; called on any of the threads.
        batches: How many to read.
        workers: How many threads read, each at most two batches more than were asked for;
            0: each batch is read when it is asked for.
    """
    if not workers:
        yield from map(read, range(batches))
        return
    ahead: list[queue.Queue[T]] = [queue.Queue(maxsize=2) for _ in range(workers)]

    def read_every_nth(worker: int) -> None:
        for batch in range(worker, batches, workers):
            ahead[worker].put(read(batch))

    for worker in range(workers):
        threading.Thread(target=read_every_nth, args=(worker,), daemon=True).start()
    for batch in range(batches):
        yield ahead[batch % workers].get()
