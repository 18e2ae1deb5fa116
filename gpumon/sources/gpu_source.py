"""The seam to hardware: what the sampler asks of anything that knows GPUs."""

from __future__ import annotations

from typing import Protocol

from gpumon.core.sample import Frame


class GpuSource(Protocol):
    """Something that can be asked, at any moment, what the GPUs are doing.

    A source is made and used on one thread. ``read`` may block for as long as
    the driver does; nobody but that thread waits for it.
    """

    def read(self) -> Frame:
        """All that is new since the last call.

        The first call only sets the position in the driver's ring: time
        before it is not observed.

        Raises:
            SourceUnavailableError: The source as a whole cannot be read. A
                GPU that cannot be read is no error: its sample says why.
        """
        ...

    def close(self) -> None:
        """Let go of the driver. Safe to call twice."""
        ...
