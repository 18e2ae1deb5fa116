"""A Keras training on JAX, tagged by one callback: ``callbacks=[PhaseTagger()]``.

    KERAS_BACKEND=jax python -m trainer_hooks.examples.keras_training --spans /tmp/busy.jsonl

It learns to classify rows that a slow store holds, through a ``PyDataset``
with as many ``workers`` as ``--workers`` says.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np

from trainer_hooks import PhaseTagger
from trainer_hooks.examples.busy_spans import BusySpans
from trainer_hooks.examples.slow_store import CLASSES, FEATURES, Batch, make_store, read_batch

_FILES_A_BATCH = 4
_EPOCHS = 3
_STEP_SECONDS = 0.045
_TRIAL_WIDTH = 1024


class SlowStore(keras.utils.PyDataset):  # type: ignore[misc]
    """The batches of a slow store, in the order Keras asks for them."""

    def __init__(self, folder: Path, *, batches: int, latency_s: float, workers: int) -> None:
        super().__init__(workers=max(1, workers), max_queue_size=8)
        self._paths = sorted(folder.glob("part-*.z"))
        self._batches = batches
        self._latency_s = latency_s

    def __len__(self) -> int:
        return self._batches

    def __getitem__(self, index: int) -> Batch:
        first = index * _FILES_A_BATCH
        wanted = [self._paths[(first + k) % len(self._paths)] for k in range(_FILES_A_BATCH)]
        return read_batch(wanted, self._latency_s)


class MeasuredModel(keras.Sequential):  # type: ignore[misc]
    """A model whose compiled step notes, from inside, when it ran.

    The notes are host callbacks within the compiled program: the first needs
    the batch, the last needs every updated weight. No hook of Keras takes part.
    """

    def __init__(self, layers: Sequence[keras.Layer], spans: BusySpans) -> None:
        super().__init__(layers)
        self._noter = _StepNoter(spans)

    def train_step(self, state: Any, data: Any) -> Any:
        """Keras' own step between two notes."""
        rows, labels = data
        rows = jax.pure_callback(
            self._noter.begin, jax.ShapeDtypeStruct(rows.shape, rows.dtype), rows
        )
        logs, state = super().train_step(state, (rows, labels))
        touched = [jnp.ravel(weights)[0] for weights in state[0]]
        scalar = jax.ShapeDtypeStruct((), jnp.float32)
        logs["loss"] = jax.pure_callback(self._noter.end, scalar, logs["loss"], *touched)
        return logs, state


def width_for(step_seconds: float) -> int:
    """How wide a layer makes a step of about that length on this machine."""
    weights = jnp.ones((_TRIAL_WIDTH, _TRIAL_WIDTH))
    rows = jnp.ones((128, _TRIAL_WIDTH))
    step = jax.jit(jax.grad(lambda w: jnp.square(rows @ w).sum()))
    step(weights).block_until_ready()
    started_s = time.monotonic()
    for _ in range(10):
        step(weights).block_until_ready()
    trial_s = (time.monotonic() - started_s) / 10
    # The trial makes two products of its width squared; the model makes three, and two of its
    # width times the features of a row: a quadratic equation in the width.
    wanted = 2 * _TRIAL_WIDTH**2 * step_seconds / trial_s
    return round(min(8192.0, (math.sqrt(FEATURES**2 + 3 * wanted) - FEATURES) / 3))


class _StepNoter:
    """Turns the two notes of a step into one busy span."""

    def __init__(self, spans: BusySpans) -> None:
        self._spans = spans
        self._began_ns = 0

    def begin(self, rows: Any) -> Any:
        self._began_ns = time.monotonic_ns()
        return np.asarray(rows)

    def end(self, loss: Any, *_: Any) -> Any:
        self._spans.note(self._began_ns, time.monotonic_ns())
        return np.asarray(loss, dtype=np.float32)


def main(argv: Sequence[str] | None = None) -> int:
    """Train once and print one JSON line about it."""
    args = _parser().parse_args(argv)
    per_epoch = max(1, args.steps // _EPOCHS)
    width = args.passes or width_for(_STEP_SECONDS)
    with tempfile.TemporaryDirectory() as name, BusySpans(args.spans, args.gpu) as spans:
        make_store(Path(name))
        store = SlowStore(
            Path(name),
            batches=per_epoch,
            latency_s=args.latency_ms / 1000,
            workers=args.workers,
        )
        model = MeasuredModel(
            [
                keras.Input((FEATURES,)),
                keras.layers.Dense(width, activation="relu"),
                keras.layers.Dense(width, activation="relu"),
                keras.layers.Dense(CLASSES, activation="softmax"),
            ],
            spans,
        )
        model.compile("sgd", "sparse_categorical_crossentropy")
        started_ns = time.monotonic_ns()
        history = model.fit(store, epochs=_EPOCHS, verbose=0, callbacks=[PhaseTagger()])
        wall_ns = time.monotonic_ns() - started_ns
    result = {
        "steps": per_epoch * _EPOCHS,
        "loss": history.history["loss"][-1],
        "wall_seconds": wall_ns / 1e9,
        "busy_seconds": spans.busy_ns / 1e9,
        "passes": width,
    }
    print(json.dumps(result), flush=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--spans", type=Path, required=True, help="where the true busy spans go")
    parser.add_argument("--gpu", type=int, default=0, help="the simulated GPU they belong to")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--workers", type=int, default=0, help="of the PyDataset")
    parser.add_argument("--latency-ms", type=float, default=12.0, help="of each of 4 files a batch")
    parser.add_argument(
        "--passes",
        type=int,
        default=0,
        help="width of the hidden layers; 0: for about 45 ms a step",
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
