"""When each step of a training is done, and how long they take: a median that never grows."""

from __future__ import annotations

import threading

from gpumon.core.accounting.histograms import WARM_UP_STEPS, LengthHistogram
from trainer_hooks.ring.ring_writer import RingWriter


class StepTimes:
    """The time from the end of each step to that of the next, in a histogram that stays small.

    As in the daemon's report, the first step of an epoch has none: what lies between two epochs,
    the loader's start included, is no part of a step.

    >>> times = StepTimes()
    >>> times.begin_epoch(0)
    >>> for step in range(1, 101):
    ...     times.done(step, step * 1_000_000)
    >>> round(times.median_ns / 1e6, 1), times.left_out
    (1.0, 3)

    Attributes:
        left_out: Steps of the warm-up.
        counted_ns: What the steps after it took, nanoseconds.
    """

    def __init__(self, first_step: int = 0) -> None:
        """Take nothing yet; ``first_step`` steps were done before these."""
        self._lengths = LengthHistogram()
        self._first_step = first_step
        self._last_step = first_step
        self._last_ns: int | None = None  # of its end, if its epoch goes on
        self.left_out = self.counted_ns = 0

    def begin_epoch(self, step: int) -> None:
        """An epoch begins after ``step`` steps."""
        self._last_step, self._last_ns = step, None

    def done(self, step: int, at_ns: int) -> None:
        """Step number ``step`` is done. From one thread at a time; steps may be left out.

        Args:
            step: Counted from 1, those of steps before this training included.
            at_ns: CLOCK_MONOTONIC, nanoseconds.
        """
        last_step, last_ns = self._last_step, self._last_ns
        steps = step - last_step
        spent_ns = None if last_ns is None else at_ns - last_ns
        if steps <= 0 or (spent_ns is not None and spent_ns <= 0):
            return
        self._last_step, self._last_ns = step, at_ns
        if last_step - self._first_step < WARM_UP_STEPS:
            self.left_out += steps
            return
        if spent_ns is None:
            return
        self._lengths.add((spent_ns // steps,), each=steps)
        self.counted_ns += spent_ns

    @property
    def counted(self) -> int:
        """Steps after it."""
        return self._lengths.count

    @property
    def median_ns(self) -> float | None:
        """The median step, in nanoseconds; ``None`` where no step was counted."""
        return self._lengths.median_ns


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
