"""Train a Keras model on simulated GPUs of unequal speed: one waits for the other in each step.

    gpumon serve --source follow:/tmp/busy.jsonl
    python examples/unequal_gpus.py --spans /tmp/busy.jsonl

``gpumon report`` then shows which GPU waits, how long, and which ratios would balance them. Type
ratios during training, such as ``3 2``, to use them from the next step on; ``stop`` ends it. The
script is an ordinary one with ``multi_gpu_model`` and ``PhaseTagger`` added.
"""

import os
import select
import sys
import time
from itertools import chain

import keras
import numpy as np
import tensorflow as tf

from gpumon.core.attribution.batch_shares import checked_ratios
from trainer_hooks import PhaseTagger, multi_gpu
from trainer_hooks.examples import keras_parts as parts
from trainer_hooks.examples.busy_spans import BusySpans, imbalance_seconds, input_seconds
from trainer_hooks.examples.example_run import (
    natural,
    non_negative,
    positive,
    print_json,
    spans_parser,
)
from trainer_hooks.multi_gpu.devices import STAND_INS

FEATURES, CLASSES = 8, 3
STDIN = 0


class SleepingGpu:
    """A simulated GPU that sleeps in proportion to its samples and records when.

    Args:
        samples_per_second: Its training speed, forward and backward.
        note: Called with the start and end of each sleep.
    """

    def __init__(self, samples_per_second, note):
        self._seconds_per_sample, self._note = 1 / samples_per_second, note
        self._overslept_s = 0.0

    def compute(self, rows, part):
        """Sleep for a part of a step with these rows, and return them.

        If one sleep takes too long, the next one is shorter, so that the speed is exact.
        """
        began_ns = time.monotonic_ns()
        wanted_s = part * len(rows) * self._seconds_per_sample
        time.sleep(max(0.0, wanted_s - self._overslept_s))
        ended_ns = time.monotonic_ns()
        self._overslept_s += (ended_ns - began_ns) / 1e9 - wanted_s
        self._note(began_ns, ended_ns)
        return rows


class SleepingCompute(keras.layers.Layer):
    """An identity layer that keeps its GPU busy, forward and backward.

    The sleeps are operations in the graph, on the device of their replica, which identifies the
    GPU. Put it after a layer with weights: otherwise its gradient is not computed.

    Args:
        gpus: By TensorFlow's name of the device, such as ``"CPU:1"``. On other devices the layer
            takes no time.
    """

    def __init__(self, gpus, **named):
        super().__init__(**named)
        self._gpus = gpus

    def get_config(self):
        """For copies in this process: GPUs cannot be saved."""
        return {**super().get_config(), "gpus": self._gpus}

    def call(self, rows):
        """Return the rows, float (samples, ...), once the GPU has "computed" them."""

        @tf.custom_gradient
        def computed(forward_rows):
            def backward(upstream):
                return self._on_its_gpu(upstream, 2 / 3)

            return self._on_its_gpu(forward_rows, 1 / 3), backward

        return computed(rows)

    def _on_its_gpu(self, rows, part):
        device = rows.device.rsplit("device:", 1)[-1]
        gpu = self._gpus.get(device)
        if gpu is None:
            return rows
        # Stateful operations wait for each other, even on different GPUs.
        computed = tf.numpy_function(
            lambda array: gpu.compute(array, part),
            [rows],
            rows.dtype,
            stateful=False,
            name=f"busy_on_{device.replace(':', '_')}",
        )
        computed.set_shape(rows.shape)
        return computed


class TypedRatios(keras.callbacks.Callback):
    """Reads ratios from standard input: ``3 2`` and Enter; ``stop`` ends the training run.

    Args:
        read: Returns what was typed since the last call, without waiting; ``None`` at the end.
    """

    def __init__(self, read):
        super().__init__()
        self._read = read
        self._rest = b""
        self._is_open = True

    def on_train_batch_end(self, batch, logs=None):
        typed = self._read() if self._is_open else None
        self._is_open = typed is not None
        *lines, self._rest = (self._rest + (typed or b"")).split(b"\n")
        for line in lines:
            text = line.decode(errors="replace").strip()
            if text == "stop":
                self.model.stop_training = True
            elif text:
                self._split(text)

    def _split(self, text):
        try:
            self.model.ratios = [float(number) for number in text.replace(":", " ").split()]
        except ValueError as error:
            print(f"{text!r} changes nothing: {error}", flush=True)
        else:
            print(f"Batches are split {text} from the next step on.", flush=True)


def typed():
    """Unread standard input; ``None`` if it is closed."""
    ready, _, _ = select.select([STDIN], [], [], 0)
    return (os.read(STDIN, 4096) or None) if ready else b""


