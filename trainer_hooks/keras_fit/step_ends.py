"""When each training step is done: by what the device tells, or by what Keras waits for."""

from __future__ import annotations

import threading

from trainer_hooks.keras_fit.step_times import StepTimes
from trainer_hooks.ring.ring_writer import RingWriter


class StepEnds:
    """Hears of the ends of steps, on any thread, for the ring and for the figures of a ``fit``.

    Where Keras does not wait for a step on the thread that trains, it does on
    one of its own, for the callbacks at the batch's end are handed numbers.
    Whoever is called there needs no thread to wait on, and makes nobody wait.

    Attributes:
        times: Where they go; ``None``: there are no figures.
    """

    def __init__(self, writer: RingWriter, steps_per_execution: int) -> None:
        self.times: StepTimes | None = None
        self._writer = writer
        self._steps_per_execution = steps_per_execution
        self._first_step = 0  # steps before this epoch
        self._is_told_by_device = False
        self._lock = threading.Lock()  # Keras' threads may come two at once

    def epoch_begins(self) -> None:
        """All steps so far were those of other epochs."""
        self._first_step = self._writer.steps

    def told(self, step: int, at_ns: int) -> None:
        """The device finished that step then, CLOCK_MONOTONIC, and says so itself."""
        self._is_told_by_device = True
        self._done(step, at_ns)

    def results_are_there(self, batch: int, at_ns: int) -> None:
        """Keras has the results of an execution, on a thread of its own.

        Args:
            batch: Index in the epoch of one of its batches: Keras says the
                first or the last, by its version.
            at_ns: When, CLOCK_MONOTONIC.
        """
        if self._is_told_by_device:
            return
        several = self._steps_per_execution
        step = self._first_step + (batch // several + 1) * several
        self._done(min(step, self._writer.steps), at_ns)  # the last execution may be a short one

    def _done(self, step: int, at_ns: int) -> None:
        self._writer.device_done(step, at_ns)
        with self._lock:
            if self.times is not None:
                self.times.done(step, at_ns)
