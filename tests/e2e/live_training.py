"""A training run on a followed GPU as users write it: a loader's generator, a step, a count.

python live_training.py SPANS GPU KIND

first_batch     the first batch never comes
later           works, and then a batch never comes
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

from trainer_hooks import phase, step, timed
from trainer_hooks.examples.busy_spans import BusySpans

STEP_S = 0.1
FOR_EVER_S = 3600.0
STEPS_BEFORE_HANG = 40


def main(spans: str, gpu: str, kind: str) -> None:
    """Train until the process is ended."""
    with BusySpans(Path(spans), int(gpu)) as device:
        for _ in timed(BATCHES[kind]()):
            with phase("train_step"):
                device.measure(lambda: time.sleep(STEP_S))
            step(samples=32)


def no_batch() -> Iterator[int]:
    """No batch, for ever."""
    time.sleep(FOR_EVER_S)
    yield 0


def batches_that_end() -> Iterator[int]:
    """Some batches, and then none for ever."""
    yield from range(STEPS_BEFORE_HANG)
    time.sleep(FOR_EVER_S)


BATCHES = {
    "first_batch": no_batch,
    "later": batches_that_end,
}


if __name__ == "__main__":
    main(*sys.argv[1:])
