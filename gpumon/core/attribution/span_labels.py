"""The byte by which a timeline labels each span of a run's time, and what it means."""

from __future__ import annotations

from itertools import compress
from operator import or_
from typing import Final, NamedTuple

from gpumon.core.attribution.idle_sharing import WindowParts
from gpumon.core.phase import (
    PHASE_NUMBER,
    PHASES,
    STEP_PHASES,
    IdleCause,
    TrainingMode,
    TrainingPhase,
    cause_of,
)
from gpumon.core.ring_format.events import RingKind, RingRecords

_MODE_SHIFT: Final = 4
_SILENT: Final = frozenset({IdleCause.START_UP, IdleCause.UNKNOWN})
_MODES: Final = tuple(TrainingMode)


class SpanLabel(NamedTuple):
    """How the idle time of a span is attributed.

    Attributes:
        is_step: Whether the device has been given a training step.
        is_validation: Whether it is validation or prediction, and no wait for input.
        is_validation_wait: Whether it is a wait for input in validation or prediction.
        is_epoch_wait: Whether it is a wait for input at the start of an epoch, not the first.
        is_gross: Whether it is a wait for input while the device may compute the same execution.
        is_silent: Whether it does not show what the process does: idle time in it is like
            time in no phase.
    """

    cause: IdleCause
    is_step: bool
    is_validation: bool
    is_validation_wait: bool
    is_gross: bool
    is_silent: bool
    is_epoch_wait: bool = False

    @property
    def is_exposed_by_marks(self) -> bool:
        """Whether marks of step ends on the device show how much of it the device waited."""
        return not (self.is_step or self.is_validation or self.is_gross)


def _label(code: int) -> SpanLabel:
    number = code & (1 << _MODE_SHIFT) - 1
    phase = PHASES[number] if number < len(PHASES) else TrainingPhase.OTHER
    mode = _MODES[code >> _MODE_SHIFT]
    cause = cause_of(phase, mode)
    is_wait = cause is IdleCause.INPUT_WAIT
    return SpanLabel(
        cause=cause,
        is_step=phase in STEP_PHASES and mode is TrainingMode.TRAIN,
        is_validation=cause is IdleCause.VALIDATION,
        is_validation_wait=is_wait and mode in (TrainingMode.VALIDATION, TrainingMode.PREDICT),
        is_gross=is_wait and mode is TrainingMode.BESIDE_STEP,
        is_silent=cause in _SILENT,
    )


SUSPENDED_CODE: Final = len(_MODES) << _MODE_SHIFT
"""The process could not run, which the kernel reports and no record."""
_SUSPENDED: Final = SpanLabel(
    cause=IdleCause.NOT_IN_USE,
    is_step=False,
    is_validation=False,
    is_validation_wait=False,
    is_gross=False,
    is_silent=False,
)
INPUT_WAIT_CODE: Final = PHASE_NUMBER[TrainingPhase.INPUT_WAIT]
EPOCH_WAIT_CODE: Final = SUSPENDED_CODE + 1
"""A wait for input at the start of an epoch: a mark before it shows that."""
LABELS: Final = (
    *map(_label, range(SUSPENDED_CODE)),
    _SUSPENDED,
    _label(INPUT_WAIT_CODE)._replace(is_epoch_wait=True),
)
"""By code."""

TRAIN_STEP_CODE: Final = PHASE_NUMBER[TrainingPhase.TRAIN_STEP]
"""A step in training mode."""
START_UP_CODE: Final = PHASE_NUMBER[TrainingPhase.START_UP]
"""The first phase of every run."""
_MODE_BITS: Final = bytes(byte << _MODE_SHIFT if byte < len(_MODES) else 0 for byte in range(256))
"""By the lowest byte of an ENTER's value; an unknown mode counts as training."""


def codes_of(records: RingRecords) -> bytes:
    """A byte for each phase that these records enter."""
    entered, modes = records.selected(RingKind.ENTER), records.modes.translate(_MODE_BITS)
    return bytes(map(or_, compress(records.phases, entered), compress(modes, entered)))


def parts_of_span(code: int, length_ns: int) -> WindowParts:
    """A window that lies entirely in one span."""
    parts = WindowParts()
    add_length(parts, LABELS[code], length_ns)
    return parts


def add_length(parts: WindowParts, label: SpanLabel, length_ns: int) -> None:
    """Add time with a label, in place."""
    if label.is_silent:
        parts.silent_ns += length_ns
    elif label.is_step:
        parts.step_ns += length_ns
    elif label.is_validation:
        parts.validation_ns += length_ns
    elif label.is_gross:
        parts.gross_input_wait_ns += length_ns
    else:
        parts.waits[label.cause] = parts.waits.get(label.cause, 0) + length_ns
        parts.validation_input_wait_ns += length_ns if label.is_validation_wait else 0
        parts.epoch_input_wait_ns += length_ns if label.is_epoch_wait else 0
