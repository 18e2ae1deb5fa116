"""A process of its own: batches on the second of two logical devices, and training on both."""

from __future__ import annotations

import json
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.trainers.data_adapters.tf_dataset_adapter import TFDatasetAdapter

from tests.builders.prefetch import Source, most_ahead, usual_gap_s
from tests.keras import builders_keras as builders
from tests.keras import builders_tensorflow as on_tensorflow
from trainer_hooks.prefetch import prefetch_to_device
from trainer_hooks.trainers.loader_facts import adapter_facts

BATCHES = 12
THERE = "CPU:1"


def dataset(source: Any) -> Any:
    """What TensorFlow does of itself against a slow source is left out."""
    return on_tensorflow.dataset(lambda: iter(source))


def numbered(seconds: float = 0.0) -> Source:
    rng = np.random.default_rng(5)
    rows = [
        rng.normal(size=(builders.BATCH, builders.FEATURES)).astype("float32")
        for _ in range(BATCHES)
    ]
    return Source([(some, some.sum(1, keepdims=True)) for some in rows], seconds)


def what_comes() -> dict[str, Any]:
    source = numbered()
    data = prefetch_to_device(dataset(source), 2, THERE)
    epochs = [list(data), list(data)]
    return {
        "devices": sorted({row.device for epoch in epochs for batch in epoch for row in batch}),
        "host": sorted({batch[0].device for batch in prefetch_to_device(dataset(source), 2)}),
        "equal": [
            all(
                np.array_equal(got, given)
                for batch, true in zip(epoch, source.batches, strict=True)
                for got, given in zip(batch, true, strict=True)
            )
            for epoch in epochs
        ],
        "lengths": [
            len(prefetch_to_device(tf.data.Dataset.range(5), 2, THERE)),
            int(data.cardinality()),
        ],
        "facts": adapter_facts(TFDatasetAdapter(data)),
    }


def ahead() -> dict[str, int]:
    """By device and depth."""
    found = {}
    for device, depth in ((THERE, 1), (THERE, 3), ("CPU:0", 2)):
        source = numbered()
        data = prefetch_to_device(dataset(source), depth, device)
        found[f"{device} {depth}"] = most_ahead(data, lambda of=source: of.pulled)  # type: ignore[misc]
    return found


def gaps_s() -> dict[str, float]:
    def usual_s(data: Any) -> float:
        return usual_gap_s(data, lambda _: time.sleep(0.02))

    return {
        "without": usual_s(dataset(numbered(0.02))),
        "with": usual_s(prefetch_to_device(dataset(numbered(0.02)), 2, THERE)),
        "host": usual_s(prefetch_to_device(dataset(numbered(0.02)), 2, "CPU:0")),
    }


def left_behind(make: Any) -> dict[str, Any]:
    """What training leaves behind where ``make`` changes the data."""

    def data() -> Any:
        known = tf.data.experimental.assert_cardinality(BATCHES)
        return make(dataset(numbered()).apply(known))

    model = builders.small_model(run_eagerly=True)  # tracing takes longer than all else
    return {
        **builders.left_by(model, x=data(), validation_data=data(), epochs=2),
        "evaluated": model.evaluate(data(), verbose=0),
        "predicted": model.predict(data(), verbose=0).tolist(),
    }


def error() -> str:
    def torn() -> Any:
        yield numbered().batches[0]
        raise OSError("the file is torn")

    batches = iter(prefetch_to_device(on_tensorflow.dataset(torn), 2, THERE))
    next(batches)
    try:
        next(batches)
    except tf.errors.OpError as raised:
        return str(raised)
    return "none was raised"


def there(data: Any) -> Any:
    return prefetch_to_device(data, 2, THERE)


def mirrored() -> dict[str, Any]:
    """What training on both devices leaves behind, bare and tagged; the last batch is shorter."""

    def left_behind(*callbacks: Any) -> dict[str, Any]:
        keras.utils.set_random_seed(1)
        with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
            model = keras.Sequential(
                [keras.layers.Input((builders.FEATURES,)), keras.layers.Dense(1)]
            )
            model.compile(optimizer="sgd", loss="mse")
        data = tf.data.Dataset.from_tensor_slices(builders.rows_and_sums(56)).batch(16)
        left = builders.left_by(model, *callbacks, x=data, epochs=2)
        return {**left, "weights": [weight.tolist() for weight in model.get_weights()]}

    bare, before_ns = left_behind(), builders.phase_ns()
    tagged = left_behind(builders.tagger())
    spent_ns = {phase: ns - before_ns[phase] for phase, ns in builders.phase_ns().items()}
    return {"bare": bare, "tagged": tagged, "phase_ns": spent_ns}


if __name__ == "__main__":
    on_tensorflow.two_devices()
    recorded = {
        "comes": what_comes(),
        "ahead": ahead(),
        "gaps_s": gaps_s(),
        "same": left_behind(there) == left_behind(lambda data: data),
        "error": error(),
        "mirrored": mirrored(),
    }
    print(json.dumps(recorded))
