"""A run in plain Python, tagged with ``phase()``: no library, no framework, no GPU.

    python -m trainer_hooks.examples.plain_training --spans /tmp/busy.jsonl --workers 0

It learns to classify rows that a slow store holds. With ``--workers 0`` each
step waits for its batch; with a few workers the batches are read ahead, by
threads that share the interpreter with the compute: they need it for little,
and wait for the store and unpack without it.
"""

from __future__ import annotations

import math
import random
import time
from array import array
from collections.abc import Sequence
from functools import partial
from operator import mul

from trainer_hooks import phase, step, timed
from trainer_hooks.examples.example_run import (
    ExampleRun,
    example_parser,
    natural,
    read_ahead,
    run_example,
)
from trainer_hooks.examples.slow_store import SlowStore

_HIDDEN = 12
SHAPE = _FEATURES, _CLASSES, _ = 48, 4, 8
"""Of the store: features of a row, classes, and rows of a file."""
_STEP_S = 0.045
"""Long enough for 300 steps to be diagnosed, even if the machine speeds up by a quarter."""
_TRIED = 40
_RATE = 0.003
"""How far each row moves the weights."""

Batch = list[tuple["array[float]", int]]
"""Rows, each with its label."""


class PlainNet:
    """A small classifier of two layers, with its gradient written out."""

    def __init__(self) -> None:
        draw = random.Random(0).gauss
        self._first = [[0.1 * draw(0, 1) for _ in range(_FEATURES)] for _ in range(_HIDDEN)]
        self._second = [[0.1 * draw(0, 1) for _ in range(_HIDDEN)] for _ in range(_CLASSES)]

    def train(self, batch: Batch, *, passes: int) -> float:
        """Go ``passes`` times over one batch; the mean loss of the first, before it learned."""
        losses = [sum(self._descend(row, label) for row, label in batch) for _ in range(passes)]
        return losses[0] / len(batch)

    def _descend(self, row: array[float], label: int) -> float:
        hidden = [max(0.0, sum(map(mul, row, weights))) for weights in self._first]
        chances = _softmax([sum(map(mul, hidden, weights)) for weights in self._second])
        errors = [chance - (number == label) for number, chance in enumerate(chances)]
        for unit, value in enumerate(hidden):
            if value > 0.0:
                back = _RATE * sum(
                    error * weights[unit]
                    for error, weights in zip(errors, self._second, strict=True)
                )
                weights = self._first[unit]
                self._first[unit] = [
                    weight - back * feature for weight, feature in zip(weights, row, strict=True)
                ]
        for number, error in enumerate(errors):
            weights = self._second[number]
            self._second[number] = [
                weight - _RATE * error * value
                for weight, value in zip(weights, hidden, strict=True)
            ]
        return -math.log(chances[label] + 1e-9)


def _softmax(scores: Sequence[float]) -> list[float]:
    highest = max(scores)
    powers = [math.exp(score - highest) for score in scores]
    total = sum(powers)
    return [power / total for power in powers]


def read_batch(store: SlowStore, number: int) -> Batch:
    """The rows of one batch."""
    values = store.read(number)
    return [
        (values[at : at + _FEATURES], int(values[at + _FEATURES]))
        for at in range(0, len(values), _FEATURES + 1)
    ]


def passes_for(step_s: float, batch: Batch) -> int:
    """How many passes over a batch make a step of about that length on this machine.

    By the fastest of some passes, in the processor's time and not the clock's: whatever else runs
    meanwhile makes them slow, and steps that are made of too few are short once it is over.
    """
    net = PlainNet()
    net.train(batch, passes=3)
    tried_s = []
    for _ in range(_TRIED):
        started_s = time.thread_time()
        net.train(batch, passes=1)
        tried_s.append(time.thread_time() - started_s)
    return max(1, round(step_s / max(1e-6, min(tried_s))))


def train(run: ExampleRun) -> None:
    """Train on as many batches as ``--steps`` says."""
    args = run.args
    with phase("start_up"):
        read = partial(read_batch, SlowStore(run.folder, args.steps, args.latency_ms, shape=SHAPE))
        passes = args.passes or passes_for(_STEP_S, read(0))
        net, losses = PlainNet(), []
    run.starts()
    for batch in timed(read_ahead(read, batches=args.steps, workers=args.workers)):
        with phase("train_step"):
            losses.append(run.spans.measure(partial(net.train, batch, passes=passes)))
        step(samples=len(batch))
    run.print_result(steps=len(losses), first_loss=losses[0], loss=losses[-1], passes=passes)


if __name__ == "__main__":
    words = example_parser(__doc__, workers="threads that read ahead")
    words.add_argument("--passes", type=natural, default=0, help="compute a step; 0: about 45 ms")
    run_example(words, train)
