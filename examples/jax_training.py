"""A JAX training loop of one's own, tagged with ``timed``, ``phase`` and ``step``.

    python examples/jax_training.py --spans /tmp/busy.jsonl

It learns to classify rows that a slow store holds. With ``--workers 4`` the
batches are read ahead by threads. JAX may return from a step before the device
has computed it: what then is lost is only what the device waits, and gpumon
joins these phases with what it measures on the device.
"""

from itertools import pairwise

import jax
import jax.numpy as jnp

from trainer_hooks import phase, step, timed
from trainer_hooks.examples.busy_spans import StepNoter, through_jax
from trainer_hooks.examples.example_run import example_parser, positive, read_ahead, run_example
from trainer_hooks.examples.slow_store import CLASSES, FEATURES, SlowStore


def new_weights(width):
    """Two hidden layers."""
    shapes = pairwise([FEATURES, width, width, CLASSES])
    keys = jax.random.split(jax.random.key(0), 3)
    return [
        jax.random.normal(key, shape) * (2 / shape[0]) ** 0.5
        for key, shape in zip(keys, shapes, strict=True)
    ]


def loss_of(weights, rows, labels):
    """Cross entropy of a batch."""
    hidden = rows
    for layer in weights[:-1]:
        hidden = jax.nn.relu(hidden @ layer)
    chances = jax.nn.log_softmax(hidden @ weights[-1])
    return -jnp.take_along_axis(chances, labels[:, None], axis=1).mean()


def measured_step(note):
    """A compiled step that notes, from inside, when it ran.

    The notes are host callbacks within the compiled program: the first needs
    the batch, the last needs every updated weight.
    """
    noter = StepNoter(note, through_jax)

    @jax.jit
    def train_step(weights, rows, labels):
        loss, gradients = jax.value_and_grad(loss_of)(weights, noter.begin(rows), labels)
        weights = [old - 0.05 * slope for old, slope in zip(weights, gradients, strict=True)]
        return weights, noter.end(loss, weights)

    return train_step


def train(run):
    """Train on as many batches as ``--steps`` says."""
    args = run.args
    store = SlowStore(run.folder, args.steps, args.latency_ms)
    batches = read_ahead(store.__getitem__, batches=args.steps, workers=args.workers)
    run.starts()
    weights, train_step = new_weights(args.width), measured_step(run.spans.note)
    for number, (rows, labels) in enumerate(timed(batches)):
        with phase("train_step" if number else "compile"):
            weights, loss = train_step(weights, rows, labels)
        step(samples=len(labels))
    with phase("device_sync"):
        last_loss = float(loss)
    run.print_result(steps=args.steps, loss=last_loss)


if __name__ == "__main__":
    words = example_parser(__doc__, workers="threads that read ahead")
    words.add_argument("--width", type=positive, default=1024, help="of the two hidden layers")
    run_example(words, train)
