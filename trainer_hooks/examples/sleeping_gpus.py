"""GPUs that are simulated by sleeps, and a Keras layer that is computed by them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import keras
import tensorflow as tf

from trainer_hooks.examples.busy_spans import SpanNotes

_FORWARD: Final = 1 / 3
_BACKWARD: Final = 2 / 3


class SleepingGpu:
    """Takes a time in proportion to the samples that it is given, and notes when that was.

    Args:
        samples_per_second: How many it trains on, forward and backward.
        spans: Told of each stretch of computing.
    """

    def __init__(self, samples_per_second: float, spans: SpanNotes) -> None:
        self._seconds_a_sample = 1 / samples_per_second
        self._spans = spans
        self._overslept_s = 0.0

    def compute(self, rows: Any, part: float) -> Any:
        """Sleep for a part of what a step takes with these rows, and hand them back.

        What one sleep took too long, the next is shorter: so the speed is the one that was named.
        """
        began_ns = time.monotonic_ns()
        wanted_s = part * len(rows) * self._seconds_a_sample
        time.sleep(max(0.0, wanted_s - self._overslept_s))
        ended_ns = time.monotonic_ns()
        self._overslept_s += (ended_ns - began_ns) / 1e9 - wanted_s
        self._spans.note(began_ns, ended_ns)
        return rows


class SleepingCompute(keras.layers.Layer):  # type: ignore[misc]  # Keras has no types
    """Changes nothing, but keeps the GPU busy that computes it, forward and backward.

    No hook takes part: the sleeps are operations in the graph, on the device of the replica
    that they belong to, and they know from that device which GPU it is. There must be weights
    before this layer, or nothing would ask for its gradient.

    Args:
        gpus: By TensorFlow's name of the device that stands for each, such as ``"CPU:1"``.
            On any other device the layer takes no time.
    """

    def __init__(self, gpus: Mapping[str, SleepingGpu], **named: Any) -> None:
        super().__init__(**named)
        self._gpus = gpus

    def get_config(self) -> dict[str, Any]:
        """For copies in this very process: the GPUs are not written to any file."""
        return {**super().get_config(), "gpus": self._gpus}

    def call(self, rows: Any) -> Any:
        """Hand the rows on, once the GPU has computed them; float (samples, ...)."""

        @tf.custom_gradient  # type: ignore[untyped-decorator]  # TensorFlow has no types
        def computed(forward_rows: Any) -> tuple[Any, Any]:
            return self._on_its_gpu(forward_rows, _FORWARD), lambda upstream: self._on_its_gpu(
                upstream, _BACKWARD
            )

        return computed(rows)

    def _on_its_gpu(self, rows: Any, part: float) -> Any:
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
