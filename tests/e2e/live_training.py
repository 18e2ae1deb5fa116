"""A training on a followed GPU as people write them: a loader's generator, a step, a count.

python live_training.py SPANS GPU KIND

epochs          each epoch waits a second for its first batch, and for no other
first_batch     the first batch never comes
later           works, and then a batch never comes
evaluates       evaluates after every eight steps, without a tag; no batch is late
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
LATE_S = 1.0
STEPS_OF_EPOCH = 12
STEPS_BEFORE_HANG = 40
STEPS_BETWEEN_EVALUATIONS = 8


def main(spans: str, gpu: str, kind: str) -> None:
    """Train until somebody ends the process."""
    with BusySpans(Path(spans), int(gpu)) as device:
        steps = itertools.count(1)
        for _ in itertools.count():
            for _ in timed(BATCHES[kind]()):
                with phase("train_step"):
                    device.measure(lambda: time.sleep(STEP_S))
                step(samples=32)
                if kind == "evaluates" and next(steps) % STEPS_BETWEEN_EVALUATIONS == 0:
                    time.sleep(LATE_S)


def batches_of_an_epoch() -> Iterator[int]:
    """Batches of a loader that begins anew, which takes a while."""
    time.sleep(LATE_S)
    yield from range(STEPS_OF_EPOCH)


def no_batch() -> Iterator[int]:
    """No batch, for ever."""
    time.sleep(FOR_EVER_S)
    yield 0


def batches_that_end() -> Iterator[int]:
    """Some batches, and then none for ever."""
    yield from range(STEPS_BEFORE_HANG)
    time.sleep(FOR_EVER_S)


def batches_in_time() -> Iterator[int]:
    """One batch after the other, at once."""
    return itertools.count()


BATCHES = {
    "epochs": batches_of_an_epoch,
    "first_batch": no_batch,
    "later": batches_that_end,
    "evaluates": batches_in_time,
}


if __name__ == "__main__":
    main(*sys.argv[1:])
