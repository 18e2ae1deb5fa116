"""Texts on a run that counts no step, or cannot run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gpumon.core.diagnosis.loader_texts import loader_named
from gpumon.core.phase import TrainingPhase
from gpumon.core.report.report import RunReport
from gpumon.core.ring_format.silence import RunSilence
from gpumon.core.wording import in_time, label_text, listed

_MOST_NAMED: Final = 4

_DOING: Final[Mapping[TrainingPhase, str]] = {
    TrainingPhase.START_UP: "starting up",
    TrainingPhase.COMPILE: "compiling",
    TrainingPhase.INPUT_WAIT: "waiting for input",
    TrainingPhase.HOST_TO_DEVICE: "copying to the GPU",
    TrainingPhase.TRAIN_STEP: "in a training step",
    TrainingPhase.DEVICE_SYNC: "waiting for the GPU",
    TrainingPhase.CALLBACKS: "in a callback",
    TrainingPhase.CHECKPOINT: "saving a checkpoint",
    TrainingPhase.VALIDATION: "in validation",
    TrainingPhase.PREDICT: "predicting",
    TrainingPhase.BETWEEN_EPOCHS: "between two epochs",
    TrainingPhase.OTHER: "in untagged code",
}
_OF_THE_LOADER: Final = (TrainingPhase.INPUT_WAIT, TrainingPhase.HOST_TO_DEVICE)
"""Phases in which the code that runs is the loader's."""


def run_named(run: RunReport) -> str:
    """The run and its process: ``run train (pid 47)``."""
    return f"run {label_text(run.run)} (pid {run.pid})"


def silence_clause(run: RunReport, silence: RunSilence) -> str:
    """How long it has counted no step, and what it has been doing: a clause after its name."""
    long, where = in_time(silence.silent_ns), _where(run, silence)
    if silence.is_first_batch:
        return f"has waited for its first batch for {long}{where}"
    return f"has counted no step for {long}, {_DOING[silence.phase]}{where}"


def sleeping_sentence(silence: RunSilence) -> str:
    """Where in the kernel its process sleeps; empty where that is not known."""
    asleep = silence.sleeps_in
    return f"Its process sleeps in the kernel, in {label_text(asleep)}." if asleep else ""


def _where(run: RunReport, silence: RunSilence) -> str:
    """The loader's code, where the run is in that and names it."""
    if silence.phase not in _OF_THE_LOADER or not run.loader.get("class"):
        return ""
    return f", in {loader_named(run)}"


def hanging_text(runs: Sequence[RunReport]) -> str:
    """How to find out why these runs hang."""
    first = runs[0]
    others = "" if len(runs) == 1 else f" (and of {listed([f'{one.pid}' for one in runs[1:]])})"
    text = (
        f"`py-spy dump --pid {first.pid}` prints what each of its threads is doing{others}: look "
        "for a lock, a read or a connection that does not return."
    )
    if any(run.world_size > 1 for run in runs):
        text += " If it waits for another rank, look at that rank."
    return f"{text} If nothing moves, end it and start from the last checkpoint."


def suspended_text(runs: Sequence[RunReport]) -> str:
    """How to let these runs go on."""
    pids = listed([f"{run.pid}" for run in runs], most=_MOST_NAMED)
    return (
        f"resume {f'pid {pids}' if pids else 'it'} the way it was stopped: `fg`, `kill -CONT`, "
        "`docker unpause` or `scontrol resume`."
    )
