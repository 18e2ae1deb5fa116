"""The numbers of the phases that these tests write."""

from __future__ import annotations

from gpumon.core.phase import PHASE_NUMBER, TrainingPhase

INPUT_WAIT = PHASE_NUMBER[TrainingPhase.INPUT_WAIT]
TRAIN_STEP = PHASE_NUMBER[TrainingPhase.TRAIN_STEP]
COMPILE = PHASE_NUMBER[TrainingPhase.COMPILE]
OTHER = PHASE_NUMBER[TrainingPhase.OTHER]
CHECKPOINT = PHASE_NUMBER[TrainingPhase.CHECKPOINT]
SYNC = PHASE_NUMBER[TrainingPhase.DEVICE_SYNC]
CALLBACKS = PHASE_NUMBER[TrainingPhase.CALLBACKS]
