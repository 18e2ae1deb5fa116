"""A Keras training on GPUs of unequal speed, simulated: one waits for the other in each step.

    gpumon serve --source follow:/tmp/busy.jsonl
    python -m trainer_hooks.examples.unequal_gpus --spans /tmp/busy.jsonl

``gpumon report`` then says which GPU waits, how long, and which ratios would level them. Type
these while it trains, such as ``3 2``, and the next step is split so; ``stop`` ends the training.
The model is that of any script; ``multi_gpu_model`` and ``PhaseTagger`` are all that is added.
"""

from __future__ import annotations

import argparse
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

import keras
import numpy as np
import tensorflow as tf

from gpumon.core.join.batch_shares import checked_ratios
from trainer_hooks import PhaseTagger, multi_gpu
from trainer_hooks.examples import keras_parts as parts
from trainer_hooks.examples.busy_spans import BusySpans, imbalance_seconds, input_seconds
from trainer_hooks.examples.example_run import natural, non_negative, positive, spans_parser, tell
from trainer_hooks.multi_gpu.device_names import STAND_INS

_FEATURES: Final = 8
_CLASSES: Final = 3
_STDIN: Final = 0


def slow_rows(args: argparse.Namespace, sleeps: parts.Sleeps) -> parts.SlowBatches:
    """The same batch again and again, each of which takes a while to come."""
    random = np.random.default_rng(0)
    rows = random.normal(size=(args.batch, _FEATURES)).astype(np.float32)
    labels = random.integers(0, _CLASSES, args.batch)

    def read(number: int) -> tuple[Any, Any]:
        sleeps.sleep(parts.INPUT, args.latency_ms / 1000)
        return rows, labels

    return parts.SlowBatches(read, args.steps)


class TypedRatios(keras.callbacks.Callback):  # type: ignore[misc]
    """Splits as somebody types it: ``3 2`` and Enter; ``stop`` ends the training.

    Args:
        read: What was typed since it was last asked; never waits. ``None``: nobody types any more.
    """

    def __init__(self, read: Callable[[], bytes | None]) -> None:
        super().__init__()
        self._read = read
        self._rest = b""
        self._is_open = True

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        for line in self._lines():
            if line == "stop":
                self.model.stop_training = True
            elif line:
                self._split(line)

    def _lines(self) -> Iterator[str]:
        typed = self._read() if self._is_open else None
        self._is_open = typed is not None
        *lines, self._rest = (self._rest + (typed or b"")).split(b"\n")
        for line in lines:
            yield line.decode(errors="replace").strip()

    def _split(self, line: str) -> None:
        try:
            self.model.ratios = [float(word) for word in line.replace(":", " ").split()]
        except ValueError as error:
            print(f"{line!r} changes nothing: {error}", flush=True)
        else:
            print(f"Batches are split {line} from the next step on.", flush=True)


def typed() -> bytes | None:
    """What came by standard input and was not read yet; ``None``: it is closed."""
    ready, _, _ = select.select([_STDIN], [], [], 0)
    return (os.read(_STDIN, 4096) or None) if ready else b""


def main(argv: Sequence[str] | None = None) -> int:
    """Train once; say what to do, and at the end, in one JSON line, what the GPUs did.

    In it, ``imbalance_seconds`` is, for each GPU, how long it stood still while another
    computed, and ``input_seconds`` how long all did until a batch came, between the first step
    and the last.
    """
    parser = _parser()
    args = parser.parse_args(argv)
    count = len(args.speeds)
    try:
        ratios = checked_ratios(args.ratios or [1] * count, count)
    except ValueError as error:
        parser.error(str(error))
    if keras.backend.backend() != "tensorflow":
        parser.error("set KERAS_BACKEND=tensorflow: only there Keras splits batches in ratios")
    os.environ[STAND_INS] = str(count)
    # A GPU that is simulated by a sleep keeps a thread of TensorFlow's.
    tf.config.threading.set_inter_op_parallelism_threads(count + 4)
    spans = [BusySpans(args.spans, args.first_gpu + number) for number in range(count)]
    print(_what_to_do(args.spans, args.speeds, ratios), flush=True)
    try:
        _train(args, ratios, spans)
    except KeyboardInterrupt:
        return 130
    return 0


