"""Keras on torch: it waits in loaders that its adapters create, and computes in step functions."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any, Final

from trainer_hooks.ring.call_frames import caller_named
from trainer_hooks.ring.guard import guards_itself, passes_through
from trainer_hooks.ring.phase_modes import TRAIN_MODE
from trainer_hooks.taps.cuda_events import CudaEvents, events_of_this_device
from trainer_hooks.taps.phase_machine import Interrupted, PhaseMachine
from trainer_hooks.taps.tap import StepListener, Tap, rows_of
from trainer_hooks.taps.torch_compiling import CompileClock

StepFunction = Callable[[Any], Any]

_STEPS_TO_FIND_A_DEVICE: Final = 3
"""A model may first touch its GPU in its first step."""
_MAKES_LOADERS: Final = "get_torch_dataloader"


class TorchTap(Tap):
    """Wraps the step functions and the loaders, listens for compilations, and queries CUDA.

    CUDA is queried only if the run uses it: nothing is initialised here.
    """

    fetches_first = True

    def __init__(self, model: Any, listener: StepListener) -> None:  # noqa: ANN401
        super().__init__(model, listener)
        self._loaders = TorchLoaders(listener)
        self._clock = CompileClock(listener)
        self._device: CudaEvents | None = None
        self._steps_to_find_a_device = _STEPS_TO_FIND_A_DEVICE

    def install(self, mode: int) -> None:
        self._loaders.install(mode)
        super().install(mode)
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
        return (
            self._timed_train(function)
            if mode == TRAIN_MODE
            else self._interrupting(function, mode)
        )

    def _timed_train(self, function: StepFunction) -> StepFunction:
        listener, guard = self._listener, self._listener.guard
        failed = guard.wrap(listener.failed)

        @guards_itself
        def train(data: Any) -> Any:  # noqa: ANN401
            machine = None
            try:
                machine = self._step_begins()
            except Exception as error:  # noqa: BLE001 (training goes on)
                guard.fail(error)
            if machine is None:
                return function(data)
            try:
                logs = function(data)
            except BaseException:
                failed()
                raise
            try:
                if guard.is_intact:
                    self._step_ends(machine, data)
            except Exception as error:  # noqa: BLE001
                guard.fail(error)
            return logs

        return train

    def _step_begins(self) -> PhaseMachine | None:
        """Begin a training step; ``None``: it does not belong to this run."""
        listener = self._listener
        machine = listener.machine_here
        if machine is None or (machine.is_calling_back and listener.is_calling_back()):
            return None
        device = self._device
        if device is None and self._steps_to_find_a_device:
            self._steps_to_find_a_device -= 1
            device = self._device = events_of_this_device(listener.device_done)
        if device is not None:
            device.step_begins()
        machine.fetch_end()
        self._clock.is_in_step = True
        return machine

    def _step_ends(self, machine: PhaseMachine, data: Any) -> None:  # noqa: ANN401
        """End the step; ``data`` is the list of this execution's batches."""
        clock, device = self._clock, self._device
        clock.is_in_step = False
        if clock.elsewhere_ns:
            clock.end_step()
        samples = rows_of(data[0]) if len(data) == 1 else sum(map(rows_of, data))
        machine.dispatched(len(data), samples)
        if device is not None:
            device.step_ended(self._listener.steps)

    def _interrupting(self, function: StepFunction, mode: int) -> StepFunction:
        listener = self._listener

        def interrupt() -> tuple[PhaseMachine, Interrupted | None] | None:
            machine = listener.machine_here
            if machine is None:
                return None
            before = machine.interrupt(mode)
            machine.fetch_end()
            return machine, before

        begins, ends = listener.guard.wrap(interrupt), listener.guard.wrap(PhaseMachine.resume)

        @passes_through
        def interrupting(data: Any) -> Any:  # noqa: ANN401
            taken = begins()
            try:
                return function(data)
            finally:
                if taken is not None:
                    ends(*taken)

        return interrupting


