"""A training loop in plain NumPy, tagged with ``phase()``: no framework, no GPU.

    python -m trainer_hooks.examples.numpy_training --spans /tmp/busy.jsonl --workers 0

It learns to classify rows that a slow store holds. With ``--workers 0`` each
step waits for its batch; with a few workers the batches are read ahead.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainer_hooks import phase, step, timed
from trainer_hooks.examples.busy_spans import BusySpans
from trainer_hooks.examples.command_line import example_parser, natural
from trainer_hooks.examples.slow_store import (
    CLASSES,
    FEATURES,
    Batch,
    make_store,
    prefetch_batches,
    read_batches,
)

_HIDDEN = 512


class TwoLayerNet:
    """A small classifier with a hand-written gradient."""

    def __init__(self, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        self._first = (random.normal(size=(FEATURES, _HIDDEN)) * 0.05).astype(np.float32)
        self._second = (random.normal(size=(_HIDDEN, CLASSES)) * 0.05).astype(np.float32)

    def train(self, batch: Batch, *, passes: int, rate: float = 0.05) -> float:
        """Take ``passes`` gradient steps on one batch; the loss of the last."""
        features, labels = batch
        loss = 0.0
        for _ in range(passes):
            loss = self._descend(features, labels, rate)
        return loss

    def _descend(
        self, features: NDArray[np.float32], labels: NDArray[np.int64], rate: float
    ) -> float:
        hidden = np.maximum(features @ self._first, 0.0)
        scores = hidden @ self._second
        scores -= scores.max(axis=1, keepdims=True)
        chances = np.exp(scores)
        chances /= chances.sum(axis=1, keepdims=True)
        rows = np.arange(len(labels))
        loss = float(-np.log(chances[rows, labels] + 1e-9).mean())
        chances[rows, labels] -= 1.0
        chances /= len(labels)
        back = (chances @ self._second.T) * (hidden > 0)
        self._second -= rate * (hidden.T @ chances)
        self._first -= rate * (features.T @ back)
        return loss


def passes_for(step_seconds: float) -> int:
    """How many passes over a batch make a step of about that length on this machine."""
    random = np.random.default_rng(1)
    batch = (
        random.normal(size=(128, FEATURES)).astype(np.float32),
        random.integers(0, CLASSES, size=128),
    )
    net = TwoLayerNet()
    net.train(batch, passes=3)
    started_s = time.monotonic()
    net.train(batch, passes=10)
    return max(1, round(step_seconds * 10 / (time.monotonic() - started_s)))


def main(argv: Sequence[str] | None = None) -> int:
    """Train once and print one JSON line about it."""
    parser = example_parser(__doc__, workers="threads that read ahead")
    parser.add_argument("--passes", type=natural, default=0, help="compute a step; 0: about 40 ms")
    args = parser.parse_args(argv)
    with phase("start_up"), tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_store(folder)
        passes = args.passes or passes_for(0.040)
        batches = _batches(folder, args)
        with phase("other"), BusySpans(args.spans, args.gpu) as spans:
            result = _train(batches, passes, spans)
    print(json.dumps({**result, "passes": passes}), flush=True)
    return 0


def _batches(folder: Path, args: argparse.Namespace) -> Iterator[Batch]:
    latency_s = args.latency_ms / 1000
    if args.workers:
        return prefetch_batches(
            folder, batches=args.steps, latency_s=latency_s, workers=args.workers
        )
    return read_batches(folder, batches=args.steps, latency_s=latency_s)


def _train(batches: Iterator[Batch], passes: int, spans: BusySpans) -> dict[str, float]:
    net, loss, steps = TwoLayerNet(), 0.0, 0
    started_ns = time.monotonic_ns()
    for batch in timed(batches):
        with phase("train_step"):
            loss = spans.measure(partial(net.train, batch, passes=passes))
        step(samples=len(batch[1]))
        steps += 1
    wall_ns = time.monotonic_ns() - started_ns
    return {
        "steps": steps,
        "loss": loss,
        "wall_seconds": wall_ns / 1e9,
        "busy_seconds": spans.busy_ns / 1e9,
    }


if __name__ == "__main__":
    raise SystemExit(main())