def _train(args: argparse.Namespace, ratios: Sequence[float], spans: Sequence[BusySpans]) -> None:
    # CPU:0 stays the host; the next ones stand for the GPUs.
    stand_ins = {
        f"CPU:{number}": parts.SleepingGpu(speed, of_gpu.note)
        for number, (speed, of_gpu) in enumerate(zip(args.speeds, spans, strict=True), start=1)
    }
    multi_gpu_model = multi_gpu.multi_gpu_model  # before TensorFlow starts: it makes the stand-ins
    template = keras.Sequential(
        [
            keras.Input((_FEATURES,)),
            keras.layers.Dense(16, activation="relu"),
            parts.SleepingCompute(stand_ins),
            keras.layers.Dense(_CLASSES, activation="softmax"),
        ]
    )
    gpus = list(range(len(stand_ins)))
    model = multi_gpu_model(template, gpus=gpus, ratios=ratios)
    model.compile("sgd", "sparse_categorical_crossentropy")
    sleeps = parts.Sleeps()
    data = slow_rows(args, sleeps)
    tagger = PhaseTagger(run=args.run, gpus=[args.first_gpu + gpu for gpu in gpus])
    began_s = time.monotonic()

    def say(_: object = None) -> None:
        spans_ns = [of_gpu.spans_ns for of_gpu in spans]
        tell(
            {
                "steps": int(model.optimizer.iterations.numpy()),
                "ratios": model.ratios,
                "wall_seconds": time.monotonic() - began_s,
                "busy_seconds": [of_gpu.busy_ns / 1e9 for of_gpu in spans],
                "imbalance_seconds": imbalance_seconds(spans_ns),
                "input_seconds": input_seconds(
                    chain.from_iterable(spans_ns), sleeps.spans_ns.get(parts.INPUT, [])
                ),
            }
        )

    # Not after ``fit``: TensorFlow may take seconds more to let go of batches that nobody wants.
    at_the_end = keras.callbacks.LambdaCallback(on_train_end=say)
    callbacks = [tagger, TypedRatios(typed), at_the_end]
    try:
        model.fit(data, epochs=args.epochs, verbose=0, callbacks=callbacks)
    except KeyboardInterrupt:
        say()
        raise


def _what_to_do(spans: Path, speeds: Sequence[float], ratios: Sequence[float]) -> str:
    return (
        f"{len(speeds)} simulated GPUs of {' and '.join(f'{speed:g}' for speed in speeds)} "
        f"samples/s, batches split {':'.join(f'{ratio:g}' for ratio in ratios)}.\n"
        f"Watch them by `gpumon serve --source follow:{spans}`; after 10 s, `gpumon report` says "
        "who waits for whom.\n"
        "Type the ratios that it names, such as `3 2`, and press Enter: the next step is split so. "
        "`stop` ends it."
    )


def _parser() -> argparse.ArgumentParser:
    parser = spans_parser(__doc__)
    parser.add_argument(
        "--speeds", type=positive, nargs="+", default=[480, 320], help="of the GPUs, in samples/s"
    )
    parser.add_argument(
        "--ratios", type=non_negative, nargs="+", help="one for each GPU; else even"
    )
    parser.add_argument("--batch", type=positive, default=60, help="samples in each batch")
    parser.add_argument("--steps", type=positive, default=100, help="steps in an epoch")
    parser.add_argument("--epochs", type=positive, default=3)
    parser.add_argument(
        "--latency-ms", type=non_negative, default=0.0, help="of each batch's input"
    )
    parser.add_argument("--run", default="unequal", help="what gpumon is to call the training")
    parser.add_argument("--first-gpu", type=natural, default=0, help="index of the first GPU")
    return parser


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # Threads of TensorFlow's that fetch what nobody wants any more would hold an interpreter's own
    # way out up for seconds, and now and then for good.
    os._exit(code)
