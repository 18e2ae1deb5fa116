"""How long each replica worked on its part of a batch, told by the replicas themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import keras
import tensorflow as tf

from trainer_hooks.balance.step_intervals import TimedStep
from trainer_hooks.multi_gpu.batch_split import Tensor, Tensors
from trainer_hooks.taps.tensorflow.graph_clock import GraphClock

KEPT: Final = 64
"""Steps that are remembered until somebody asks."""


class ReplicaTimes:
    """A table of the last steps, written inside the graph of each and read when it is asked for."""

    def __init__(self, replica_count: int) -> None:
        self._taken = 0
        self._clock = GraphClock()
        with tf.init_scope(), tf.device("CPU:0"):
            self._steps = tf.Variable(0, dtype=tf.int64, trainable=False)
            self._rows = tf.Variable(
                tf.zeros([KEPT, 2, replica_count], tf.float64), trainable=False
            )

    def start(self) -> bool:
        """Let the clocks run, if TensorFlow allows it; whether they do. To be called anew."""
        return self._clock.start()

    def begun(self, batch: Tensors) -> tuple[Tensor, Tensors]:
        """The time at which ``batch`` was there, and the batch, which nobody is given before.

        Returns:
            Seconds as ``tf.timestamp`` tells them, a scalar; and ``batch`` again.
        """
        there = [part for part in keras.tree.flatten(batch) if part is not None]
        begun_at = _time_after(there, self._clock)
        with tf.control_dependencies([begun_at]):
            return begun_at, keras.tree.map_structure(
                lambda part: None if part is None else tf.identity(part), batch, none_is_leaf=False
            )

    def own_begin(self, begun_at: Tensor) -> Tensor:
        """When a replica begins: in a graph with the others, eagerly when its turn has come."""
        return _time_after([], self._clock) if tf.executing_eagerly() else begun_at

    def busy_seconds(self, begun_at: Tensor, loss: Tensor, gradients: list[Tensor]) -> Tensor:
        """How long a replica worked, until it begins to wait for the others; called by it.

        The backward pass ends with the gradient of the first weights. One number of it is copied
        to the host: that a GPU was *told* to compute something says nothing, that a result came
        does.

        Args:
            begun_at: When its part of the batch was there, as ``tf.timestamp`` tells it.
            loss: Of its part.
            gradients: In the order of the weights; ``None`` for some.
        """
        last = next((gradient for gradient in gradients if gradient is not None), loss)
        if isinstance(last, tf.IndexedSlices):
            last = last.values
        number = tf.reshape(last, [-1])[:1]
        with tf.device("CPU:0"):
            there = [tf.identity(number), tf.identity(loss)]
            return _time_after(there, self._clock) - begun_at

    def add(self, busy_seconds: Sequence[Tensor], counts: Tensor) -> None:
        """One more step: what each replica took for how many samples."""
        with tf.device("CPU:0"):
            row = tf.stack([tf.stack(busy_seconds), tf.cast(counts, tf.float64)])
            at = (self._steps.assign_add(1) - 1) % KEPT
            self._rows.scatter_nd_update([[at]], [row])

    def taken(self) -> tuple[TimedStep, ...]:
        """The steps since this was last asked, oldest first; of more than 64 the last 64."""
        steps, rows = int(self._steps.numpy()), self._rows.numpy()
        fresh = range(max(self._taken, steps - KEPT), steps)
        self._taken = steps
        told = (rows[step % KEPT] for step in fresh)
        return tuple(
            TimedStep(tuple(map(float, busy)), tuple(map(int, counts))) for busy, counts in told
        )


def _time_after(there: list[Tensor], clock: GraphClock) -> Tensor:
    """The time as ``tf.timestamp`` tells it, once those tensors are there."""
    with tf.control_dependencies(there), tf.device("CPU:0"):
        now = clock.now_s()
    if not tf.executing_eagerly():
        # TensorFlow would have the clocks of a graph read one after the other: that of the
        # second replica not before the first is done.
        manager = getattr(tf.compat.v1.get_default_graph(), "experimental_acd_manager", None)
        if manager is not None:
            manager.run_independently(_read_by(now))
    return now


def _read_by(now: Tensor) -> Tensor:
    """The operation that reads the clock: what comes of a condition is handed on once more."""
    operation = now.op
    while operation.type == "Identity":
        operation = operation.inputs[0].op
    return operation
