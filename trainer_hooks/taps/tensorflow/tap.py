"""Where Keras waits on TensorFlow: inside the compiled step, except in ``predict``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from trainer_hooks.ring.call_frames import caller_named
from trainer_hooks.ring.guard import passes_through
from trainer_hooks.ring.phase_modes import PREDICT_MODE, TRAIN_MODE
from trainer_hooks.taps import keras_private as private
from trainer_hooks.taps.tap import (
    FUNCTION_OF_MODE,
    FetchedBatches,
    StepListener,
    Tap,
    bare_of,
    mark_wait_as_gross,
)
from trainer_hooks.taps.tensorflow.eager import EagerStep
from trainer_hooks.taps.tensorflow.functions import form_of, traces_of
from trainer_hooks.taps.tensorflow.fused import (
    FusedStep,
    GraphTotals,
    new_totals_for,
    totals_in,
    warn_blind,
)
from trainer_hooks.taps.tensorflow.graph_clock import FORBIDDEN
from trainer_hooks.taps.tensorflow.split import SplitStep


class TensorflowTap(Tap):
    """Wraps the steps: between fetch and compute where possible, else inside the graph."""

    def __init__(self, model: Any, listener: StepListener) -> None:  # noqa: ANN401
        super().__init__(model, listener)
        self._steps_per_execution = int(getattr(model, "steps_per_execution", 1) or 1)
        self._totals: GraphTotals | None = None

    def install(self, mode: int) -> None:
        if mode == PREDICT_MODE:
            self._go_around_predict()
            return
        if self._is_installed(FUNCTION_OF_MODE[mode]):
            return
        if mode == TRAIN_MODE and not self._is_split(bare_of(self._model.train_function)):
            try:
                self._make_ready_for_timers()
            except Exception as error:  # noqa: BLE001 (one phase instead of two)
                warn_blind(error)
        super().install(mode)

    def remove(self) -> None:
        """Restore the model and stop the clocks in its graph."""
        super().remove()
        if self._totals is not None:
            self._totals.clock.stop()

    def _timed(self, function: Any, mode: int) -> Any:  # noqa: ANN401
        step = self._step_around(function, mode)
        if step is None:
            return function

        @passes_through
        def timed(iterator: Any) -> Any:  # noqa: ANN401
            return step(iterator)

        return timed

    def _step_around(self, function: Any, mode: int) -> Callable[[Any], Any] | None:  # noqa: ANN401
        if self._is_split(function):
            return SplitStep(function, mode, self._listener)
        step: EagerStep | FusedStep | None = None
        if form_of(function).fused is None:
            step = self._eager_step(function, mode)
        if step is None:
            if mode != TRAIN_MODE:  # one phase: a wait inside its graph is not separated
                return None
            step = FusedStep(function, self._listener, batches=self._steps_per_execution)
        if step.has_gross_wait:
            mark_wait_as_gross()
        return step

    def _eager_step(self, function: Any, mode: int) -> EagerStep | None:  # noqa: ANN401
        try:
            return EagerStep(function, mode, self._listener, batches=self._steps_per_execution)
        except Exception as error:  # noqa: BLE001 (another TensorFlow may look otherwise inside)
            if mode == TRAIN_MODE:
                warn_blind(error)
            return None

    def _is_split(self, function: Any) -> bool:  # noqa: ANN401
        return self._steps_per_execution == 1 and form_of(function).takes_batches

    def _make_ready_for_timers(self) -> None:
        """Make sure that every trace of the train function has timers."""
        model = self._model
        fused = form_of(bare_of(model.train_function)).fused
        if fused is None:
            return
        self._totals = totals_in(fused)
        if self._totals is None:
            if traces_of(fused):  # without timers: make and trace it again
                model.make_train_function(force=True)
                fused = form_of(model.train_function).fused
            self._totals = new_totals_for(fused)
        if not self._totals.clock.start():
            warn_blind(FORBIDDEN)

    def _go_around_predict(self) -> None:
        """Time the dataset of ``predict``, before its first batch.

        Nothing has to be restored: the epoch iterator belongs to this call.
        """
        epoch_iterator = caller_named(
            "epoch_iterator", lambda found: hasattr(found, private.DATASET)
        )
        dataset = getattr(epoch_iterator, private.DATASET, None)
        if dataset is not None and not isinstance(dataset, _TimedDataset):
            setattr(epoch_iterator, private.DATASET, _TimedDataset(dataset, self._listener))


class _TimedDataset:
    def __init__(self, dataset: Any, listener: StepListener) -> None:  # noqa: ANN401
        self._dataset = dataset
        self._timed = listener.guard.wrap(partial(_timed, listener))

    @passes_through
    def __iter__(self) -> Iterator[Any]:
        source: Iterator[Any] = iter(self._dataset)
        return self._timed(source) or source


def _timed(listener: StepListener, source: Iterator[Any]) -> FetchedBatches | None:
    machine = listener.machine_here
    if machine is None or machine.mode != PREDICT_MODE:
        return None
    return FetchedBatches(source, machine, listener.guard)
