"""A Keras training on TensorFlow, JAX or torch, tagged by one callback.

    KERAS_BACKEND=jax python -m trainer_hooks.examples.keras_training --spans /tmp/busy.jsonl

``callbacks=[PhaseTagger()]`` is all that gpumon needs. The model learns to
classify rows that a slow store holds, through a ``PyDataset`` with as many
``workers`` as ``--workers`` says. With ``--slow`` something else than the
input holds it up, for a time that is known.
"""

from __future__ import annotations

import math
import time
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np

from trainer_hooks import PhaseTagger
from trainer_hooks.examples import keras_parts as parts
from trainer_hooks.examples.busy_spans import Note, unoccupied_seconds
from trainer_hooks.examples.example_run import (
    ExampleRun,
    example_parser,
    natural,
    non_negative,
    run_example,
)
from trainer_hooks.examples.slow_store import CLASSES, FEATURES, SlowStore

_EPOCHS = 3
_STEP_SECONDS = 0.045
_TRIAL_WIDTH = 1024
_TRIALS = 8
_VALIDATION_BATCHES = 4
_ROWS_A_BATCH = 128


def make_model(width: int, note: Note, *more: keras.Layer, steps_per_execution: int = 1) -> Any:
    """Return a compiled classifier that records when it computes, with ``more`` layers."""
    layers = [
        keras.Input((FEATURES,)),
        keras.layers.Dense(width, activation="relu"),
        keras.layers.Dense(width, activation="relu"),
        *more,
        keras.layers.Dense(CLASSES, activation="softmax"),
    ]
    model = parts.MeasuredModel(layers, note)
    model.compile("sgd", "sparse_categorical_crossentropy", steps_per_execution=steps_per_execution)
    return model


def width_for(step_seconds: float) -> int:
    """Return the width of the hidden layers for a step of about that length on this machine."""
    model = make_model(_TRIAL_WIDTH, lambda *_: None)  # no part of the run
    rows = np.zeros((_ROWS_A_BATCH, FEATURES), np.float32)
    labels = np.zeros(_ROWS_A_BATCH, np.int64)
    trials_s = []
    for _ in range(2 + _TRIALS):
        started_s = time.monotonic()
        model.train_on_batch(rows, labels)
        trials_s.append(time.monotonic() - started_s)
    # The first two compile; of the others the fastest was disturbed least. A step makes three
    # products of the width squared, and two of the width times the features of a row.
    trial = 3 * _TRIAL_WIDTH**2 + 2 * FEATURES * _TRIAL_WIDTH
    wanted = trial * step_seconds / min(trials_s[2:])
    return round(min(8192.0, (math.sqrt(FEATURES**2 + 3 * wanted) - FEATURES) / 3))


def train(run: ExampleRun) -> None:
    """Train for some epochs.

    In its result, ``slept_seconds`` is how long each cause held the run up, and
    ``idle_seconds`` how much of that the compute stood still.
    """
    args, folder, spans, sleeps = run.args, run.folder, run.spans, parts.Sleeps()
    width = args.passes or width_for(_STEP_SECONDS)
    steps = max(1, args.steps // _EPOCHS)
    latency_ms = args.latency_ms if args.slow == parts.INPUT else 0.0
    store = SlowStore(folder, steps, latency_ms, sleep=partial(sleeps.sleep, parts.INPUT))
    times = {
        parts.CHECKPOINT: _EPOCHS,
        parts.VALIDATION: _EPOCHS * _VALIDATION_BATCHES,
        parts.CALLBACK: _EPOCHS * steps,
    }
    each_s = args.slow_seconds / times.get(args.slow, 1)
    callbacks = [PhaseTagger(), *parts.slow_callbacks(args.slow, each_s, sleeps, folder)]
    layers, options = [], dict[str, Any]()
    if args.slow == parts.COMPILE:
        layers = [parts.SlowToTrace(sleeps)]
        callbacks.append(layers[0].armed_by(each_s))
    if args.slow == parts.VALIDATION:
        options["validation_data"] = _validation_rows(folder)
        options["validation_batch_size"] = _ROWS_A_BATCH

    def print_result(logs: object) -> None:
        run.print_result(
            steps=steps * _EPOCHS,
            loss=model.history.history["loss"][-1],
            passes=width,
            slow=args.slow,
            slept_seconds=sleeps.seconds(),
            idle_seconds={
                cause: unoccupied_seconds(slept, spans.spans_ns)
                for cause, slept in sleeps.spans_ns.items()
            },
        )

    # At the end of training, not of ``fit``: TensorFlow may need seconds more to release a
    # loader that is working on further batches.
    callbacks.append(keras.callbacks.LambdaCallback(on_train_end=print_result))
    model = make_model(width, spans.note, *layers, steps_per_execution=args.steps_per_execution)
    data = parts.SlowBatches(store.__getitem__, steps, workers=args.workers)
    run.starts()
    model.fit(data, epochs=_EPOCHS, verbose=0, callbacks=callbacks, **options)


def _validation_rows(folder: Path) -> tuple[Any, Any]:
    """Return rows and labels in memory: validation waits for no input."""
    store = SlowStore(folder, _VALIDATION_BATCHES, 0.0)
    rows, labels = zip(*(store[number] for number in range(len(store))), strict=True)
    return np.concatenate(rows), np.concatenate(labels)


def main() -> None:
    """Train once."""
    parser = example_parser(__doc__, workers="of the PyDataset")
    parser.add_argument(
        "--slow", choices=parts.CAUSES, default=parts.INPUT, help="what holds it up"
    )
    parser.add_argument(
        "--slow-seconds", type=non_negative, default=5.0, help="of any other cause, in all"
    )
    parser.add_argument(
        "--steps-per-execution", type=natural, default=1, help="batches that Keras trains on a call"
    )
    parser.add_argument(
        "--passes",
        type=natural,
        default=0,
        help="width of the hidden layers; 0: for about 45 ms a step",
    )
    if parser.parse_args().slow == parts.COMPILE and keras.backend.backend() == "torch":
        parser.error("--slow compile: torch runs each step as it is and compiles nothing")
    run_example(parser, train)


if __name__ == "__main__":
    main()
