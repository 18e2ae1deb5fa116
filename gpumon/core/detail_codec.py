"""What a board says every few seconds, as objects of JSON."""

from __future__ import annotations

import math
from typing import Any

from gpumon.core.sample import ActivitySample, GpuDetails
from gpumon.core.state import GpuState


def board_document(gpu: GpuState) -> dict[str, Any]:
    """A GPU's ``details``, its ``activity`` and its ``xid_errors``.

    Returns:
        The fields of ``GpuDetails`` and ``ActivitySample`` by their names,
        each object ``None`` where there is none and where the GPU does not
        answer any more; how many errors there were by XID, as text.
    """
    latest = gpu.latest if gpu.present else None
    return {
        "details": None if latest is None else _fields_of(latest.details),
        "activity": None if latest is None else _fields_of(latest.activity),
        "xid_errors": {str(xid): count for xid, count in gpu.xid_errors},
    }


def _fields_of(told: GpuDetails | ActivitySample | None) -> dict[str, Any] | None:
    if told is None:
        return None
    return {name: _plain(value) for name, value in told._asdict().items()}


def _plain(value: object) -> object:
    """JSON has no word for *not a number*: such an answer is none."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return list(value) if isinstance(value, tuple) else value
