"""Timers inside the compiled step, traced into it around the operation that fetches a batch."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import tensorflow as tf

from trainer_hooks.taps.tensorflow_accounts import Totals
from trainer_hooks.taps.tensorflow_fetches import Fetch, patch_of_iterators
from trainer_hooks.taps.tensorflow_functions import traces_of


class GraphTotals:
    """A variable on the CPU that timers in a graph add to.

    Attributes:
        traces: How often the function had been traced when all its traces had timers.
    """

    def __init__(self) -> None:
        if tf.distribute.has_strategy():
            raise RuntimeError("a variable made here would be one for each replica")
        with tf.init_scope(), tf.device("CPU:0"):
            self._variable = tf.Variable(tf.zeros(3, tf.float64), trainable=False)
        self.traces = 0

    def read(self) -> Totals:
        """What was summed up so far."""
        wait_s, batches, rows = tf.raw_ops.ReadVariableOp(
            resource=self._variable.handle, dtype=tf.float64
        ).numpy()
        return Totals(float(wait_s), int(batches), int(rows))

    def add(self, wait_s: Any, batches: Any, rows: Any) -> None:  # noqa: ANN401
        """In a graph: add three scalars."""
        parts = [tf.cast(part, tf.float64) for part in (wait_s, batches, rows)]
        self._variable.assign_add(tf.stack(parts), read_value=False)


def totals_in(function: Any) -> GraphTotals | None:  # noqa: ANN401
    """The totals whose timers are in every trace of a function; ``None``: not in every one."""
    totals = _TIMED.get(function)
    return totals if totals is not None and totals.traces == traces_of(function) else None


def new_totals_for(function: Any) -> GraphTotals:  # noqa: ANN401
    """Totals for a function that is yet to be traced."""
    totals = _TIMED[function] = GraphTotals()
    return totals


_TIMED: WeakKeyDictionary[Any, GraphTotals] = WeakKeyDictionary()
"""A function keeps its traces, and so the timers in them, over many trainings."""


class TimedFetches:
    """Around a call: whatever fetches a batch in a graph that it traces gets timers.

    Attributes:
        made: Timers traced so far.
    """

    def __init__(self, totals: GraphTotals) -> None:
        """Find what is to be gone around.

        Args:
            totals: What the timers add to.

        Raises:
            ImportError: This TensorFlow keeps its iterators elsewhere.
            KeyError: Its iterators fetch in another way.
        """
        self._patch = patch_of_iterators()
        self._totals = totals
        self.made = 0

    def call(self, function: Any, iterator: Any) -> Any:  # noqa: ANN401
        """Call a step function; what it traces is traced with timers."""
        return self._patch.call(function, iterator, self._trace_fetch)

    def _trace_fetch(self, fetch: Fetch) -> Any:  # noqa: ANN401
        if tf.executing_eagerly():
            return fetch()
        with tf.device("CPU:0"):
            began_s = tf.timestamp()
        with tf.control_dependencies([began_s]):
            fetched = fetch()
        parts = tf.nest.flatten(fetched, expand_composites=True)
        with tf.control_dependencies(parts), tf.device("CPU:0"):
            ended_s = tf.timestamp()
            self._totals.add(ended_s - began_s, *_batches_and_rows(fetched))
        self.made += 1
        return fetched


def _batches_and_rows(fetched: Any) -> tuple[Any, Any]:  # noqa: ANN401
    if not isinstance(fetched, tf.experimental.Optional):
        return 1, _rows_in_graph(fetched)
    rows = tf.cond(
        fetched.has_value(), lambda: _rows_in_graph(fetched.get_value()), lambda: tf.constant(0)
    )
    return fetched.has_value(), rows


def _rows_in_graph(batch: Any) -> Any:  # noqa: ANN401
    first = tf.nest.flatten(batch)[0]
    if not isinstance(first, tf.Tensor) or first.shape.rank in (None, 0):
        return tf.constant(0)
    return tf.shape(first)[0]
