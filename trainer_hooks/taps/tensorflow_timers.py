"""Timers inside the compiled step, traced into it around the operation that fetches a batch."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any, Final
from weakref import WeakKeyDictionary

import tensorflow as tf

from trainer_hooks.keras_fit.phase_machine import PhaseMachine
from trainer_hooks.taps.samples import rows_of
from trainer_hooks.taps.tensorflow_accounts import Totals
from trainer_hooks.taps.tensorflow_functions import traces_of
from trainer_hooks.taps.tensorflow_split import ENDS_OF_DATA

_METHODS: Final = ("get_next", "get_next_as_optional", "__next__")


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
        from tensorflow.python.data.ops.iterator_ops import OwnedIterator

        self._iterators = OwnedIterator
        self._totals = totals
        self._bare = {name: vars(OwnedIterator)[name] for name in _METHODS}
        self._timed = {name: self._around(bare) for name, bare in self._bare.items()}
        self._thread = 0
        self._machine: PhaseMachine | None = None
        self.made = self.batches = self.rows = 0

    def call(self, function: Any, iterator: Any, machine: PhaseMachine) -> Any:  # noqa: ANN401
        """Call a step function, timed."""
        self._thread, self._machine = get_ident(), machine
        self.batches = self.rows = 0
        for name, timed in self._timed.items():
            setattr(self._iterators, name, timed)
        try:
            return function(iterator)
        finally:
            self._machine = None
            for name, bare in self._bare.items():
                setattr(self._iterators, name, bare)

    def _around(self, bare: Callable[..., Any]) -> Callable[..., Any]:
        def fetch(iterator: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            machine = self._machine
            if machine is None or get_ident() != self._thread:
                return bare(iterator, *args, **kwargs)
            self._machine = None  # what it calls in turn is not timed twice
            try:
                if tf.executing_eagerly():
                    return self._fetch_now(machine, lambda: bare(iterator, *args, **kwargs))
                return self._trace_fetch(lambda: bare(iterator, *args, **kwargs))
            finally:
                self._machine = machine

        return fetch

    def _fetch_now(self, machine: PhaseMachine, fetch: Callable[[], Any]) -> Any:  # noqa: ANN401
        machine.fetch_begin()
        try:
            fetched = fetch()
        except ENDS_OF_DATA:
            machine.fetch_exhausted()
            raise
        machine.fetch_end()
        if not isinstance(fetched, tf.experimental.Optional):
            self.batches += 1
            self.rows += rows_of(fetched)
        elif bool(fetched.has_value()):
            self.batches += 1
            self.rows += rows_of(fetched.get_value())
        return fetched

    def _trace_fetch(self, fetch: Callable[[], Any]) -> Any:  # noqa: ANN401
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
