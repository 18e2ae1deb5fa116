"""What ``fit`` reports about itself: keys in its epochs' ``logs``, and one line at its end."""

from __future__ import annotations

import functools
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping
from math import nan
from shlex import quote
from time import monotonic_ns
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec

from gpumon.core.accounting.histograms import WARM_UP_STEPS, LengthHistogram
from gpumon.core.phase import PHASES, STEP_PHASES, TrainingPhase
from gpumon.core.ring_format.facts import has_gross_waits
from gpumon.core.wording import counted
from trainer_hooks.ring.daemon_counters import GpuRatios
from trainer_hooks.ring.daemon_state import state_folders
from trainer_hooks.ring.ring_writer import RingWriter
from trainer_hooks.taps.phase_machine import PhaseMachine

_LOG = logging.getLogger(__name__)


def say(line: str) -> None:
    """Print a line where the progress bar is printed; log it where Keras logs instead."""
    import keras

    if keras.config.is_interactive_logging_enabled():
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    else:
        _LOG.info(line)


P = ParamSpec("P")


def _attempted(what: Callable[Concatenate[Figures, P], None]) -> Callable[..., None]:
    """On an error, give no figures from then on and warn."""

    @functools.wraps(what)
    def attempted(self: Figures, *args: P.args, **named: P.kwargs) -> None:
        if self._are_given:
            try:
                what(self, *args, **named)
            except Exception as error:  # noqa: BLE001 (training goes on, whatever happens here)
                self._are_given, self._ends.times = False, None
                self._warn(f"gpumon's PhaseTagger gives no figures of this run: {error!r}")

    return attempted


class Figures:
    """The figures of one ``fit``."""

    def __init__(self, ends: StepEnds, warn: Callable[[str], None]) -> None:
        """Report trouble to ``warn``, as a sentence."""
        self._ends, self._warn = ends, warn
        self._are_given = True

    @_attempted
    def begin(self, writer: RingWriter, machine: PhaseMachine, *, wants_logs: bool) -> None:
        self._writer = writer
        self._machine = machine
        self._wants_logs = wants_logs
        self._began_ns = self._epoch_began_ns = monotonic_ns()
        self._phases_before = [writer.spent_ns(number) for number in range(len(PHASES))]
        self._steps_before, self._samples_before = writer.steps, writer.samples
        self._waited_before_ns = 0
        self._keys: tuple[str, ...] | None = None
        self._gpus = GpuRatios(state_folders(os.environ, os.geteuid()), writer.facts.boot_id)
        self._times = self._ends.times = StepTimes(writer.steps)

    @_attempted
    def epoch_begins(self) -> None:
        self._epoch_began_ns = monotonic_ns()
        self._waited_before_ns = self._machine.training_wait_ns
        self._times.begin_epoch(self._writer.steps)
        if self._wants_logs:
            self._gpus.begin()

    @_attempted
    def epoch_ends(self, logs: Any, *, sees_input: bool) -> None:  # noqa: ANN401
        """End an epoch: add to ``logs`` what is known, under the keys of the first epoch.

        Args:
            logs: The dictionary that Keras passes to every callback.
            sees_input: Whether the wait for input is distinguished from the step.
        """
        if not self._wants_logs or not isinstance(logs, dict) or not self._writer.enabled:
            return
        wall_ns = monotonic_ns() - self._epoch_began_ns
        known = dict(self._gpus.since_then(self._writer.facts))
        if sees_input and wall_ns > 0:
            waited_ns = self._machine.training_wait_ns - self._waited_before_ns
            known["input_wait_ratio"] = min(1.0, max(0.0, waited_ns / wall_ns))
        if self._keys is None:
            self._keys = tuple(known)
        # The same keys in every epoch, so that all columns of History have one length.
        logs.update({key: known.get(key, nan) for key in self._keys})

    @_attempted
    def print_line(self, *, is_asynchronous: bool) -> None:
        """Print the closing line after ``fit``, if a step was done.

        Args:
            is_asynchronous: Whether the device may have worked while the host waited.
        """
        steps = self._writer.steps - self._steps_before
        if steps <= 0 or not self._writer.enabled:
            return
        phase_ns = [
            self._writer.spent_ns(number) - before
            for number, before in enumerate(self._phases_before)
        ]
        figures = FitFigures(
            steps=steps,
            wall_ns=monotonic_ns() - self._began_ns,
            median_ns=self._times.median_ns,
            left_out=self._times.left_out,
            samples_per_second=self._samples_per_second(steps),
            phase_ns=tuple(phase_ns),
            is_asynchronous=is_asynchronous or has_gross_waits(self._writer.facts.loader),
            has_daemon=self._gpus.is_there(),
            run=self._writer.facts.run,
        )
        say(closing_line(figures))

    def _samples_per_second(self, steps: int) -> float | None:
        samples = self._writer.samples - self._samples_before
        times = self._times
        if samples <= 0 or times.counted_ns <= 0:
            return None
        return samples / steps * times.counted * 1e9 / times.counted_ns


