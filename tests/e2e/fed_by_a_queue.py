"""A training loop whose batches come from a worker process, too late: it knows nothing of tags.

``python fed_by_a_queue.py SPANS``
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from multiprocessing.queues import Queue
from pathlib import Path

from trainer_hooks.examples.busy_spans import BusySpans


def read_batches(batches: Queue[int]) -> None:
    for number in range(1_000_000):
        decode_images()
        batches.put(number)


def decode_images() -> None:
    until_s = time.monotonic() + 4.5
    while time.monotonic() < until_s:
        sum(range(1_000))


def train(spans: BusySpans, batches: Queue[int]) -> None:
    while True:
        batches.get()
        for _ in range(27):
            spans.sleep(0.1)


def main() -> None:
    batches: Queue[int] = multiprocessing.Queue(1)
    worker = multiprocessing.Process(target=read_batches, args=(batches,), daemon=True)
    worker.start()
    with BusySpans(Path(sys.argv[1]), names_process=True) as spans:
        train(spans, batches)


if __name__ == "__main__":
    main()
