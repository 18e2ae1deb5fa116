"""The wait at an epoch's end, for callbacks on other threads and so for the device, as a phase."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainer_hooks.keras_fit.phase_machine import (
    BETWEEN_EPOCHS,
    DEVICE_SYNC,
    TRAIN,
    TRAIN_STEP,
    Pen,
    PhaseMachine,
)

_NAME = "_flush_futures"


def bracket_flush(callback_list: Any, pen: Pen, machine_here: Callable[[], Any]) -> None:  # noqa: ANN401
    """Time the flush of a Keras ``CallbackList``, where it has one.

    Args:
        callback_list: The list; ``None`` is left alone.
        pen: Writes the phase.
        machine_here: The ``PhaseMachine``, where the calling thread is the one
            that trains, else ``None``.
    """
    flush = getattr(callback_list, _NAME, None)
    if flush is None:
        return

    def timed_flush() -> None:
        machine: PhaseMachine | None = machine_here()
        if machine is None or machine.mode != TRAIN:
            flush()
            return
        phase, mode = pen.present
        pen.enter(DEVICE_SYNC, TRAIN)
        try:
            flush()
        finally:
            # To enter ``train_step`` again would say that one more step began.
            pen.enter(BETWEEN_EPOCHS if phase == TRAIN_STEP else phase, mode)

    vars(callback_list)[_NAME] = timed_flush


def unbracket_flush(callback_list: Any) -> None:  # noqa: ANN401
    """Leave the list as it was."""
    if callback_list is not None:
        vars(callback_list).pop(_NAME, None)
