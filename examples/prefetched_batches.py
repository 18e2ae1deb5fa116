"""The time of a step with batches made on demand and with prefetched ones."""

import time

import keras
import numpy as np
import tensorflow as tf

from trainer_hooks import multi_gpu_model, prefetch_to_device

STEPS, BATCH = 40, 64


def slow_batches():
    """Batches that take 20 ms to read and decode."""
    random = np.random.default_rng(0)
    for _ in range(STEPS):
        time.sleep(0.02)
        yield random.normal(size=(BATCH, 16)).astype("float32")


class TwentyMilliseconds(keras.layers.Layer):
    """Stands for layers that keep a GPU busy for 20 ms."""

    def call(self, inputs):
        # stateful operations would make the GPUs take turns
        worked = tf.numpy_function(self.work, [inputs], tf.float32, stateful=False)
        return tf.ensure_shape(worked, inputs.shape)

    def work(self, rows):
        time.sleep(0.02)
        return rows


def seconds_of_an_epoch(data):
    """The duration of the second epoch; the first one compiles the step."""
    model = keras.Sequential([keras.Input((16,)), TwentyMilliseconds(), keras.layers.Dense(1)])
    parallel = multi_gpu_model(model, gpus=2)
    parallel.compile(optimizer="sgd", loss="mse")
    parallel.fit(data, epochs=1, verbose=0)
    start = time.perf_counter()
    parallel.fit(data, epochs=1, verbose=0)
    return time.perf_counter() - start


signature = tf.TensorSpec((BATCH, 16), tf.float32)
batches = tf.data.Dataset.from_generator(slow_batches, output_signature=signature)
batches = batches.apply(tf.data.experimental.assert_cardinality(STEPS)).map(
    lambda rows: (rows, tf.reduce_sum(rows, axis=1, keepdims=True))
)
on_demand = tf.data.Options()
on_demand.autotune.enabled = False
on_demand.experimental_optimization.inject_prefetch = False

without = seconds_of_an_epoch(batches.with_options(on_demand))
ahead = seconds_of_an_epoch(prefetch_to_device(batches, depth=2, device="CPU:0"))
print(f"A step with batches on demand: {1e3 * without / STEPS:.1f} ms")
print(f"A step with batches ahead:     {1e3 * ahead / STEPS:.1f} ms")