_WORTH_NAMING: Final = 0.05
_WORDS: Final[Mapping[TrainingPhase, str]] = {
    TrainingPhase.START_UP: "starting up",
    TrainingPhase.COMPILE: "compiling",
    TrainingPhase.INPUT_WAIT: "waiting for input",
    TrainingPhase.HOST_TO_DEVICE: "copying to the device",
    TrainingPhase.CALLBACKS: "in callbacks",
    TrainingPhase.CHECKPOINT: "writing checkpoints",
    TrainingPhase.VALIDATION: "in validation",
    TrainingPhase.PREDICT: "in prediction",
    TrainingPhase.BETWEEN_EPOCHS: "between epochs",
    TrainingPhase.OTHER: "outside what the tags cover",
}


class FitFigures(NamedTuple):
    """What is known at the end of a ``fit``.

    Attributes:
        steps: Training steps done.
        wall_ns: Duration of the ``fit``.
        median_ns: The median step; ``None`` where too few were done.
        left_out: Warm-up steps that the median leaves out.
        samples_per_second: ``None`` where samples could not be counted.
        phase_ns: Time in each phase, in the order of ``PHASES``.
        is_asynchronous: Whether the device may have worked while the host waited.
        has_daemon: Whether a daemon is running.
        run: The run's name, as in a daemon's report.
    """

    steps: int
    wall_ns: int
    median_ns: float | None
    left_out: int
    samples_per_second: float | None
    phase_ns: tuple[int, ...]
    is_asynchronous: bool
    has_daemon: bool
    run: str


def closing_line(figures: FitFigures) -> str:
    """Return the pace, what took most of the time, and what to do next."""
    return f"gpumon: {', '.join(_pace(figures))}; {_loss(figures)}"


def _pace(figures: FitFigures) -> list[str]:
    wall = f"{figures.wall_ns / 1e9:,.1f} s"
    words = [f"{counted(figures.steps, 'step', 'steps')} in {wall}"]
    if figures.median_ns is not None:
        left_out = f", {figures.left_out} warm-up steps left out" if figures.left_out else ""
        words.append(f"{_milliseconds(figures.median_ns)} a step (median{left_out})")
    if figures.samples_per_second is not None:
        words.append(f"{figures.samples_per_second:,.0f} samples/s")
    return words


