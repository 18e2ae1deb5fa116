"""A JAX training loop of one's own, tagged with ``timed``, ``phase`` and ``step``.

    python -m trainer_hooks.examples.jax_training --spans /tmp/busy.jsonl

It learns to classify rows that a slow store holds. With ``--workers 4`` the
batches are read ahead by threads. JAX may return from a step before the device
has computed it: what then is lost is only what the device waits, and gpumon
joins these phases with what it measures on the device.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp

from trainer_hooks import phase, step, timed
from trainer_hooks.examples.busy_spans import Note, StepNoter, through_jax
from trainer_hooks.examples.example_run import (
    ExampleRun,
    example_parser,
    positive,
    read_ahead,
    run_example,
)
from trainer_hooks.examples.slow_store import CLASSES, FEATURES, SlowStore

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


def measured_step(note: Note) -> TrainStep:
    """A compiled step that notes, from inside, when it ran.

    The notes are host callbacks within the compiled program: the first needs
    the batch, the last needs every updated weight.
    """
    noter = StepNoter(note, through_jax)

    def train_step(weights: Weights, rows: Any, labels: Any) -> tuple[Weights, Any]:
        loss, gradients = jax.value_and_grad(loss_of)(weights, noter.begin(rows), labels)
        weights = [old - 0.05 * slope for old, slope in zip(weights, gradients, strict=True)]
        return weights, noter.end(loss, weights)

    compiled: TrainStep = jax.jit(train_step)
    return compiled


def train(run: ExampleRun) -> None:
    """Train on as many batches as ``--steps`` says."""
    args = run.args
    store = SlowStore(run.folder, batches=args.steps, latency_ms=args.latency_ms)
    batches = read_ahead(store.__getitem__, batches=args.steps, workers=args.workers)
    run.starts()
    weights, train_step = new_weights(args.width), measured_step(run.spans.note)
    steps, loss = 0, jnp.zeros(())
    for rows, labels in timed(batches):
        with phase("train_step" if steps else "compile"):
            weights, loss = train_step(weights, rows, labels)
        step(samples=len(labels))
        steps += 1
    with phase("device_sync"):
        last_loss = float(loss)
    run.tell(steps=steps, loss=last_loss)


if __name__ == "__main__":
    words = example_parser(__doc__, workers="threads that read ahead")
    words.add_argument("--width", type=positive, default=1024, help="of the two hidden layers")
    run_example(words, train)
