"""The interface between the sampler and any source of GPU samples."""

from __future__ import annotations

from enum import Flag, auto
from typing import Protocol

from gpumon.core.sample import Frame


class ReadNow(Flag):
    """What a read must not leave for a later one."""

    NOTHING = 0
    SAMPLES = auto()
    """All samples that the driver keeps: a user watches, or a run began or ended."""
    PROCESSES = auto()
    """The process lists: it is open whether a run is on a GPU."""
    PRESENT = auto()
    """The present utilisation of GPUs with a process: ``Frame.present_ratios``."""


class GpuSource(Protocol):
    """A source of GPU samples.

    A source is made and used on one thread. ``read`` may block for as long as the driver does.
    """

    def read(self, now: ReadNow = ReadNow.SAMPLES) -> Frame:
        """Read what is new since the last call, as far as it is due or in ``now``.

        The first call only sets the position in the driver's ring: time
        before it is not observed.

        Raises:
            SourceUnavailableError: The source as a whole cannot be read. A
                GPU that cannot be read is no error: its sample says why.
        """
        ...

    def close(self) -> None:
        """Close the driver. Safe to call twice."""
        ...
