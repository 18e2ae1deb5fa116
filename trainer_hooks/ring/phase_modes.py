"""Where a training can be, as its ring has it: the number of a phase, and that of a mode.

So ``START_UP`` is a pair here, and a number where no mode is asked for (``phase_machine.py``).
"""

from __future__ import annotations

from typing import Final

from gpumon.core.phase import PHASE_NUMBER, TrainingMode, TrainingPhase
from gpumon.core.ring_format.format import MODE_SHIFT

PhaseMode = tuple[int, int]
"""Number of a phase, and of its mode."""

TRAIN_MODE: Final = int(TrainingMode.TRAIN)
VALIDATION_MODE: Final = int(TrainingMode.VALIDATION)
PREDICT_MODE: Final = int(TrainingMode.PREDICT)


def _place(phase: TrainingPhase, mode: int = TRAIN_MODE) -> PhaseMode:
    return PHASE_NUMBER[phase], mode


START_UP: Final = _place(TrainingPhase.START_UP)
COMPILE: Final = _place(TrainingPhase.COMPILE)
HOST_TO_DEVICE: Final = _place(TrainingPhase.HOST_TO_DEVICE)
TRAIN_STEP: Final = _place(TrainingPhase.TRAIN_STEP)
CALLBACKS: Final = _place(TrainingPhase.CALLBACKS)
CHECKPOINT: Final = _place(TrainingPhase.CHECKPOINT)
BETWEEN_EPOCHS: Final = _place(TrainingPhase.BETWEEN_EPOCHS)
OTHER: Final = _place(TrainingPhase.OTHER)
VALIDATION: Final = _place(TrainingPhase.VALIDATION, VALIDATION_MODE)
PREDICT: Final = _place(TrainingPhase.PREDICT, PREDICT_MODE)

EVALUATION: Final = {VALIDATION_MODE: VALIDATION, PREDICT_MODE: PREDICT}
"""Where one computes that does not train, by its mode."""
INPUT_WAIT: Final = {
    mode: _place(TrainingPhase.INPUT_WAIT, mode)
    for mode in (TRAIN_MODE, VALIDATION_MODE, PREDICT_MODE)
}
"""Where one waits for a batch, by the mode it is for."""


def phase_mode_of(span: int) -> PhaseMode:
    """The place that a writer's ``span`` is."""
    return span & ((1 << MODE_SHIFT) - 1), span >> MODE_SHIFT
