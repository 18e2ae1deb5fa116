"""A JAX training loop of one's own, tagged with ``timed``, ``phase`` and ``step``.

    python -m trainer_hooks.examples.jax_training --spans /tmp/busy.jsonl

It learns to classify rows that a slow store holds. With ``--workers 4`` the
batches are read ahead by threads. JAX may return from a step before the device
has computed it: what then is lost is only what the device waits, and gpumon
joins these phases with what it measures on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp

from trainer_hooks import phase, step, timed
from trainer_hooks.examples.busy_spans import BusySpans
from trainer_hooks.examples.command_line import example_parser, positive, run_of
from trainer_hooks.examples.read_ahead import read_ahead
from trainer_hooks.examples.slow_store import CLASSES, FEATURES, Batch, SlowStore, make_store
from trainer_hooks.examples.step_noter import StepNoter, noted_in_jax

Weights = list[Any]
TrainStep = Callable[[Weights, Any, Any], tuple[Weights, Any]]


def new_weights(width: int) -> Weights:
    """Two hidden layers."""
    sizes = [FEATURES, width, width, CLASSES]
    keys = jax.random.split(jax.random.key(0), 3)
    return [
        jax.random.normal(key, shape) * (2 / shape[0]) ** 0.5
        for key, shape in zip(keys, pairwise(sizes), strict=True)
    ]


def loss_of(weights: Weights, rows: Any, labels: Any) -> Any:
    """Cross entropy of a batch."""
    hidden = rows
    for layer in weights[:-1]:
        hidden = jax.nn.relu(hidden @ layer)
    chances = jax.nn.log_softmax(hidden @ weights[-1])
    return -jnp.take_along_axis(chances, labels[:, None], axis=1).mean()


def measured_step(spans: BusySpans) -> TrainStep:
    """A compiled step that notes, from inside, when it ran.

    The notes are host callbacks within the compiled program: the first needs
    the batch, the last needs every updated weight.
    """
    begin, end = noted_in_jax(StepNoter(spans))

    def train_step(weights: Weights, rows: Any, labels: Any) -> tuple[Weights, Any]:
        loss, gradients = jax.value_and_grad(loss_of)(weights, begin(rows), labels)
        weights = [old - 0.05 * slope for old, slope in zip(weights, gradients, strict=True)]
        return weights, end(loss, weights)

    compiled: TrainStep = jax.jit(train_step)
    return compiled


def train(batches: Iterable[Batch], width: int, spans: BusySpans) -> tuple[int, float]:
    """Train on every batch; how many steps that were, and the last loss."""
    weights, train_step = new_weights(width), measured_step(spans)
    steps, loss = 0, jnp.zeros(())
    for rows, labels in timed(batches):
        with phase("train_step" if steps else "compile"):
            weights, loss = train_step(weights, rows, labels)
        step(samples=len(labels))
        steps += 1
    with phase("device_sync"):
        return steps, float(loss)


def main(argv: Sequence[str] | None = None) -> int:
    """Train once and print one JSON line about it."""
    parser = example_parser(__doc__, workers="threads that read ahead")
    parser.add_argument("--width", type=positive, default=1024, help="of the two hidden layers")
    args = parser.parse_args(argv)
    with run_of(args) as run:
        make_store(run.folder)
        store = SlowStore(run.folder, batches=args.steps, latency_s=args.latency_ms / 1000)
        batches = read_ahead(store.__getitem__, batches=args.steps, workers=args.workers)
        run.starts()
        steps, loss = train(batches, args.width, run.spans)
        run.tell(steps=steps, loss=loss)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
