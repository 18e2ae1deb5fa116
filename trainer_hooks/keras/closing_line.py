"""What ``fit`` cost, in the one line that stands at its end."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import Final, NamedTuple

from gpumon.core.phase import PHASES, TrainingPhase

_WORTH_NAMING: Final = 0.05
_WORK: Final = frozenset({TrainingPhase.TRAIN_STEP, TrainingPhase.DEVICE_SYNC})
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
    words = [f"{figures.steps:,} {'step' if figures.steps == 1 else 'steps'} in {wall}"]
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
    main = max((phase for phase in PHASES if phase not in _WORK), key=shares.__getitem__)
    if shares[main] < _WORTH_NAMING:
        work = sum(shares[phase] for phase in _WORK)
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
