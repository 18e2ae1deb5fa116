"""How batches come: in plain Python, and as each framework has it."""

from __future__ import annotations

import multiprocessing
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from types import MappingProxyType
from typing import Any, Final

Make = Callable[[int], None]
"""Makes the batch of a number."""

ENDLESS: Final = 1_000_000
"""More batches than any of these runs reaches."""
_READY: Final = 2
"""Length of a queue."""


def in_the_training_thread(make: Make, workers: int) -> Iterator[int]:
    """A generator: each batch is made when it is requested."""
    for number in count():
        make(number)
        yield number


def of_threads(make: Make, workers: int) -> Iterator[int]:
    """Threads of this process put batches into a queue."""
    ready: queue.Queue[int] = queue.Queue(_READY)
    return _taken_from(ready, threading.Thread, make, workers)


def of_processes(make: Make, workers: int) -> Iterator[int]:
    """Forked processes put batches into a queue."""
    forking = multiprocessing.get_context("fork")
    return _taken_from(forking.Queue(_READY), forking.Process, make, workers)


def of_data_loader(make: Make, workers: int) -> Iterable[int]:
    """torch's own."""
    import torch

    class Numbers(torch.utils.data.Dataset):  # type: ignore[misc]  # torch has no types here
        def __len__(self) -> int:
            return ENDLESS

        def __getitem__(self, number: int) -> int:
            make(number)
            return number

    loader: Iterable[int] = torch.utils.data.DataLoader(
        Numbers(), batch_size=None, num_workers=workers
    )
    return loader


def of_tf_data(make: Make, workers: int) -> Iterable[Any]:
    """A ``map`` of tf.data that calls Python, as many times at once."""
    import tensorflow as tf

    def made(number: Any) -> Any:
        make(int(number))
        return number

    numbers = tf.data.Dataset.range(ENDLESS)
    called = numbers.map(
        lambda number: tf.py_function(made, [number], tf.int64), num_parallel_calls=workers
    )
    ready: Iterable[Any] = called.prefetch(_READY)
    return ready


BATCHES: Final[Mapping[str, Callable[[Make, int], Iterable[Any]]]] = MappingProxyType(
    {
        "generator": in_the_training_thread,
        "threads": of_threads,
        "processes": of_processes,
        "DataLoader": of_data_loader,
        "tf.data": of_tf_data,
    }
)
"""By kind of loader. A ``PyDataset`` is missing: Keras iterates it."""


def _taken_from(ready: Any, kind: Callable[..., Any], make: Make, workers: int) -> Iterator[int]:
    for first in range(workers):
        kind(target=_keep_making, args=(make, ready, first, workers), daemon=True).start()
    while True:
        yield ready.get()


def _keep_making(make: Make, ready: Any, first: int, step: int) -> None:
    for number in count(first, step):
        make(number)
        ready.put(number)
