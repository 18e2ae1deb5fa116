"""What a stretch of a training stands for, as one byte: its phase, and its mode above that."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpumon.core.phase import (
    PHASE_NUMBER,
    PHASES,
    STEP_PHASES,
    IdleCause,
    TrainingMode,
    TrainingPhase,
    cause_of,
)
from gpumon.core.ring_events import RingEvent, RingKind
from gpumon.core.ring_records import RingRecords

_MODE_SHIFT: Final = 4
_SILENT: Final = frozenset({IdleCause.START_UP, IdleCause.UNKNOWN})
_MODES: Final = tuple(TrainingMode)


class SpanLabel(NamedTuple):
    """How the idle time of such a stretch is shared.

    Attributes:
        cause: What it is given to.
        is_step: Whether the device has been given a training step.
        is_validation: Whether it is validation or prediction, and no wait for input.
        is_validation_wait: Whether it is a wait for input in validation or prediction.
        is_gross: Whether it is a wait for input while the device may compute the same execution.
        is_silent: Whether it says nothing of what the process does: idle time in it is like
            time in no phase at all.
    """

    cause: IdleCause
    is_step: bool
    is_validation: bool
    is_validation_wait: bool
    is_gross: bool
    is_silent: bool

    @property
    def is_exposed_by_marks(self) -> bool:
        """Whether the ends of steps on the device tell how much of it the device felt."""
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


LABELS: Final = tuple(_label(code) for code in range(len(_MODES) << _MODE_SHIFT))
"""By code."""

ONLY: Final = tuple(bytes(byte == code for byte in range(256)) for code in range(len(LABELS)))
"""By code: a table for ``bytes.translate`` that leaves 1 for this code and 0 for any other."""

_MODE_BITS: Final = bytes(byte << _MODE_SHIFT if byte < len(_MODES) else 0 for byte in range(256))
_NOT_ENTERED: Final = bytes(0 if byte == RingKind.ENTER else 0x80 for byte in range(256))
_MARKED: Final = bytes(range(0x80, 0x100))

TRAIN_STEP_CODE: Final = PHASE_NUMBER[TrainingPhase.TRAIN_STEP]
"""A training step in a training."""
START_UP_CODE: Final = PHASE_NUMBER[TrainingPhase.START_UP]
"""What every run begins with."""


def span_code(event: RingEvent) -> int:
    """The code of the phase that an ENTER begins: as ``span_codes`` gives it."""
    mode = event.value & 0xFF
    mode = mode if mode < len(_MODES) else 0
    return PHASE_NUMBER[event.phase] | mode << _MODE_SHIFT


def span_codes(records: RingRecords) -> bytes:
    """The codes of the phases that the ENTERs among these begin.

    A mode that is none is training; beyond 255 its lowest byte counts.
    """
    columns = (
        records.phases,
        records.modes.translate(_MODE_BITS),
        records.kinds.translate(_NOT_ENTERED),
    )
    phases, modes, marks = (int.from_bytes(column, "little") for column in columns)
    # One "|" is as many as there are records; then those that are no ENTER go.
    merged = (phases | modes | marks).to_bytes(len(records), "little")
    return merged.translate(None, _MARKED)
