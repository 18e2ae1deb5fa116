"""Where Keras waits on TensorFlow: in an operation inside the compiled step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainer_hooks.phase_machine import TRAIN
from trainer_hooks.taps import StepListener
from trainer_hooks.taps.samples import rows_of
from trainer_hooks.taps.step_functions import StepFunctions

StepFunction = Callable[[Any], Any]


class TensorflowTap(StepFunctions):
    """Fetches each batch itself and hands the step an iterator over this one batch."""

    fetches_first = False

    def __init__(self, model: Any, listener: StepListener) -> None:  # noqa: ANN401
        super().__init__(model, lambda function, mode: _timed(function, mode, listener))


def _timed(function: StepFunction, mode: int, listener: StepListener) -> StepFunction:
    def train(iterator: Any) -> Any:  # noqa: ANN401
        machine = listener.machine_here
        if machine is None:
            return function(iterator)
        machine.fetch_begin()
        try:
            batch = next(iterator)
        except StopIteration:
            machine.fetch_exhausted()
            # Keras' own call at the end of the data runs more than the fetch: it is replayed.
            return function(iterator)
        machine.fetch_end()
        try:
            logs = function(iter((batch,)))
        except BaseException:
            listener.failed()
            raise
        listener.dispatched(1, rows_of(batch), logs)
        return logs

    return train if mode == TRAIN else function
