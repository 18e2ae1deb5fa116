"""Phases of a training run, and causes of idle GPU time."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final


class TrainingPhase(str, Enum):
    """What a training process is doing."""

    # Enum hashes in Python on every dictionary look-up; a str does so in C.
    __hash__ = str.__hash__

    START_UP = "start_up"
    COMPILE = "compile"
    INPUT_WAIT = "input_wait"
    HOST_TO_DEVICE = "host_to_device"
    TRAIN_STEP = "train_step"
    DEVICE_SYNC = "device_sync"
    CALLBACKS = "callbacks"
    CHECKPOINT = "checkpoint"
    VALIDATION = "validation"
    PREDICT = "predict"
    BETWEEN_EPOCHS = "between_epochs"
    OTHER = "other"


class TrainingMode(IntEnum):
    """What Keras is running: a phase within validation is no phase of training."""

    TRAIN = 0
    VALIDATION = 1
    PREDICT = 2
    BESIDE_STEP = 3
    """Training, in a wait for another batch of an execution that may still compute."""


class IdleCause(str, Enum):
    """Why a GPU was idle. Every settled idle second has exactly one cause."""

    __hash__ = str.__hash__

    START_UP = "start_up"
    COMPILE = "compile"
    INPUT_WAIT = "input_wait"
    HOST_TO_DEVICE = "host_to_device"
    WITHIN_STEP = "within_step"
    IMBALANCE = "imbalance"
    CALLBACKS = "callbacks"
    CHECKPOINT = "checkpoint"
    VALIDATION = "validation"
    BETWEEN_EPOCHS = "between_epochs"
    UNKNOWN = "unknown"
    NOT_IN_USE = "not_in_use"


class InputWaitReason(str, Enum):
    """What delays the input pipeline, by host evidence."""

    __hash__ = str.__hash__

    CPU_BOUND = "cpu_bound"
    GIL_BOUND = "gil_bound"
    DISK_BOUND = "disk_bound"
    NETWORK_BOUND = "network_bound"
    MEMORY_PRESSURE = "memory_pressure"
    LATENCY_BOUND = "latency_bound"
    UNKNOWN = "unknown"


PHASES: Final = tuple(TrainingPhase)
"""In ring order: the index of a phase is its number in a record."""
PHASE_NUMBER: Final = {phase: number for number, phase in enumerate(PHASES)}
CAUSES: Final = tuple(IdleCause)
OUT_OF_USE: Final = (IdleCause.START_UP, IdleCause.NOT_IN_USE)
"""Causes of idle time that is no loss."""
UNPROVED: Final = (IdleCause.UNKNOWN, *OUT_OF_USE)
"""All causes that tags do not prove."""
STEP_PHASES: Final = frozenset({TrainingPhase.TRAIN_STEP, TrainingPhase.DEVICE_SYNC})
"""Phases in which the device has its work: idle time there is no wait of the host."""
WORK_PHASES: Final = STEP_PHASES | {TrainingPhase.VALIDATION, TrainingPhase.PREDICT}
"""Phases of a process that uses a GPU itself, unlike a data loader's worker."""

_CAUSE_OF_PHASE: Final = {
    TrainingPhase.TRAIN_STEP: IdleCause.WITHIN_STEP,
    TrainingPhase.DEVICE_SYNC: IdleCause.WITHIN_STEP,
    TrainingPhase.PREDICT: IdleCause.VALIDATION,
    TrainingPhase.OTHER: IdleCause.UNKNOWN,
}


def phase_named(name: str) -> TrainingPhase:
    """The phase with this name; ``OTHER`` for an unknown one.

    >>> phase_named("input_wait"), phase_named("lunch")
    (<TrainingPhase.INPUT_WAIT: 'input_wait'>, <TrainingPhase.OTHER: 'other'>)
    """
    try:
        return TrainingPhase(name)
    except ValueError:
        return TrainingPhase.OTHER


def cause_of(phase: TrainingPhase, mode: TrainingMode = TrainingMode.TRAIN) -> IdleCause:
    """The cause of idle time in this phase.

    A wait for input within validation or prediction is a wait for input;
    everything else there is validation.

    >>> cause_of(TrainingPhase.DEVICE_SYNC).value
    'within_step'
    >>> cause_of(TrainingPhase.CALLBACKS, TrainingMode.VALIDATION).value
    'validation'
    """
    is_training = mode in (TrainingMode.TRAIN, TrainingMode.BESIDE_STEP)
    if not is_training and phase is not TrainingPhase.INPUT_WAIT:
        return IdleCause.VALIDATION
    return _CAUSE_OF_PHASE.get(phase) or IdleCause(phase.value)
