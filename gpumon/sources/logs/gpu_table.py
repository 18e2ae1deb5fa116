"""The GPUs of a log, told apart by whatever it calls them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from gpumon.sources.logs.log_sample import LoggedGpu

MAX_GPUS: Final = 1_024
"""More different names than that are no GPUs: the column is something else."""


class GpuTable:
    """Gives each GPU its position, in order of appearance.

    Attributes:
        gpus: What is known of them; ``LogFacts.gpus`` in the end.
    """

    def __init__(self) -> None:
        self.gpus: list[LoggedGpu] = []
        self._positions: dict[Hashable, int] = {}

    def position(self, key: Hashable, gpu: LoggedGpu) -> int | None:
        """Where the GPU is in ``gpus``; ``None`` once there are too many to be GPUs.

        Args:
            key: What tells it from the others.
            gpu: What the log says of it; kept the first time it is seen.
        """
        position = self._positions.get(key)
        if position is None and len(self.gpus) < MAX_GPUS:
            position = self._positions[key] = len(self.gpus)
            self.gpus.append(gpu)
        return position
