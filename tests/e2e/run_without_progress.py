"""A training run on a followed GPU that makes no progress, in one way each.

python run_without_progress.py SPANS GPU KIND [FIFO]

first_batch     its first batch never comes
later           works, and then a batch never comes
stops           prints a line while it waits for a batch, so that a test can stop it there
leads           rank 0 of a job of two: prints a line within a step; writes to FIFO in each step
follows         rank 1: waits in each step until rank 0 has written
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from trainer_hooks import phase, step, timed
from trainer_hooks.examples.busy_spans import BusySpans

STEP_S = 0.1
FOR_EVER_S = 3600.0
STEPS_BEFORE_HANG = 40
STEPS_BEFORE_STOP = 10
REST_S = 0.5


def main(spans: str, gpu: str, kind: str, fifo: str = "") -> None:
    """Train until the process is ended."""
    with BusySpans(Path(spans), int(gpu)) as device:
        if fifo:
            train_as_rank(device, kind, Path(fifo))
        for _ in timed(BATCHES[kind]()):
            with phase("train_step"):
                device.measure(lambda: time.sleep(STEP_S))
            step(samples=32)


def rest() -> None:
    """Print that the process can be stopped here, and stay here for a while."""
    print("here", flush=True)
    time.sleep(REST_S)


def no_batch() -> Iterator[int]:
    """No batch, for ever."""
    time.sleep(FOR_EVER_S)
    yield 0


def batches_that_end() -> Iterator[int]:
    """Some batches, and then none for ever."""
    yield from range(STEPS_BEFORE_HANG)
    time.sleep(FOR_EVER_S)


def batches_with_a_rest() -> Iterator[int]:
    """Some batches, a rest, and more batches."""
    yield from range(STEPS_BEFORE_STOP)
    rest()
    yield from itertools.count()


BATCHES = {"first_batch": no_batch, "later": batches_that_end, "stops": batches_with_a_rest}


def train_as_rank(device: BusySpans, kind: str, fifo: Path) -> None:
    """Train in step with the other rank, by one byte for each step."""
    with fifo.open("r+b", buffering=0) as pipe:
        for number in itertools.count(1):
            with phase("input_wait"):
                time.sleep(0.002)
            with phase("train_step"):
                device.sleep(STEP_S)
                if kind == "follows":
                    pipe.read(1)
                else:
                    pipe.write(b".")
                    if number == STEPS_BEFORE_STOP:
                        rest()
            step()


if __name__ == "__main__":
    main(*sys.argv[1:])
