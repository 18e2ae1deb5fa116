"""What a training is told of itself: keys in the ``logs`` of its epochs, a line at its end."""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable, Mapping
from math import nan
from shlex import quote
from time import monotonic_ns
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec

from gpumon.core.phase import PHASES, STEP_PHASES, TrainingPhase
from gpumon.core.ring_format.facts import has_gross_waits
from gpumon.core.wording import counted
from trainer_hooks.keras.step_times import StepEnds, StepTimes
from trainer_hooks.ring.daemon_counters import GpuRatios
from trainer_hooks.ring.daemon_state import state_folders
from trainer_hooks.ring.ring_writer import RingWriter
from trainer_hooks.taps.phase_machine import PhaseMachine

_LOG = logging.getLogger(__name__)


def say(line: str) -> None:
    """Print a line where the progress bar was printed; log it where Keras logs instead."""
    import keras

    if keras.config.is_interactive_logging_enabled():
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    else:
        _LOG.info(line)


P = ParamSpec("P")


def _attempted(what: Callable[Concatenate[Figures, P], None]) -> Callable[..., None]:
    """Where it fails there are no figures from then on, and a warning says so."""

    @functools.wraps(what)
    def attempted(self: Figures, *args: P.args, **named: P.kwargs) -> None:
        if self._are_given:
            try:
                what(self, *args, **named)
            except Exception as error:  # noqa: BLE001 (the training goes on, whatever happens here)
                self._are_given, self._ends.times = False, None
                self._warn(f"gpumon's PhaseTagger gives no figures of this training: {error!r}")

    return attempted


class Figures:
    """Of one ``fit``, from its begin to its end."""

    def __init__(self, ends: StepEnds, warn: Callable[[str], None]) -> None:
        """Of none yet; ``warn`` is told of trouble, as a sentence."""
        self._ends, self._warn = ends, warn
        self._are_given = True

    @_attempted
    def begin(self, writer: RingWriter, machine: PhaseMachine, *, wants_logs: bool) -> None:
        """``fit`` begins now; ``wants_logs``: epochs get keys in their ``logs``."""
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
        """An epoch begins."""
        self._epoch_began_ns = monotonic_ns()
        self._waited_before_ns = self._machine.training_wait_ns
        self._times.begin_epoch(self._writer.steps)
        if self._wants_logs:
            self._gpus.begin()

    @_attempted
    def epoch_ends(self, logs: Any, *, sees_input: bool) -> None:  # noqa: ANN401
        """It ends: ``logs`` gain what is known, under the keys of the first epoch.

        Args:
            logs: The dictionary that Keras hands to every callback.
            sees_input: Whether the wait for input could be told from the step.
        """
        if not self._wants_logs or not isinstance(logs, dict) or not self._writer.enabled:
            return
        wall_ns = monotonic_ns() - self._epoch_began_ns
        told = dict(self._gpus.since_then(self._writer.facts))
        if sees_input and wall_ns > 0:
            waited_ns = self._machine.training_wait_ns - self._waited_before_ns
            told["input_wait_ratio"] = min(1.0, max(0.0, waited_ns / wall_ns))
        if self._keys is None:
            self._keys = tuple(told)
        # The same keys in every epoch: tables of them have one length for all.
        logs.update({key: told.get(key, nan) for key in self._keys})

    @_attempted
    def say_line(self, *, is_asynchronous: bool) -> None:
        """``fit`` has ended: the line for its end, where a step was done.

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
        wall_ns: From its begin to its end.
        median_ns: The median step; ``None`` where too few were done.
        left_out: Warm-up steps that the median leaves out.
        samples_per_second: ``None`` where samples could not be counted.
        phase_ns: Time in each phase, in the order of ``PHASES``.
        is_asynchronous: Whether the device may have worked while the host waited.
        has_daemon: Whether one runs now.
        run: The run's name, as a daemon's report lists it.
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
    """One sentence of figures, one of what took the time, and what to do next."""
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
