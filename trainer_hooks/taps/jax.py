"""Where Keras waits on JAX: inside the train function, which calls ``next(iterator)`` itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from trainer_hooks.keras.phase_machine import TRAIN, PhaseMachine
from trainer_hooks.taps import StepListener
from trainer_hooks.taps.gross_wait import say_that_the_wait_is_gross
from trainer_hooks.taps.jax_compiling import JAX_COMPILING
from trainer_hooks.taps.samples import rows_of
from trainer_hooks.taps.step_functions import StepFunctions

StepFunction = Callable[[Any, Any], tuple[Any, Any]]


class JaxTap(StepFunctions):
    """Goes around the step functions, hands them a timed iterator, and hears of compiling."""

    fetches_first = False

    def __init__(self, model: Any, listener: StepListener) -> None:  # noqa: ANN401
        super().__init__(model, lambda function, mode: _timed(function, mode, listener))
        self._has_gross_wait = getattr(model, "steps_per_execution", 1) != 1
        self._compiled = listener.compiled
        JAX_COMPILING.listen(self._compiled)

    def place(self, mode: int) -> None:
        """Go around the step of this mode, unless it is done already."""
        super().place(mode)
        if mode == TRAIN and self._has_gross_wait:
            say_that_the_wait_is_gross()

    def remove(self) -> None:
        """Leave the model as it was, and let go of it: JAX keeps what listens for good."""
        super().remove()
        JAX_COMPILING.leave(self._compiled)


_NO_BATCHES: Iterator[Any] = iter(())


class JaxBatches:
    """An iterator over batches whose every ``next()`` is a wait for input.

    Attributes:
        source: Where they come from.
        fetched: Batches since it was last set to 0.
        samples: Samples in them, where that could be seen.
    """

    __slots__ = ("_machine", "fetched", "samples", "source")

    def __init__(self, source: Iterator[Any], machine: PhaseMachine) -> None:
        self.source = source
        self._machine = machine
        self.fetched = self.samples = 0

    def __iter__(self) -> JaxBatches:
        return self

    def __next__(self) -> Any:  # noqa: ANN401
        machine = self._machine
        machine.fetch_begin()
        try:
            batch = next(self.source)
        except StopIteration:
            machine.fetch_exhausted()
            raise
        machine.fetch_end()
        self.fetched += 1
        self.samples += rows_of(batch)
        return batch


class JaxTrainingBatches(JaxBatches):
    """... and in an execution of several steps, the waits after the first are gross.

    The device has a step by then, and nobody says whether it is still at work
    on it: JAX tells only when all steps of an execution are done.
    """

    __slots__ = ()

    def __next__(self) -> Any:  # noqa: ANN401
        if not self.fetched:
            return super().__next__()
        self._machine.fetch_beside_begin()
        try:
            batch = next(self.source)
        finally:
            self._machine.fetch_end()
        self.fetched += 1
        self.samples += rows_of(batch)
        return batch


def _timed(function: StepFunction, mode: int, listener: StepListener) -> StepFunction:
    return _train(function, listener) if mode == TRAIN else _borrowed(function, mode, listener)


def _train(function: StepFunction, listener: StepListener) -> StepFunction:
    batches: JaxTrainingBatches | None = None

    def train(state: Any, iterator: Any) -> tuple[Any, Any]:  # noqa: ANN401
        nonlocal batches
        machine = listener.machine_here
        is_own = machine is not None and machine.is_calling_back and listener.is_calling_back()
        if machine is None or is_own or not hasattr(iterator, "__next__"):
            # An older Keras hands over what it fetched: a wait that was not seen is not told.
            return function(state, iterator)
        if batches is None:
            batches = JaxTrainingBatches(iterator, machine)
        batches.source = iterator
        batches.fetched = batches.samples = 0
        try:
            result = function(state, batches)
        except StopIteration:
            raise
        except BaseException:
            listener.failed()
            raise
        finally:
            batches.source = (
                _NO_BATCHES  # whoever waits for the iterator's end need not wait for us
            )
        machine.dispatched(batches.fetched, batches.samples)
        return result

    return train


def _borrowed(function: StepFunction, mode: int, listener: StepListener) -> StepFunction:
    def borrowed(state: Any, iterator: Any) -> tuple[Any, Any]:  # noqa: ANN401
        machine = listener.machine_here
        if machine is None or not hasattr(iterator, "__next__"):
            return function(state, iterator)
        with machine.borrowed(mode):
            return function(state, JaxBatches(iterator, machine))

    return borrowed
