"""The interface between the sampler and any source of GPU samples."""

from __future__ import annotations

from typing import Protocol

from gpumon.core.sample import Frame


class GpuSource(Protocol):
    """A source of GPU samples.

    A source is made and used on one thread. ``read`` may block for as long as the driver does.
    """

    def read(self) -> Frame:
        """Read everything new since the last call.

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
