"""A Keras training on GPUs of unequal speed, simulated: one waits for the other in each step.

    gpumon serve --source follow:/tmp/busy.jsonl
    python examples/unequal_gpus.py --spans /tmp/busy.jsonl

``gpumon report`` then says which GPU waits, how long, and which ratios would level them. Type
these while it trains, such as ``3 2``, and the next step is split so; ``stop`` ends the training.
The model is that of any script; ``multi_gpu_model`` and ``PhaseTagger`` are all that is added.
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
from trainer_hooks.examples.example_run import natural, non_negative, positive, spans_parser, tell
from trainer_hooks.multi_gpu.devices import STAND_INS

FEATURES, CLASSES = 8, 3
STDIN = 0


class SleepingGpu:
    """Takes a time in proportion to the samples that it is given, and notes when that was.

    Args:
        samples_per_second: How many it trains on, forward and backward.
        note: Told of each stretch of computing.
    """

    def __init__(self, samples_per_second, note):
        self._seconds_a_sample, self._note = 1 / samples_per_second, note
        self._overslept_s = 0.0

    def compute(self, rows, part):
        """Sleep for a part of what a step takes with these rows, and hand them back.

        What one sleep took too long, the next is shorter: so the speed is the one that was named.
        """
        began_ns = time.monotonic_ns()
        wanted_s = part * len(rows) * self._seconds_a_sample
        time.sleep(max(0.0, wanted_s - self._overslept_s))
        ended_ns = time.monotonic_ns()
        self._overslept_s += (ended_ns - began_ns) / 1e9 - wanted_s
        self._note(began_ns, ended_ns)
        return rows


class SleepingCompute(keras.layers.Layer):
    """Changes nothing, but keeps the GPU busy that computes it, forward and backward.

    No hook takes part: the sleeps are operations in the graph, on the device of the replica
    that they belong to, and they know from that device which GPU it is. There must be weights
    before this layer, or nothing would ask for its gradient.

    Args:
        gpus: By TensorFlow's name of the device that stands for each, such as ``"CPU:1"``.
            On any other device the layer takes no time.
    """

    def __init__(self, gpus, **named):
        super().__init__(**named)
        self._gpus = gpus

    def get_config(self):
        """For copies in this very process: the GPUs are not written to any file."""
        return {**super().get_config(), "gpus": self._gpus}

    def call(self, rows):
        """Hand the rows on, once the GPU has computed them; float (samples, ...)."""

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
        # Operations with a state wait for one another, also those of different GPUs.
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
    """Splits as somebody types it: ``3 2`` and Enter; ``stop`` ends the training.

    Args:
        read: What was typed since it was last asked; never waits. ``None``: nobody types any more.
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
            words = line.decode(errors="replace").strip()
            if words == "stop":
                self.model.stop_training = True
            elif words:
                self._split(words)

    def _split(self, words):
        try:
            self.model.ratios = [float(word) for word in words.replace(":", " ").split()]
        except ValueError as error:
            print(f"{words!r} changes nothing: {error}", flush=True)
        else:
            print(f"Batches are split {words} from the next step on.", flush=True)


def typed():
    """What came by standard input and was not read yet; ``None``: it is closed."""
    ready, _, _ = select.select([STDIN], [], [], 0)
    return (os.read(STDIN, 4096) or None) if ready else b""


def train(args, ratios, spans):
    """Train, and print one JSON line at the end: what the GPUs did.

    In it, ``imbalance_seconds`` is, for each GPU, how long it stood still while another
    computed, and ``input_seconds`` how long all did until a batch came, between the first step
    and the last.
    """
    # CPU:0 stays the host; the next ones stand for the GPUs.
    gpus = {
        f"CPU:{number}": SleepingGpu(speed, of_gpu.note)
        for number, (speed, of_gpu) in enumerate(zip(args.speeds, spans, strict=True), start=1)
    }
    multi_gpu_model = multi_gpu.multi_gpu_model  # before TensorFlow starts: it makes the stand-ins
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
        tell(
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
        # Not after `fit`: TensorFlow may take seconds more to let go of batches nobody wants.
        keras.callbacks.LambdaCallback(on_train_end=say),
    ]
    data = parts.SlowBatches(read, args.steps)
    try:
        model.fit(data, epochs=args.epochs, verbose=0, callbacks=callbacks)
    except KeyboardInterrupt:
        say()
        raise


def main(argv=None):
    """Say what to do, and train once."""
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
    print(
        f"{count} simulated GPUs of {' and '.join(f'{speed:g}' for speed in args.speeds)} "
        f"samples/s, batches split {':'.join(f'{ratio:g}' for ratio in ratios)}.\n"
        f"Watch them by `gpumon serve --source follow:{args.spans}`; after 10 s, `gpumon report` "
        "says who waits for whom.\n"
        "Type the ratios that it names, such as `3 2`, and press Enter: the next step is split so. "
        "`stop` ends it.",
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
    # Threads of TensorFlow's that fetch what nobody wants any more would hold an interpreter's own
    # way out up for seconds, and now and then for good.
    os._exit(code)
