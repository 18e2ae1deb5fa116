"""Where a job on a GPU ended, as the memory in use tells it."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.core.sample import BusySample
from gpumon.core.settings.detector import DetectorSettings


class MemoryRelease:
    """Finds the samples at which the memory of a job had been given back.

    A training keeps its memory in a pause, whatever it waits for: its
    framework's allocator holds on to it, and so does the CUDA context. Memory
    that is back to next to nothing says that the process has ended, as an
    empty process list does, however soon the next one works.

    Args:
        settings: Says what is active, and how little is next to nothing.
    """

    __slots__ = ("_held_bytes", "_settings")

    def __init__(self, settings: DetectorSettings) -> None:
        self._settings = settings
        self._held_bytes = 0

    def positions(
        self, samples: Sequence[BusySample], used_bytes: Sequence[int | None]
    ) -> list[int]:
        """Which of these samples found the memory given back since the one before, in order.

        Args:
            samples: Of one GPU, oldest first; each call goes on where the last one ended.
            used_bytes: Memory in use at the end of each; ``None``: not told.
        """
        told = [used for used in used_bytes if used is not None]
        if not told:
            return []
        share = self._settings.log.released_share
        most = max(self._held_bytes, max(told))
        if min(told) > share * most:  # as in nearly every batch
            self._held_bytes = most
            return []
        return self._searched(samples, used_bytes, share)

    def _searched(
        self, samples: Sequence[BusySample], used_bytes: Sequence[int | None], share: float
    ) -> list[int]:
        active_above, least = self._settings.active_above, self._settings.log.held_from_bytes
        found, held = [], self._held_bytes
        for at, (sample, used) in enumerate(zip(samples, used_bytes, strict=True)):
            if used is None:
                continue
            if held >= least and used <= share * held and sample.busy_ratio <= active_above:
                found.append(at)
                held = 0
            held = max(held, used)
        self._held_bytes = held
        return found
