"""Where Keras computes on torch: in its step functions, which are handed batches that are there."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any, Final

from trainer_hooks.keras_fit.phase_machine import TRAIN
from trainer_hooks.taps import StepListener
from trainer_hooks.taps.cuda_events import CudaEvents, events_of_this_device
from trainer_hooks.taps.samples import rows_of
from trainer_hooks.taps.step_functions import StepFunctions
from trainer_hooks.taps.torch_batches import TimedLoaders
from trainer_hooks.taps.torch_compile import CompileClock

StepFunction = Callable[[Any], Any]

_STEPS_TO_FIND_A_DEVICE: Final = 3
"""A model may first touch its GPU in its first step."""


class TorchTap(StepFunctions):
    """Goes around the step functions and the loaders, hears of compiling, and asks CUDA.

    CUDA is asked only if the training uses it: nothing is initialised here.
    """

    fetches_first = True

    def __init__(self, model: Any, listener: StepListener) -> None:  # noqa: ANN401
        super().__init__(model, self._timed)
        self._listener = listener
        self._loaders = TimedLoaders(listener)
        self._clock = CompileClock(listener)
        self._device: CudaEvents | None = None
        self._steps_to_find_a_device = _STEPS_TO_FIND_A_DEVICE

    def place(self, mode: int) -> None:
        self._loaders.place(mode)
        super().place(mode)
        self._clock.listen()

    def remove(self) -> None:
        super().remove()
        self._loaders.remove()
        self._clock.leave()
        if self._device is not None:
            self._device.stop()
            self._device = None
        self._steps_to_find_a_device = 0

    def _timed(self, function: StepFunction, mode: int) -> StepFunction:
        return self._timed_train(function) if mode == TRAIN else self._borrowed(function, mode)

    def _timed_train(self, function: StepFunction) -> StepFunction:
        listener, clock = self._listener, self._clock

        def train(data: Any) -> Any:  # noqa: ANN401
            machine = listener.machine
            # As ``machine_here``, in place: this is asked in every step.
            is_here = get_ident() == listener.ring.thread and listener.is_active
            if not is_here or (machine.is_calling_back and listener.is_calling_back()):
                return function(data)
            device = self._device
            if device is None and self._steps_to_find_a_device:
                device = self._find_device()
            if device is not None:
                device.step_begins()
            machine.fetch_end()
            clock.is_in_step = True
            try:
                logs = function(data)
            except BaseException:
                listener.failed()
                raise
            clock.is_in_step = False
            if clock.elsewhere_ns:
                clock.end_step()
            # ``data`` is the list of this execution's batches.
            samples = rows_of(data[0]) if len(data) == 1 else sum(map(rows_of, data))
            machine.dispatched(len(data), samples)
            if device is not None:
                device.step_ended(listener.steps)
            return logs

        return train

    def _borrowed(self, function: StepFunction, mode: int) -> StepFunction:
        listener = self._listener

        def borrowed(data: Any) -> Any:  # noqa: ANN401
            machine = listener.machine_here
            if machine is None:
                return function(data)
            if machine.mode == mode:
                machine.fetch_end()
                return function(data)
            before = machine.borrow(mode)
            try:
                return function(data)
            finally:
                machine.give_back(before)

        return borrowed

    def _find_device(self) -> CudaEvents | None:
        self._steps_to_find_a_device -= 1
        self._device = events_of_this_device(self._listener.device_done)
        return self._device
