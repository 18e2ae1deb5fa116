"""Several steps an execution on TensorFlow: timers in the graph, around what fetches a batch."""

from __future__ import annotations

from time import monotonic_ns
from typing import Any, Final
from weakref import WeakKeyDictionary

import tensorflow as tf

from trainer_hooks.ring.guard import Guard, passes_through, warn_quietly
from trainer_hooks.ring.phase_modes import TRAIN_MODE
from trainer_hooks.taps.phase_machine import PhaseMachine
from trainer_hooks.taps.tap import StepListener
from trainer_hooks.taps.tensorflow.fetches import (
    Accounts,
    Execution,
    Fetch,
    Totals,
    patch_of_iterators,
)
from trainer_hooks.taps.tensorflow.functions import (
    ENDS_OF_DATA,
    StepAround,
    form_of,
    traces_of,
)
from trainer_hooks.taps.tensorflow.graph_clock import FORBIDDEN, GraphClock, is_allowed


class GraphTotals:
    """A variable on the CPU that timers add to; they are traced around what fetches a batch.

    Attributes:
        clock: What the timers read; it runs while the totals are read.
        traces: How often the function had been traced when all its traces had timers.
        timers: Traced, but not checked yet.
        trouble: The error that kept timers out of a trace.
    """

    def __init__(self) -> None:
        """Find what is to be patched.

        Raises:
            ImportError: This TensorFlow keeps its iterators elsewhere.
            KeyError: Its iterators fetch in another way.
            RuntimeError: A strategy is in scope.
        """
        if tf.distribute.has_strategy():
            raise RuntimeError("a variable made here would be one for each replica")
        with tf.init_scope(), tf.device("CPU:0"):
            self._variable = tf.Variable(tf.zeros(3, tf.float64), trainable=False)
        self.clock = GraphClock()
        self.trouble: Exception | None = None
        guard = Guard(self._note)
        self._trace_begin, self._trace_end = guard.wrap(self.clock.now_s), guard.wrap(self._add)
        self._patch = patch_of_iterators()
        self.traces = self.timers = 0

    def _note(self, error: Exception) -> None:
        self.trouble = error

    def read(self) -> Totals:
        wait_s, batches, rows = tf.raw_ops.ReadVariableOp(
            resource=self._variable.handle, dtype=tf.float64
        ).numpy()
        return Totals(float(wait_s), int(batches), int(rows))

    @passes_through
    def call(self, function: Any, iterator: Any) -> Any:  # noqa: ANN401
        """Call a step function; what it traces gets timers."""
        try:
            return self._patch.call(function, iterator, self._trace_fetch)
        except tf.errors.FailedPreconditionError:
            if is_allowed():
                raise
        # Clocks were forbidden since then. The first one, before any fetch, has failed.
        self.clock.stop()
        warn_blind(FORBIDDEN)
        return self._patch.call(function, iterator, self._trace_fetch)

    @passes_through
    def _trace_fetch(self, fetch: Fetch) -> Any:  # noqa: ANN401
        if tf.executing_eagerly():
            return fetch()
        began_s = self._trace_begin()
        if began_s is None:
            return fetch()
        with tf.control_dependencies([began_s]):
            fetched = fetch()
        self._trace_end(fetched, began_s)
        return fetched

    def _add(self, fetched: Any, began_s: Any) -> None:  # noqa: ANN401
        parts = tf.nest.flatten(fetched, expand_composites=True)
        with tf.control_dependencies(parts), tf.device("CPU:0"):
            added = (self.clock.now_s() - began_s, *_batches_and_rows(fetched))
            more = tf.stack([tf.cast(part, tf.float64) for part in added])
            self._variable.assign_add(more, read_value=False)
        self.timers += 1


def totals_in(function: Any) -> GraphTotals | None:  # noqa: ANN401
    """Return the totals whose timers are in every trace of a function, else ``None``."""
    totals = _TIMED.get(function)
    return totals if totals is not None and totals.traces == traces_of(function) else None


def new_totals_for(function: Any) -> GraphTotals:  # noqa: ANN401
    """Create totals for a function that is not traced yet."""
    totals = _TIMED[function] = GraphTotals()
    return totals


_TIMED: WeakKeyDictionary[Any, GraphTotals] = WeakKeyDictionary()
"""A function keeps its traces, and the timers in them, over many runs."""


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


_MIN_REPORTED_NS: Final = 1_000_000
"""Most data end at once."""