def _loss(figures: FitFigures) -> str:
    shares = {
        phase: spent_ns / figures.wall_ns if figures.wall_ns > 0 else 0.0
        for phase, spent_ns in zip(PHASES, figures.phase_ns, strict=True)
    }
    main = max((phase for phase in PHASES if phase not in STEP_PHASES), key=shares.__getitem__)
    if shares[main] < _WORTH_NAMING:
        work = sum(shares[phase] for phase in STEP_PHASES)
        return f"{100 * work:.0f} % of the time in training steps, nothing else above 5 %"
    text = f"{100 * shares[main]:.0f} % of the time {_WORDS[main]}"
    if figures.is_asynchronous and main is TrainingPhase.INPUT_WAIT:
        text += " (of the host's: the device may have been busy meanwhile)"
    if main is TrainingPhase.START_UP:
        return text
    if figures.has_daemon:
        asked = f"`gpumon report --run {quote(figures.run)}`"
        return f"{text}: {asked} says what that cost the GPUs and what to change first"
    return f"{text}: train beside `gpumon serve`, and `gpumon report` says what to change first"


def _milliseconds(duration_ns: float) -> str:
    duration_ms = duration_ns / 1e6
    return f"{duration_ms:,.{1 if duration_ms >= 10 else 2}f} ms"


class StepTimes:
    """The time from the end of each step to the next, in a histogram of bounded size.

    As in the daemon's report, the first step of an epoch is not counted: what happens between two
    epochs, such as starting the loader, is not part of a step.

    >>> times = StepTimes()
    >>> times.begin_epoch(0)
    >>> for step in range(1, 101):
    ...     times.done(step, step * 1_000_000)
    >>> round(times.median_ns / 1e6, 1), times.left_out
    (1.0, 3)

    Attributes:
        left_out: Warm-up steps.
        counted_ns: Duration of the steps after them, nanoseconds.
    """

    def __init__(self, first_step: int = 0) -> None:
        """Start after ``first_step`` earlier steps."""
        self._lengths = LengthHistogram()
        self._first_step = first_step
        self._last_step = first_step
        self._last_ns: int | None = None  # of its end, if its epoch goes on
        self.left_out = self.counted_ns = 0

    def begin_epoch(self, step: int) -> None:
        """Begin an epoch after ``step`` steps."""
        self._last_step, self._last_ns = step, None

    def done(self, step: int, at_ns: int) -> None:
        """Record the end of step ``step``. Steps may be skipped. One thread at a time.

        Args:
            step: Counted from 1 over the process, including steps before this run.
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
        return self._lengths.count

    @property
    def median_ns(self) -> float | None:
        """The median step, in nanoseconds; ``None`` where no step was counted."""
        return self._lengths.median_ns


class StepEnds:
    """Receives the ends of steps, on any thread, for the ring and for the figures of a ``fit``.

    Where Keras does not wait for a step on the training thread, it does on a thread of its own, to
    hand numbers to the callbacks at a batch's end. Nothing more has to wait for the device.

    Attributes:
        times: Where they go; ``None``: there are no figures.
    """

    def __init__(self, writer: RingWriter, steps_per_execution: int) -> None:
        self.times: StepTimes | None = None
        self._writer = writer
        self._steps_per_execution = steps_per_execution
        self._first_step = 0  # steps before this epoch
        self._device_reports = False
        self._lock = threading.Lock()  # Keras has several threads

    def epoch_begins(self) -> None:
        self._first_step = self._writer.steps

    def device_finished(self, step: int, at_ns: int) -> None:
        """The device itself reports that it finished that step, CLOCK_MONOTONIC."""
        self._device_reports = True
        self._done(step, at_ns)

    def results_arrived(self, batch: int, at_ns: int) -> None:
        """Keras has the results of an execution, on a thread of its own.

        Args:
            batch: Index in the epoch of its first or last batch, depending on Keras' version.
            at_ns: CLOCK_MONOTONIC.
        """
        if self._device_reports:
            return
        several = self._steps_per_execution
        step = self._first_step + (batch // several + 1) * several
        self._done(min(step, self._writer.steps), at_ns)  # the last execution may be a short one

    def _done(self, step: int, at_ns: int) -> None:
        self._writer.device_done(step, at_ns)
        with self._lock:
            if self.times is not None:
                self.times.done(step, at_ns)
