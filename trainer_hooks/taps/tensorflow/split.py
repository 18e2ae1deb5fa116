"""One step an execution on TensorFlow: fetch outside the compiled step, then compute inside it."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from functools import partial
from time import monotonic_ns
from typing import Any

import tensorflow as tf

from trainer_hooks.ring.guard import Guard, passes_through
from trainer_hooks.ring.phase_modes import TRAIN_MODE
from trainer_hooks.taps.phase_machine import PhaseMachine
from trainer_hooks.taps.tap import StepListener, rows_of
from trainer_hooks.taps.tensorflow.functions import (
    ENDS_OF_DATA,
    StepAround,
    form_of,
    traces_of,
)


class QuickNext:
    """Does ``next(iterator)`` in a third of the time where batches are flat tuples of tensors.

    Three quarters of TensorFlow's own time is bookkeeping, for the mode of execution and the
    structure of the batch, which do not matter there. Other batches are fetched TensorFlow's way.
    """

    def __init__(self, guard: Guard) -> None:
        self._iterator: weakref.ref[Any] | None = None
        self._fetch: Callable[[], Any] | None = None
        self._look = guard.wrap(self._look_at)

    @passes_through
    def __call__(self, iterator: Any) -> Any:  # noqa: ANN401
        """Return the next batch.

        Raises:
            StopIteration: There is none.
        """
        if self._iterator is None or self._iterator() is not iterator:
            self._look(iterator)
        fetch = self._fetch
        if fetch is None:
            return next(iterator)
        try:
            return tuple(fetch())
        except tf.errors.OutOfRangeError:
            raise StopIteration from None
        except TypeError:  # another TensorFlow has other arguments
            self._fetch = None
            return next(iterator)

    def _look_at(self, iterator: Any) -> None:  # noqa: ANN401
        self._fetch = None
        with contextlib.suppress(Exception):  # another TensorFlow may look otherwise inside
            # A weak reference, because an iterator that Keras releases must end at once.
            self._iterator = weakref.ref(iterator, self._let_go)
            self._fetch = _fetch_of(iterator)

    @passes_through
    def _let_go(self, gone: weakref.ref[Any]) -> None:
        if gone is self._iterator:
            self._iterator = self._fetch = None


def _fetch_of(iterator: Any) -> Callable[[], Any] | None:  # noqa: ANN401
    """Return what fetches the tensors of a batch; ``None`` if the batch is not a flat tuple."""
    spec = iterator.element_spec
    is_plain = type(spec) is tuple and all(type(part) is tf.TensorSpec for part in spec)
    if not is_plain or not isinstance(iterator, tf.data.Iterator):
        return None
    if not tf.config.experimental.get_synchronous_execution():
        return None
    (handle,) = tf.nest.flatten(iterator, expand_composites=True)
    if handle.dtype is not tf.resource:
        return None
    types, shapes = [part.dtype for part in spec], [part.shape for part in spec]
    fetch = tf.raw_ops.IteratorGetNext
    return partial(fetch, iterator=handle, output_types=types, output_shapes=shapes)


class SplitStep(StepAround):
    """Fetches each batch itself and passes the step an iterator over this one batch.

    Keras' step accepts that as well as the full iterator, because ``train_on_batch`` needs it, and
    computes the same from it.
    """

    def __init__(self, function: Any, mode: int, listener: StepListener) -> None:  # noqa: ANN401
        super().__init__(function, mode, listener)
        guard = listener.guard
        self._form = form_of(function)
        self._next = QuickNext(guard)
        self._is_first = True
        self._fetch_begins = guard.wrap(PhaseMachine.fetch_begin)
        self._fetch_finds_nothing = guard.wrap(PhaseMachine.fetch_exhausted)
        self._begin_step, self._end_step = guard.wrap(self._begins), guard.wrap(self._ends)
        self._begin_replay = guard.wrap(self._replay_begins)

    @passes_through
    def _train(self, machine: PhaseMachine, iterator: Any) -> Any:  # noqa: ANN401
        try:
            self._fetch_begins(machine)
            try:
                batch = self._next(iterator)
            except StopIteration:
                return self._replay(machine, iterator)
            begun = self._begin_step(machine, iterator)
            logs = self._function(iter((batch,)))
        except ENDS_OF_DATA:
            raise
        except BaseException:
            self._failed()
            raise
        self._end_step(machine, batch, begun)
        return logs

    @passes_through
    def _evaluate(self, machine: PhaseMachine, iterator: Any) -> Any:  # noqa: ANN401
        self._fetch_begins(machine)
        try:
            batch = self._next(iterator)
        except StopIteration:
            return self._replay(machine, iterator)
        self._begin_step(machine, iterator)
        return self._function(iter((batch,)))

    @passes_through
    def _replay(self, machine: PhaseMachine, iterator: Any) -> Any:  # noqa: ANN401
        """Make Keras' own call at the end of the data: it does more than the failing fetch."""
        is_traced_now = self._begin_replay(machine)
        try:
            return self._function(iterator)
        finally:
            if is_traced_now:
                self._fetch_finds_nothing(machine)

    def _begins(self, machine: PhaseMachine, iterator: Any) -> tuple[int | None, int]:  # noqa: ANN401
        """Begin the step after the fetch.

        Returns:
            How often the step was traced before, and when it began: CLOCK_MONOTONIC, nanoseconds.
        """
        machine.fetch_end()
        traces = traces_of(self._form.one_step) if self._mode == TRAIN_MODE else None
        if traces == 0:
            machine.compile_begin()
        began_ns = monotonic_ns()
        if self._is_first:
            self._trace_as_keras_would(iterator)
        return traces, began_ns

    def _ends(
        self,
        machine: PhaseMachine,
        batch: Any,  # noqa: ANN401
        begun: tuple[int | None, int],
    ) -> None:
        traces, began_ns = begun
        if traces and traces_of(self._form.one_step) != traces:
            self._listener.compiled(monotonic_ns() - began_ns)
        machine.dispatched(1, _rows_of(batch))

    def _replay_begins(self, machine: PhaseMachine) -> bool:
        machine.fetch_exhausted()
        is_traced_now = self._mode == TRAIN_MODE and traces_of(self._form.fused) == 0
        if is_traced_now:
            machine.compile_begin()
        return is_traced_now

    def _trace_as_keras_would(self, iterator: Any) -> None:  # noqa: ANN401
        """Trace once for batches as the dataset describes them, if it leaves a size open.

        A fetched batch has all its sizes. Keras, fetching inside the graph, traces the step for the
        open ones, and a step may compute differently where it knows a size.
        """
        self._is_first = False
        one_step = self._form.one_step
        if one_step is None or self._form.fetches_eagerly:
            return
        # If this fails, the step is traced for the first batch as it is.
        with contextlib.suppress(Exception):
            spec = iterator.element_spec
            if _leaves_a_size_open(spec):
                one_step.get_concrete_function(tf.nest.map_structure(_none_if_optional, spec))


def _leaves_a_size_open(spec: Any) -> bool:  # noqa: ANN401
    parts = tf.nest.flatten(spec, expand_composites=True)
    return not all(part.shape.is_fully_defined() for part in parts if hasattr(part, "shape"))


def _none_if_optional(part: Any) -> Any:  # noqa: ANN401
    return None if isinstance(part, tf.OptionalSpec) else part


def _rows_of(batch: Any) -> int:  # noqa: ANN401
    rows = rows_of(batch)
    if rows == 0:
        with contextlib.suppress(Exception):
            first = tf.nest.flatten(batch)[0]
            if isinstance(first, tf.distribute.DistributedValues):
                rows = sum(rows_of(part) for part in first.values)
    return rows
