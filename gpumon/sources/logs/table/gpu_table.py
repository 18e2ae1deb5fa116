"""The GPUs of a log: where each stands in it, and whose it is where they are of several hosts."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Final

from gpumon.core.wording import gpus_named
from gpumon.sources.logs.log_sample import LoggedGpu

MAX_GPUS: Final = 1_024
"""More different names than that are no GPUs: the column is something else."""
_NAMED_IN_NOTE: Final = 8


class GpuTable:
    """Gives each GPU its position, in order of appearance.

    Attributes:
        gpus: What is known of them; ``LogFacts.gpus`` in the end.
    """

    def __init__(self) -> None:
        self.gpus: list[LoggedGpu] = []
        self._owners: list[str] = []
        self._positions: dict[Hashable, int] = {}

    def known(self, key: Hashable) -> int | None:
        """Where a GPU is in ``gpus``, if it was seen before."""
        return self._positions.get(key)

    def position(self, key: Hashable, gpu: LoggedGpu, owner: str = "") -> int | None:
        """Where the GPU is in ``gpus``; ``None`` once there are too many to be GPUs.

        Args:
            key: What tells it from the others.
            gpu: What the log says of it; kept the first time it is seen.
            owner: The host or run it belongs to; ``""``: the log does not say.
        """
        position = self._positions.get(key)
        if position is None and len(self.gpus) < MAX_GPUS:
            position = self._positions[key] = len(self.gpus)
            self.gpus.append(gpu)
            self._owners.append(owner)
        return position

    def mark_cut(self, position: int) -> LoggedGpu:
        """Take note that a GPU is cut into MIG instances."""
        self.gpus[position] = gpu = replace(self.gpus[position], mig_enabled=True)
        return gpu

    def cut_notes(self, tool: str) -> list[str]:
        """A sentence on the GPUs that are cut into instances of which a tool tells nothing."""
        cut = [
            position if gpu.index is None else gpu.index
            for position, gpu in enumerate(self.gpus)
            if gpu.mig_enabled
        ]
        if not cut:
            return []
        return [
            f"MIG is on, on {gpus_named(map(str, sorted(cut)))}: {tool} shows no utilisation of "
            "the instances, and they are not observed."
        ]

    @property
    def told_apart(self) -> tuple[LoggedGpu, ...]:
        """The GPUs; under names that say whose they are where they are of several owners."""
        if len(set(self._owners)) < 2:
            return tuple(self.gpus)
        return tuple(
            replace(gpu, index=None, name=f"{gpu.name or 'GPU'} of {owner or 'nobody named'}")
            for gpu, owner in zip(self.gpus, self._owners, strict=True)
        )

    def owner_notes(self) -> list[str]:
        """A sentence that says whose they are, where they are of several owners."""
        if len(set(self._owners)) < 2:
            return []
        said = [
            f"GPU {position} is {'the one' if gpu.index is None else gpu.index} "
            f"of {owner or 'nobody named'}"
            for position, (gpu, owner) in enumerate(zip(self.gpus, self._owners, strict=True))
        ]
        more = len(said) - _NAMED_IN_NOTE
        listed = ", ".join(said[:_NAMED_IN_NOTE]) + (f" and {more} more" if more > 0 else "")
        return [f"The log speaks of GPUs in several places: {listed}."]
