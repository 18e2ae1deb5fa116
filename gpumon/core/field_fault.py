"""A field of a GPU that its driver ceased to tell, and how that is said. Pure data and words."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.core.device import Device
from gpumon.core.units import NS_PER_S


class FieldFault(NamedTuple):
    """One field that fails, while the GPU itself is there.

    Attributes:
        field: What users call it, such as ``"temperature"``.
        reason: What the driver does instead of answering, as the end of a sentence.
        since_ns: CLOCK_MONOTONIC of the first reading that failed.
    """

    field: str
    reason: str
    since_ns: int


def fault_sentence(device: Device, fault: FieldFault) -> str:
    """That a field fails.

    >>> fault_sentence(Device(uuid="GPU-0", index=0), FieldFault("power_limit", "no answer", 0))
    'GPU 0: reading its power limit fails: no answer'
    """
    return f"GPU {device.label}: reading its {_words(fault)} fails: {fault.reason}"


def mended_sentence(device: Device, fault: FieldFault, until_ns: int) -> str:
    """That it does not any more.

    >>> mended_sentence(Device(uuid="GPU-0", index=0), FieldFault("memory", "", 0), 20 * NS_PER_S)
    'GPU 0: reading its memory works again, after 20 s'
    """
    lasted_s = (until_ns - fault.since_ns) / NS_PER_S
    return f"GPU {device.label}: reading its {_words(fault)} works again, after {lasted_s:.0f} s"


def _words(fault: FieldFault) -> str:
    return fault.field.replace("_", " ")
