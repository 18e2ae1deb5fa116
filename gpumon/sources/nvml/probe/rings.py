"""One ring of samples of one GPU, of any of the kinds that the driver keeps."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.drain import VALUE_TYPES, RingSweep

SAMPLE_KINDS: Final = (
    "power",
    "gpu_utilization",
    "memory_utilization",
    "encoder_utilization",
    "decoder_utilization",
    "sm_clock",
    "memory_clock",
    "module_power",
    "jpeg_utilization",
    "ofa_utilization",
)
"""What the driver keeps samples of, each name in the place of NVML's number."""


class RingEntry(NamedTuple):
    """One sample: the driver's stamp in microseconds, and its value."""

    stamp_us: int
    value: float


class RingDrain(NamedTuple):
    """What one drain brought.

    Attributes:
        code: The driver's answer.
        value_type: NVML's number of the type in which values came.
        entries: What is newer than was asked for, oldest first.
    """

    code: int
    value_type: int
    entries: tuple[RingEntry, ...]


class RingTap:
    """One ring of one GPU, to be drained as often as one likes."""

    def __init__(self, library: NvmlLibrary, handle: int, kind: int) -> None:
        self._sweep = RingSweep(library, [handle], kind)

    def drain(self, last_seen_us: int = 0) -> RingDrain:
        """All that is newer than that stamp."""
        (entries,) = self._sweep.drain([last_seen_us])
        found = tuple(RingEntry(*entry) for entry in entries if entry[0] > last_seen_us)
        return RingDrain(self._sweep.codes[0], self._sweep.value_kinds[0], found)


def value_type_name(number: int) -> str:
    """The type in which values come, by its C name."""
    return VALUE_TYPES[number][0] if 0 <= number < len(VALUE_TYPES) else f"type {number}"
