"""Timers inside the compiled step, traced into it around the operation that fetches a batch."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import tensorflow as tf

from trainer_hooks.keras_fit.phase_machine import PhaseMachine
from trainer_hooks.taps.samples import rows_of
from trainer_hooks.taps.tensorflow_accounts import Totals
from trainer_hooks.taps.tensorflow_fetches import Fetch, patch_of_iterators
from trainer_hooks.taps.tensorflow_functions import traces_of
from trainer_hooks.taps.tensorflow_split import ENDS_OF_DATA


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
    """Around a call: whatever fetches a batch in it is timed, or traced with timers.

    Attributes:
        made: Timers traced so far.
        batches: Batches fetched without a graph, since the call began.
        rows: Samples in them.
    """

    def __init__(self, totals: GraphTotals | None) -> None:
        """Find what is to be gone around.

        Args:
            totals: What timers in a graph add to; ``None``: nothing is traced.

        Raises:
            ImportError: This TensorFlow keeps its iterators elsewhere.
            KeyError: Its iterators fetch in another way.
        """
        self._patch = patch_of_iterators()
        self._totals = totals
        self.made = self.batches = self.rows = 0

    def call(self, function: Any, iterator: Any, machine: PhaseMachine) -> Any:  # noqa: ANN401
        """Call a step function, timed."""
        self.batches = self.rows = 0

        def around(fetch: Fetch) -> Any:  # noqa: ANN401
            if tf.executing_eagerly():
                return self._fetch_now(machine, fetch)
            return self._trace_fetch(fetch)

        return self._patch.call(function, iterator, around)

    def _fetch_now(self, machine: PhaseMachine, fetch: Fetch) -> Any:  # noqa: ANN401
        machine.fetch_begin()
        try:
            fetched = fetch()
        except ENDS_OF_DATA:
            machine.fetch_exhausted()
            raise
        batch = fetched
        if isinstance(fetched, tf.experimental.Optional):
            if not bool(fetched.has_value()):
                return fetched  # the end of the data: no step follows this wait
            batch = fetched.get_value()
        machine.fetch_end()
        self.batches += 1
        self.rows += rows_of(batch)
        return fetched

    def _trace_fetch(self, fetch: Fetch) -> Any:  # noqa: ANN401
        totals = self._totals
        if totals is None:
            return fetch()
        with tf.device("CPU:0"):
            began_s = tf.timestamp()
        with tf.control_dependencies([began_s]):
            fetched = fetch()
        parts = tf.nest.flatten(fetched, expand_composites=True)
        with tf.control_dependencies(parts), tf.device("CPU:0"):
            ended_s = tf.timestamp()
            totals.add(ended_s - began_s, *_batches_and_rows(fetched))
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
