"""Pairs of a phase's number and a mode's number, as the ring holds them.

``START_UP`` is a pair here and a phase number in ``phase_machine.py``.
"""

from __future__ import annotations

from typing import Final

from gpumon.core.phase import PHASE_NUMBER, TrainingMode, TrainingPhase
from gpumon.core.ring_format.format import MODE_SHIFT

PhaseMode = tuple[int, int]
"""Number of a phase and number of its mode."""

TRAIN_MODE: Final = int(TrainingMode.TRAIN)
VALIDATION_MODE: Final = int(TrainingMode.VALIDATION)
PREDICT_MODE: Final = int(TrainingMode.PREDICT)


def _pair(phase: TrainingPhase, mode: int = TRAIN_MODE) -> PhaseMode:
    return PHASE_NUMBER[phase], mode


START_UP: Final = _pair(TrainingPhase.START_UP)
COMPILE: Final = _pair(TrainingPhase.COMPILE)
HOST_TO_DEVICE: Final = _pair(TrainingPhase.HOST_TO_DEVICE)
TRAIN_STEP: Final = _pair(TrainingPhase.TRAIN_STEP)
CALLBACKS: Final = _pair(TrainingPhase.CALLBACKS)
CHECKPOINT: Final = _pair(TrainingPhase.CHECKPOINT)
BETWEEN_EPOCHS: Final = _pair(TrainingPhase.BETWEEN_EPOCHS)
OTHER: Final = _pair(TrainingPhase.OTHER)
VALIDATION: Final = _pair(TrainingPhase.VALIDATION, VALIDATION_MODE)
PREDICT: Final = _pair(TrainingPhase.PREDICT, PREDICT_MODE)

EVALUATION: Final = {VALIDATION_MODE: VALIDATION, PREDICT_MODE: PREDICT}
"""The computing phase of each mode other than training."""
INPUT_WAIT: Final = {
    mode: _pair(TrainingPhase.INPUT_WAIT, mode)
    for mode in (TRAIN_MODE, VALIDATION_MODE, PREDICT_MODE)
}
"""The wait for a batch, by mode."""


def phase_mode_of(span: int) -> PhaseMode:
    """Split a writer's ``span``."""
    return span & ((1 << MODE_SHIFT) - 1), span >> MODE_SHIFT
