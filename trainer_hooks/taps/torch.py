"""Where Keras waits on torch: between two steps, before the callbacks of the next batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainer_hooks.phase_machine import TRAIN
from trainer_hooks.taps import StepListener
from trainer_hooks.taps.samples import rows_of
from trainer_hooks.taps.step_functions import StepFunctions

StepFunction = Callable[[Any], Any]


class TorchTap(StepFunctions):
    """Goes around the step functions, which are handed batches that are there."""

    fetches_first = True

    def __init__(self, model: Any, listener: StepListener) -> None:  # noqa: ANN401
        super().__init__(model, lambda function, mode: _timed(function, mode, listener))


def _timed(function: StepFunction, mode: int, listener: StepListener) -> StepFunction:
    def train(data: Any) -> Any:  # noqa: ANN401
        machine = listener.machine_here
        if machine is None:
            return function(data)
        machine.fetch_end()
        try:
            logs = function(data)
        except BaseException:
            listener.failed()
            raise
        # With several steps an execution, ``data`` is the list of their batches.
        batches = data if isinstance(data, list) else [data]
        listener.dispatched(len(batches), sum(rows_of(batch) for batch in batches), logs)
        return logs

    def borrowed(data: Any) -> Any:  # noqa: ANN401
        machine = listener.machine_here
        if machine is None:
            return function(data)
        if machine.mode == mode:
            machine.fetch_end()
            result = function(data)
            machine.fetch_begin()
            return result
        before = machine.borrow(mode)
        try:
            return function(data)
        finally:
            machine.give_back(before)

    return train if mode == TRAIN else borrowed