class TorchLoaders:
    """Replaces a run's loaders by timed ones, until ``remove``.

    A data adapter belongs to one ``fit``, ``evaluate`` or ``predict``, and Keras asks it for a
    loader in each epoch: an attribute of the adapter is enough, and the user's loader is untouched.
    """

    def __init__(self, listener: StepListener) -> None:
        self._listener = listener
        self._adapters: list[Any] = []
        self._run: weakref.ref[Any] | None = None

    def install(self, mode: int) -> None:
        """Wrap the loaders of the nearest Keras run among the callers.

        Raises:
            LookupError: A run is not fed by Keras' epoch iterator.
        """
        feeder = caller_named("epoch_iterator", _makes_loaders)
        if feeder is None:
            if mode == TRAIN_MODE and not self._adapters:
                raise LookupError("it is not fed by an epoch iterator of Keras")
            return
        if self._run is None:
            # A callback that raises ends the run without a call.
            self._run = weakref.ref(feeder, self._run_is_gone)
        adapter = feeder.data_adapter
        if _MAKES_LOADERS in vars(adapter):
            return
        bare, timed = getattr(adapter, _MAKES_LOADERS), self._listener.guard.wrap(TorchLoader)

        @passes_through
        def make() -> Any:  # noqa: ANN401
            loader = bare()
            installed = timed(loader, mode, self._listener)
            return loader if installed is None else installed

        setattr(adapter, _MAKES_LOADERS, make)
        self._adapters.append(adapter)

    def remove(self) -> None:
        """Restore the adapters."""
        self._run = None
        for adapter in self._adapters:
            vars(adapter).pop(_MAKES_LOADERS, None)
        self._adapters.clear()

    def _run_is_gone(self, _: object) -> None:
        if self._listener.machine_here is not None:
            self._listener.failed()


class TorchLoader:
    """A loader with timed iterators; otherwise the loader it wraps."""

    def __init__(self, loader: Any, mode: int, listener: StepListener) -> None:  # noqa: ANN401
        self._loader = loader
        self._mode = mode
        self._listener = listener

    @passes_through
    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._loader, name)

    @passes_through
    def __iter__(self) -> Iterator[Any]:
        """Count starting the workers as a wait for input, too."""
        guard = self._listener.guard
        batches = guard.wrap(TorchBatches)(self._mode, self._listener)
        if batches is None:
            return iter(self._loader)
        guard.wrap(batches.start)()
        try:
            batches.source = iter(self._loader)
        except BaseException:
            guard.wrap(batches.failed)()
            raise
        guard.wrap(batches.exhausted)()
        return batches


class TorchBatches:
    """An iterator over batches that counts each ``next()`` as a wait for input.

    The wait ends when the step begins, or the callbacks before it.

    Attributes:
        source: Where they come from.
    """

    __slots__ = ("_exhausted", "_failed", "_guard", "_listener", "_mode", "source")

    def __init__(self, mode: int, listener: StepListener) -> None:
        self.source: Iterator[Any] = iter(())
        self._mode = mode
        self._listener = listener
        self._guard = listener.guard
        self._exhausted = listener.guard.wrap(self.exhausted)
        self._failed = listener.guard.wrap(self.failed)

    @passes_through
    def __iter__(self) -> TorchBatches:
        return self

    @guards_itself
    def __next__(self) -> Any:  # noqa: ANN401
        try:
            machine = self._listener.machine_here
            if machine is not None:
                if machine.mode != self._mode == TRAIN_MODE:
                    machine.run_end()  # a validation raised and the error was caught
                machine.fetch_begin()
        except Exception as error:  # noqa: BLE001 (training goes on)
            self._guard.fail(error)
        try:
            return next(self.source)
        except StopIteration:
            self._exhausted()
            raise
        except BaseException:
            self._failed()
            raise

    def start(self) -> None:
        machine = self._listener.machine_here
        if machine is not None:
            machine.fetch_begin()

    def exhausted(self) -> None:
        """There is no next batch, or not yet."""
        machine = self._listener.machine_here
        if machine is not None:
            machine.fetch_exhausted()

    def failed(self) -> None:
        """Fetching raised. In a validation that may be caught."""
        if self._mode == TRAIN_MODE and self._listener.machine_here is not None:
            self._listener.failed()


def _makes_loaders(candidate: Any) -> bool:  # noqa: ANN401
    return hasattr(getattr(candidate, "data_adapter", None), _MAKES_LOADERS)
