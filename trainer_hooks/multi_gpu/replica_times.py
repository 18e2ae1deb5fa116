"""How long each replica worked on its part of a batch, told by the replicas themselves."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from trainer_hooks.multi_gpu.tensors import Tensor, Tensors


class TimedSteps(NamedTuple):
    """What the replicas did since the last time they were asked.

    Attributes:
        steps: How many steps were timed.
        busy_seconds: Of each replica, from the arrival of the batch to its last gradient.
        samples: That each replica was given and that counted.
    """

    steps: int
    busy_seconds: tuple[float, ...]
    samples: tuple[int, ...]


class ReplicaTimes:
    """Adds up, inside the graph of the step, what ``TimedSteps`` tells.

    Args:
        replica_count: How many replicas there are.
    """

    def __init__(self, replica_count: int) -> None:
        with tf.init_scope(), tf.device("CPU:0"):
            self._steps = tf.Variable(0, dtype=tf.int64, trainable=False)
            self._busy = tf.Variable([0.0] * replica_count, dtype=tf.float64, trainable=False)
            self._samples = tf.Variable([0] * replica_count, dtype=tf.int64, trainable=False)

    def begun_at(self, batch: Tensors) -> Tensor:
        """The time, once ``batch`` is there; seconds as ``tf.timestamp`` tells them."""
        parts = [part for part in tf.nest.flatten(batch) if part is not None]
        with tf.control_dependencies(parts), tf.device("CPU:0"):
            return tf.timestamp()

    def add(self, begun_at: Tensor, done_at: list[Tensor], counts: Tensor) -> None:
        """One more step, begun and done at these instants, with these samples a replica."""
        with tf.device("CPU:0"):
            self._busy.assign_add(tf.stack(done_at) - begun_at)
            self._samples.assign_add(counts)
            self._steps.assign_add(1)

    def taken(self) -> TimedSteps:
        """What was added up, and begin anew."""
        told = TimedSteps(
            int(self._steps.numpy()),
            tuple(float(seconds) for seconds in self._busy.numpy()),
            tuple(int(count) for count in self._samples.numpy()),
        )
        self._busy.assign(tf.zeros_like(self._busy))
        self._samples.assign(tf.zeros_like(self._samples))
        self._steps.assign(0)
        return told


def finished_at(loss: Tensor, gradients: list[Tensor]) -> Tensor:
    """When this replica's own work was done, before it waits for the others.

    The backward pass ends with the gradient of the first weights. One number of it is copied to
    the host: that a GPU was *told* to compute something says nothing, that a result came does.
    """
    last = next((gradient for gradient in gradients if gradient is not None), loss)
    if isinstance(last, tf.IndexedSlices):
        last = last.values
    number = tf.reshape(last, [-1])[:1]
    with tf.device("CPU:0"):
        arrived = [tf.identity(number), tf.identity(loss)]
        with tf.control_dependencies(arrived):
            return tf.timestamp()
