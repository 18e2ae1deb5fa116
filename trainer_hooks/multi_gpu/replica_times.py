"""How long each replica works on its part of a batch, by clocks inside the step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import keras
import tensorflow as tf

from trainer_hooks.balance.step_intervals import TimedStep
from trainer_hooks.multi_gpu.batch_split import Tensor, Tensors
from trainer_hooks.taps.tensorflow.graph_clock import GraphClock

KEPT: Final = 64


class ReplicaTimes:
    """A table of the last ``KEPT`` steps, written inside the graph of each step."""

    def __init__(self, replica_count: int) -> None:
        self._read_steps = 0
        self._clock = GraphClock()
        with tf.init_scope(), tf.device("CPU:0"):
            self._steps = tf.Variable(0, dtype=tf.int64, trainable=False)
            self._rows = tf.Variable(
                tf.zeros([KEPT, 2, replica_count], tf.float64), trainable=False
            )

    def start(self) -> bool:
        """Start the clocks if TensorFlow allows it, before each step; return whether they run."""
        return self._clock.start()

    def arrival(self, batch: Tensors) -> tuple[Tensor, Tensors]:
        """The arrival time of ``batch`` (``tf.timestamp``), and the batch, delayed until then."""
        tensors = [part for part in keras.tree.flatten(batch) if part is not None]
        arrived_at = _time_after(tensors, self._clock)
        with tf.control_dependencies([arrived_at]):
            return arrived_at, keras.tree.map_structure(
                lambda part: None if part is None else tf.identity(part), batch, none_is_leaf=False
            )

    def own_start(self, arrived_at: Tensor) -> Tensor:
        """When a replica starts: in a graph with the others, eagerly when its turn has come."""
        return _time_after([], self._clock) if tf.executing_eagerly() else arrived_at

    def busy_seconds(self, arrived_at: Tensor, loss: Tensor, gradients: list[Tensor]) -> Tensor:
        """How long this replica has worked, until it waits for the others; called by the replica.

        The backward pass ends with the gradient of the first weights. One number of it is copied
        to the host, because launching work on a GPU does not mean that it is done.

        Args:
            arrived_at: The arrival time of the replica's part, as a ``tf.timestamp``.
            loss: The loss of its part.
            gradients: In the order of the weights; some may be ``None``.
        """
        last = next((gradient for gradient in gradients if gradient is not None), loss)
        if isinstance(last, tf.IndexedSlices):
            last = last.values
        number = tf.reshape(last, [-1])[:1]
        with tf.device("CPU:0"):
            there = [tf.identity(number), tf.identity(loss)]
            return _time_after(there, self._clock) - arrived_at

    def add(self, busy_seconds: Sequence[Tensor], counts: Tensor) -> None:
        with tf.device("CPU:0"):
            row = tf.stack([tf.stack(busy_seconds), tf.cast(counts, tf.float64)])
            at = (self._steps.assign_add(1) - 1) % KEPT
            self._rows.scatter_nd_update([[at]], [row])

    def read(self) -> tuple[TimedStep, ...]:
        """The steps since the last call, oldest first; at most the last 64."""
        steps, rows = int(self._steps.numpy()), self._rows.numpy()
        fresh = range(max(self._read_steps, steps - KEPT), steps)
        self._read_steps = steps
        recent = (rows[step % KEPT] for step in fresh)
        return tuple(
            TimedStep(tuple(map(float, busy)), tuple(map(int, counts))) for busy, counts in recent
        )


def _time_after(there: list[Tensor], clock: GraphClock) -> Tensor:
    """The time, as a ``tf.timestamp``, once those tensors are computed."""
    with tf.control_dependencies(there), tf.device("CPU:0"):
        now = clock.now_s()
    if not tf.executing_eagerly():
        # Otherwise TensorFlow reads the clocks of a graph in sequence: that of the second replica
        # not before the first replica is done.
        manager = getattr(tf.compat.v1.get_default_graph(), "experimental_acd_manager", None)
        if manager is not None:
            manager.run_independently(_read_by(now))
    return now


def _read_by(now: Tensor) -> Tensor:
    """The operation that reads the clock, behind identities that a condition adds."""
    operation = now.op
    while operation.type == "Identity":
        operation = operation.inputs[0].op
    return operation