class FusedStep(StepAround):
    """Calls the step as it is, with timers traced into it around what fetches a batch.

    If several batches are fetched in one execution, the next is fetched beside the compute of the
    one before: the wait is *gross*, an upper bound for the device.
    """

    def __init__(self, function: Any, listener: StepListener, *, batches: int) -> None:  # noqa: ANN401
        """Find the timers; an execution has at most ``batches`` batches."""
        super().__init__(function, TRAIN_MODE, listener)
        self._batches = batches
        self._fused = form_of(function).fused
        self._totals = None if self._fused is None else totals_in(self._fused)
        self._accounts = None if self._totals is None else Accounts(self._totals.read, batches)
        self._was_unheard = False
        guard = listener.guard
        self._begin_step, self._end_step = guard.wrap(self._begins), guard.wrap(self._ends)
        self._end_data = guard.wrap(self._ends_without_batch)

    @property
    def has_gross_wait(self) -> bool:
        """Whether its wait for input may have overlapped the compute."""
        return self._accounts is not None and self._batches > 1 and is_allowed()

    @passes_through
    def _train(self, machine: PhaseMachine, iterator: Any) -> Any:  # noqa: ANN401
        begun = self._begin_step(machine)
        totals = self._totals
        try:
            logs = (
                self._function(iterator)
                if totals is None
                else totals.call(self._function, iterator)
            )
        except ENDS_OF_DATA:
            self._end_data(machine, begun)
            raise
        except BaseException:
            self._failed()
            raise
        self._end_step(machine, begun)
        return logs

    def _evaluate(self, machine: PhaseMachine, iterator: Any) -> Any:  # noqa: ANN401
        raise AssertionError("a fused step trains")  # evaluations are not wrapped

    def _find_machine(self, iterator: Any) -> PhaseMachine | None:  # noqa: ANN401
        machine = super()._find_machine(iterator)
        self._was_unheard |= machine is None
        return machine

    def _begins(self, machine: PhaseMachine) -> tuple[int | None, int]:
        """Begin an execution.

        Returns:
            How often the step was traced before, and the time: CLOCK_MONOTONIC, nanoseconds.
        """
        traces = traces_of(self._fused)
        if self._totals is not None:
            self._check_accounts(self._totals, traces)
        machine.fetch_end()  # the timers find the wait in it
        if traces == 0:
            machine.compile_begin()
        return traces, monotonic_ns()

    def _ends(self, machine: PhaseMachine, begun: tuple[int | None, int]) -> None:
        traces, began_ns = begun
        took_ns = monotonic_ns() - began_ns
        listener, execution = self._listener, Execution(0, self._batches, 0)
        has_traced = traces_of(self._fused) != traces
        if has_traced:
            self._check_timers()
        if self._accounts is not None:
            try:
                execution = self._accounts.executed(took_ns, monotonic_ns())
            except Exception as error:  # noqa: BLE001 (training goes on without timers)
                self._see_one_phase(error)
        if execution.wait_ns:
            listener.waited(execution.wait_ns)
        if has_traced and traces:
            listener.compiled(took_ns - execution.wait_ns)
        machine.dispatched(execution.steps, execution.samples)

    def _ends_without_batch(self, machine: PhaseMachine, begun: tuple[int | None, int]) -> None:
        """End an execution that only waited for the end of the data, and was no step."""
        traces, began_ns = begun
        took_ns = monotonic_ns() - began_ns
        if self._accounts is not None:
            try:
                wait_ns = self._accounts.found_nothing(took_ns)
            except Exception as error:  # noqa: BLE001
                self._see_one_phase(error)
            else:
                if wait_ns >= _MIN_REPORTED_NS and traces == traces_of(self._fused):
                    self._listener.waited(wait_ns)
        machine.fetch_exhausted()

    def _check_accounts(self, totals: GraphTotals, traces: int | None) -> None:
        """Another thread may have trained meanwhile: its waits are not counted here."""
        if traces != totals.traces:
            self._see_one_phase("it was traced while another run was tagged")
        elif self._was_unheard:
            self._was_unheard = False
            try:
                self._accounts = Accounts(totals.read, self._batches)
            except Exception as error:  # noqa: BLE001
                self._see_one_phase(error)

    def _check_timers(self) -> None:
        """Check that the timers went into the new trace."""
        if self._totals is None:
            return
        if self._totals.trouble is not None:
            self._see_one_phase(self._totals.trouble)
        elif self._totals.timers:
            self._totals.timers = 0
            self._totals.traces = traces_of(self._fused) or 0
        else:
            self._see_one_phase("no operation that fetches a batch went by while it was traced")

    def _see_one_phase(self, reason: object) -> None:
        self._accounts = self._totals = None
        warn_blind(reason)


def warn_blind(reason: object) -> None:
    """Warn that the wait cannot be distinguished from the compute."""
    warn_quietly(
        "gpumon cannot see the wait for input inside the steps of this run, "
        f"it counts as train_step: {reason}"
    )
