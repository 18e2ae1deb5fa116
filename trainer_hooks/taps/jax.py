"""Where Keras waits on JAX: inside the train function, which calls ``next(iterator)`` itself."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from trainer_hooks.phase_machine import TRAIN, PhaseMachine
from trainer_hooks.taps import StepListener
from trainer_hooks.taps.samples import rows_of
from trainer_hooks.taps.step_functions import StepFunctions

StepFunction = Callable[[Any, Any], tuple[Any, Any]]


class JaxTap(StepFunctions):
    """Goes around the step functions, hands them a timed iterator, and hears of compiling."""

    fetches_first = False

    def __init__(self, model: Any, listener: StepListener) -> None:  # noqa: ANN401
        super().__init__(model, lambda function, mode: _timed(function, mode, listener))
        with contextlib.suppress(Exception):  # another JAX may have no such monitoring
            _compile_listener().listen(listener.compiled)


class TimedBatches:
    """An iterator over batches whose every ``next()`` is a wait for input.

    Attributes:
        fetched: Batches since the last ``restart``.
        samples: Samples in them, where that could be seen.
    """

    __slots__ = ("_machine", "_source", "fetched", "samples")

    def __init__(self, source: Iterator[Any], machine: PhaseMachine) -> None:
        self._source = source
        self._machine = machine
        self.fetched = self.samples = 0

    def __iter__(self) -> TimedBatches:
        return self

    def __next__(self) -> Any:  # noqa: ANN401
        machine = self._machine
        machine.fetch_begin()
        try:
            batch = next(self._source)
        except StopIteration:
            machine.fetch_exhausted()
            raise
        machine.fetch_end()
        self.fetched += 1
        self.samples += rows_of(batch)
        return batch


def _timed(function: StepFunction, mode: int, listener: StepListener) -> StepFunction:
    return _train(function, listener) if mode == TRAIN else _borrowed(function, mode, listener)


def _train(function: StepFunction, listener: StepListener) -> StepFunction:
    def train(state: Any, source: Any) -> tuple[Any, Any]:  # noqa: ANN401
        machine = listener.machine_here
        if machine is None:
            return function(state, source)
        batches = _batches(source, machine)
        try:
            result = function(state, source if batches is None else batches)
        except StopIteration:
            raise
        except BaseException:
            listener.failed()
            raise
        if batches is None:
            listener.dispatched(len(source), sum(rows_of(batch) for batch in source), result[0])
        else:
            listener.dispatched(batches.fetched, batches.samples, result[0])
        return result

    return train


def _borrowed(function: StepFunction, mode: int, listener: StepListener) -> StepFunction:
    def own(state: Any, source: Any, machine: PhaseMachine) -> tuple[Any, Any]:  # noqa: ANN401
        batches = _batches(source, machine)
        if batches is not None:
            return function(state, batches)
        result = function(state, source)
        machine.fetch_begin()
        return result

    def borrowed(state: Any, source: Any) -> tuple[Any, Any]:  # noqa: ANN401
        machine = listener.machine_here
        if machine is None:
            return function(state, source)
        if machine.mode == mode:
            return own(state, source, machine)
        before = machine.borrow(mode)
        try:
            return own(state, source, machine)
        finally:
            machine.give_back(before)

    return borrowed


def _batches(source: Any, machine: PhaseMachine) -> TimedBatches | None:  # noqa: ANN401
    """The iterator that a step fetches from; ``None`` where Keras fetched its batches before.

    Keras 3.7 and older hand a step the list of its batches.
    """
    if hasattr(source, "__next__"):
        return TimedBatches(source, machine)
    machine.learn_that_batches_come_first()
    machine.fetch_end()
    return None


class _Listeners:
    """JAX keeps a listener for good, so there is one a process."""

    compile: Any = None


def _compile_listener() -> Any:  # noqa: ANN401
    if _Listeners.compile is None:
        from trainer_hooks.taps.compile_time import CompileListener

        _Listeners.compile = CompileListener()
    return _Listeners.compile
