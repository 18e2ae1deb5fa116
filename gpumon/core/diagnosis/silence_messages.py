"""Sentences on a run that counts no step, or is stopped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.core.diagnosis import messages
from gpumon.core.diagnosis.loader_advice import loader_named
from gpumon.core.phase import TrainingPhase
from gpumon.core.report.report import RunReport
from gpumon.core.ring_format.silence import RunSilence
from gpumon.core.wording import in_time, label_text, listed

_IN_LOADER: Final = (TrainingPhase.INPUT_WAIT, TrainingPhase.HOST_TO_DEVICE)
"""Phases in which the code that runs is the loader's."""


def run_named(run: RunReport) -> str:
    """The run and its process: ``run train (pid 47)``."""
    return f"run {label_text(run.run)} (pid {run.pid})"


def silence_sentence(run: RunReport, silence: RunSilence, who: str = "") -> str:
    """How long it has counted no step, and what it is doing; ``who``: another name for it."""
    is_known = silence.phase in _IN_LOADER and bool(run.loader.get("class"))
    if silence.is_first_batch:
        row = messages.NO_FIRST_BATCH_IN_LOADER if is_known else messages.NO_FIRST_BATCH
    else:
        row = messages.NO_STEP_IN_LOADER if is_known else messages.NO_STEP
    return row.format(
        run=who or f"Run {run_named(run).removeprefix('run ')}",
        time=in_time(silence.silent_ns),
        doing=messages.DOING[silence.phase],
        loader=loader_named(run),
    )


def hanging_text(runs: Sequence[RunReport]) -> str:
    """How to find out why these runs hang."""
    sentences = [messages.FIND_THE_HANG.format(pid=runs[0].pid)]
    if len(runs) > 1:
        pids = listed([f"{run.pid}" for run in runs[1:]])
        sentences.append(messages.FIND_THE_HANG_ELSEWHERE.format(pids=pids))
    if any(run.world_size > 1 for run in runs):
        sentences.append(messages.LOOK_AT_RANK)
    return " ".join([*sentences, messages.END_THE_HANG])