def train(args, ratios, spans):
    """Train, and print one JSON line with the results.

    ``imbalance_seconds`` is how long each GPU was idle while another computed, and
    ``input_seconds`` how long all waited for a batch, between the first step and the last.
    """
    # CPU:0 stays the host; the next ones stand for the GPUs.
    gpus = {
        f"CPU:{number}": SleepingGpu(speed, of_gpu.note)
        for number, (speed, of_gpu) in enumerate(zip(args.speeds, spans, strict=True), start=1)
    }
    multi_gpu_model = multi_gpu.multi_gpu_model  # creates the stand-ins, before TensorFlow starts
    template = keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Dense(16, activation="relu"),
            SleepingCompute(gpus),
            keras.layers.Dense(CLASSES, activation="softmax"),
        ]
    )
    model = multi_gpu_model(template, gpus=list(range(len(gpus))), ratios=ratios)
    model.compile("sgd", "sparse_categorical_crossentropy")
    random, sleeps = np.random.default_rng(0), parts.Sleeps()
    rows = random.normal(size=(args.batch, FEATURES)).astype(np.float32)
    labels = random.integers(0, CLASSES, args.batch)

    def read(number):
        sleeps.sleep(parts.INPUT, args.latency_ms / 1000)
        return rows, labels

    began_s = time.monotonic()

    def say(_=None):
        spans_ns = [of_gpu.spans_ns for of_gpu in spans]
        fetches_ns = sleeps.spans_ns.get(parts.INPUT, [])
        print_json(
            {
                "steps": int(model.optimizer.iterations.numpy()),
                "ratios": model.ratios,
                "wall_seconds": time.monotonic() - began_s,
                "busy_seconds": [of_gpu.busy_ns / 1e9 for of_gpu in spans],
                "imbalance_seconds": imbalance_seconds(spans_ns),
                "input_seconds": input_seconds(chain.from_iterable(spans_ns), fetches_ns),
            }
        )

    callbacks = [
        PhaseTagger(run=args.run, gpus=[args.first_gpu + number for number in range(len(gpus))]),
        TypedRatios(typed),
        # Not after `fit`: TensorFlow may take seconds to drop prefetched batches.
        keras.callbacks.LambdaCallback(on_train_end=say),
    ]
    data = parts.SlowBatches(read, args.steps)
    try:
        model.fit(data, epochs=args.epochs, verbose=0, callbacks=callbacks)
    except KeyboardInterrupt:
        say()
        raise


def main(argv=None):
    """Print instructions, and train once."""
    parser = spans_parser(__doc__)
    parser.add_argument(
        "--speeds", type=positive, nargs="+", default=[480, 320], help="of the GPUs, in samples/s"
    )
    parser.add_argument(
        "--ratios", type=non_negative, nargs="+", help="one per GPU; default: equal"
    )
    parser.add_argument("--batch", type=positive, default=60, help="samples in each batch")
    parser.add_argument("--steps", type=positive, default=100, help="steps in an epoch")
    parser.add_argument("--epochs", type=positive, default=3)
    parser.add_argument(
        "--latency-ms", type=non_negative, default=0.0, help="of each batch's input"
    )
    parser.add_argument("--run", default="unequal", help="the name of the run in gpumon")
    parser.add_argument("--first-gpu", type=natural, default=0, help="index of the first GPU")
    args = parser.parse_args(argv)
    count = len(args.speeds)
    try:
        ratios = checked_ratios(args.ratios or [1] * count, count)
    except ValueError as error:
        parser.error(str(error))
    if keras.backend.backend() != "tensorflow":
        parser.error("set KERAS_BACKEND=tensorflow: only there can Keras split batches by ratios")
    os.environ[STAND_INS] = str(count)
    # Each sleeping GPU occupies a TensorFlow thread.
    tf.config.threading.set_inter_op_parallelism_threads(count + 4)
    spans = [BusySpans(args.spans, args.first_gpu + number) for number in range(count)]
    print(
        f"{count} simulated GPUs of {' and '.join(f'{speed:g}' for speed in args.speeds)} "
        f"samples/s, batches split {':'.join(f'{ratio:g}' for ratio in ratios)}.\n"
        f"Watch them with `gpumon serve --source follow:{args.spans}`; after 10 s, `gpumon report` "
        "shows which GPU waits.\n"
        "Type the ratios that it recommends, such as `3 2`, and press Enter to use them. "
        "`stop` ends the training run.",
        flush=True,
    )
    try:
        train(args, ratios, spans)
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # TensorFlow threads that still prefetch may delay a normal exit for seconds, or block it.
    os._exit(code)
