"""Step functions of Keras on TensorFlow: how one is built, and what replaces it."""

from __future__ import annotations

import abc
import inspect
from typing import Any, Final, NamedTuple

import tensorflow as tf

from trainer_hooks.ring.guard import passes_through
from trainer_hooks.ring.phase_modes import TRAIN_MODE
from trainer_hooks.taps import keras_private as private
from trainer_hooks.taps.phase_machine import PhaseMachine
from trainer_hooks.taps.tap import StepListener


class StepForm(NamedTuple):
    """How a step function is built.

    Attributes:
        one_step: The ``tf.function`` over one batch; ``None`` if there is none, as without
            compilation.
        fused: The ``tf.function`` that fetches and computes; ``None`` likewise.
        takes_batches: Whether it accepts an iterator over present batches, as from
            ``train_on_batch``, without retracing.
        fetches_eagerly: Whether it fetches one batch outside of any graph, as Keras
            does from 3.16 on: its step is then traced for the batch as it is.
    """

    one_step: Any | None
    fused: Any | None
    takes_batches: bool
    fetches_eagerly: bool = False


def form_of(function: Any) -> StepForm:  # noqa: ANN401
    """Inspect a step function; what is not recognised is ``None`` or false."""
    if _is_traced(function):  # Keras before 3.7, or the user's own
        return StepForm(None, function, takes_batches=False)
    try:
        held = inspect.getclosurevars(function).nonlocals
    except (TypeError, ValueError):  # not a function, or an empty cell
        held = {}
    if private.ONE_BATCH not in held or private.ITERATOR not in held:
        return StepForm(None, None, takes_batches=False)
    one_step, fused = (_unwrapped(held[name]) for name in (private.ONE_BATCH, private.ITERATOR))
    return StepForm(
        one_step if _is_traced(one_step) else None,
        fused if _is_traced(fused) else None,
        takes_batches=True,
        fetches_eagerly=any(name.startswith("get_next") for name in function.__code__.co_names),
    )


def traces_of(function: Any | None) -> int | None:  # noqa: ANN401
    """Return how often a ``tf.function`` was traced so far; ``None`` for other functions."""
    if function is None:
        return None
    try:
        return int(function.experimental_get_tracing_count())
    except Exception:  # noqa: BLE001 (it is called experimental)
        return None


def _is_traced(function: Any) -> bool:  # noqa: ANN401
    is_traceable = hasattr(function, "experimental_get_tracing_count")
    return is_traceable and not tf.config.functions_run_eagerly()


def _unwrapped(function: Any) -> Any:  # noqa: ANN401
    while not _is_traced(function) and hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


ITERATORS: Final = (tf.data.Iterator, tf.distribute.DistributedIterator)
"""What ``fit`` and ``evaluate`` pass to a step; ``train_on_batch`` passes something else."""

ENDS_OF_DATA: Final = (StopIteration, tf.errors.OutOfRangeError)
"""How a step signals the end of the data; Keras accepts both."""


class StepAround(abc.ABC):
    """Replaces the step function of one mode, and calls it.

    Calls from another thread, from a callback, or with a single batch are passed on as they are.
    """

    def __init__(self, function: Any, mode: int, listener: StepListener) -> None:  # noqa: ANN401
        self._function = function
        self._mode = mode
        self._listener = listener
        self._kind: type[Any] | None = None  # of the iterator that was handed over last
        self._machine_for = listener.guard.wrap(self._find_machine)
        self._interrupt = listener.guard.wrap(PhaseMachine.interrupt)
        self._resume = listener.guard.wrap(PhaseMachine.resume)
        self._failed = listener.guard.wrap(listener.failed)

    @passes_through
    def __call__(self, iterator: Any) -> Any:  # noqa: ANN401
        """Run one execution, with the arguments of the bare function."""
        machine = self._machine_for(iterator)
        if machine is None:
            return self._function(iterator)
        if self._mode == TRAIN_MODE:
            return self._train(machine, iterator)
        before = self._interrupt(machine, self._mode)
        try:
            return self._evaluate(machine, iterator)
        finally:
            self._resume(machine, before)

    def _find_machine(self, iterator: Any) -> PhaseMachine | None:  # noqa: ANN401
        """Return the rules if this step belongs to the run, else ``None``."""
        machine = self._listener.machine_here
        if machine is None:
            return None
        if type(iterator) is not self._kind:  # ``isinstance`` is slower
            if not isinstance(iterator, ITERATORS):
                return None
            self._kind = type(iterator)
        is_aside = self._mode == TRAIN_MODE and machine.is_calling_back
        return None if is_aside and self._listener.is_calling_back() else machine

    @abc.abstractmethod
    def _train(self, machine: PhaseMachine, iterator: Any) -> Any: ...  # noqa: ANN401

    @abc.abstractmethod
    def _evaluate(self, machine: PhaseMachine, iterator: Any) -> Any: ...  # noqa: ANN401
