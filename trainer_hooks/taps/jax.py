"""Where Keras waits on JAX: inside the train function, which calls ``next(iterator)`` itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from trainer_hooks.phase_machine import TRAIN, PhaseMachine

StepFunction = Callable[[Any, Iterator[Any]], tuple[Any, Any]]

FUNCTION_OF_MODE: Final = ("train_function", "test_function", "predict_function")
_DEEPEST: Final = 8


class StepListener(Protocol):
    """Who is told of steps."""

    @property
    def machine_here(self) -> PhaseMachine | None:
        """The rules, if the calling thread is the one that trains."""
        ...

    def dispatched(self, steps: int, samples: int, logs: object) -> None:
        """Steps were handed to the device."""
        ...

    def failed(self) -> None:
        """A step raised: nothing more will come of this run."""
        ...


class JaxTap:
    """Puts itself around a model's step functions and takes itself away again.

    Keras looks the functions up on the model in each step, and a model made
    by ``fit`` keeps them: so an attribute of the instance is enough.
    """

    def __init__(self, model: Any, listener: StepListener) -> None:  # noqa: ANN401
        self._model = model
        self._listener = listener
        self._placed: dict[str, tuple[StepFunction, StepFunction]] = {}

    def place(self, mode: int) -> None:
        """Go around the function of this mode, unless it is done already."""
        name = FUNCTION_OF_MODE[mode]
        present = getattr(self._model, name, None)
        if present is None or (name in self._placed and self._placed[name][1] is present):
            return
        timed = _timed(present, mode, self._listener)
        self._placed[name] = (present, timed)
        setattr(self._model, name, timed)

    def remove(self) -> None:
        """Leave the model as it was, but for functions that were made anew meanwhile."""
        for name, (original, timed) in self._placed.items():
            if getattr(self._model, name, None) is timed:
                setattr(self._model, name, original)
        self._placed.clear()


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


def rows_of(batch: Any) -> int:  # noqa: ANN401
    """Samples in a batch, from the shape of its first array; 0 where none can be seen.

    Looks at shapes only: no value is fetched from a device.
    """
    try:
        for _ in range(_DEEPEST):
            if isinstance(batch, dict):
                batch = next(iter(batch.values()))
            elif isinstance(batch, (tuple, list)):
                batch = batch[0]
            else:
                break
        return int(batch.shape[0])
    except Exception:  # noqa: BLE001 (whatever a batch is, the training goes on)
        return 0


def _timed(function: StepFunction, mode: int, listener: StepListener) -> StepFunction:
    def train(state: Any, iterator: Iterator[Any]) -> tuple[Any, Any]:  # noqa: ANN401
        machine = listener.machine_here
        if machine is None:
            return function(state, iterator)
        batches = TimedBatches(iterator, machine)
        try:
            result = function(state, batches)
        except StopIteration:
            raise
        except BaseException:
            listener.failed()
            raise
        listener.dispatched(batches.fetched, batches.samples, result[0])
        return result

    def borrowed(state: Any, iterator: Iterator[Any]) -> tuple[Any, Any]:  # noqa: ANN401
        machine = listener.machine_here
        if machine is None:
            return function(state, iterator)
        if machine.mode == mode:
            return function(state, TimedBatches(iterator, machine))
        before = machine.borrow(mode)
        try:
            return function(state, TimedBatches(iterator, machine))
        finally:
            machine.give_back(before)

    return train if mode == TRAIN else borrowed
