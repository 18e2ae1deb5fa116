"""A clock inside TensorFlow's graphs that stands still where TensorFlow forbids clocks."""

from __future__ import annotations

from typing import Any, Final

import tensorflow as tf

FORBIDDEN: Final = "TensorFlow allows no clock in a graph while op determinism is enabled"


class GraphClock:
    """``tf.timestamp`` behind a switch, so that its graph runs whatever is set later.

    ``tf.config.experimental.enable_op_determinism()`` makes every ``tf.timestamp`` raise, even in
    graphs traced before. A stopped clock returns 0.0, as does one traced where clocks are
    forbidden.
    """

    def __init__(self) -> None:
        """Start stopped. To be created outside of any strategy's scope."""
        self._runs = False
        with tf.init_scope(), tf.device("CPU:0"):
            self._switch = tf.Variable(False, trainable=False, name="gpumon_clock_runs")

    def start(self) -> bool:
        """Run from now on, if TensorFlow allows it, and return whether it does."""
        self._turn(is_allowed())
        return self._runs

    def stop(self) -> None:
        """Stop: graphs with this clock outlive their readers."""
        self._turn(False)

    def now_s(self) -> Any:  # noqa: ANN401
        """Return the seconds of ``tf.timestamp``, a float64 scalar; 0.0 when stopped."""
        with tf.device("CPU:0"):
            if not self._runs:
                return _no_time()
            return tf.cond(self._switch, _time, _no_time)

    def _turn(self, runs: bool) -> None:
        if runs is not self._runs:
            self._runs = runs
            with tf.init_scope():
                self._switch.assign(runs)


def is_allowed() -> bool:
    """Whether TensorFlow currently allows clocks."""
    try:
        with tf.init_scope():
            tf.timestamp()
    except tf.errors.FailedPreconditionError:
        return False
    return True


def _time() -> Any:  # noqa: ANN401
    with tf.device("CPU:0"):
        return tf.timestamp()


def _no_time() -> Any:  # noqa: ANN401
    return tf.zeros([], tf.float64)
