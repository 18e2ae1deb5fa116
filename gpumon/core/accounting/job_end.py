"""When a job on a GPU is over, if no process list shows it.

Either no sample was active for longer than a pause may last, or the memory was released.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.core.settings.detector import DetectorSettings


def job_patience_ns(sample_ns: int, settings: DetectorSettings, *, is_listed: bool = False) -> int:
    """The longest time without an active sample after which the job is not over.

    A minute, or ten while the driver lists a process of the job, but at least 12 samples: fewer
    may all fall into pauses by chance.

    >>> job_patience_ns(1_000_000_000, DetectorSettings()) // 1_000_000_000
    60
    >>> job_patience_ns(10_000_000_000, DetectorSettings()) // 1_000_000_000
    120
    """
    patience_ns = settings.held_after_ns if is_listed else settings.idle_job_ends_after_ns
    return max(patience_ns, settings.idle_job_ends_after_samples * sample_ns)


class MemoryRelease:
    """Finds the samples at which a job had released its memory.

    A run keeps its memory in a pause, because its framework's allocator and the CUDA context
    hold it. If nearly all of it is free again, the process has ended, however soon the next one
    works.
    """

    def __init__(self, settings: DetectorSettings) -> None:
        self._settings = settings
        self._held_bytes = 0

    def positions(
        self, busy_ratios: Sequence[float], used_bytes: Sequence[int | None]
    ) -> list[int]:
        """Positions of the samples at which memory had been released since the one before.

        Args:
            busy_ratios: Samples of one GPU, oldest first; each call continues the last one.
            used_bytes: Memory in use at the end of each; ``None``: unknown.
        """
        active_above = self._settings.active_above
        share, least = self._settings.log.released_share, self._settings.log.held_from_bytes
        found: list[int] = []
        known = [used for used in used_bytes if used is not None]
        held = self._held_bytes
        most = max(known, default=0)
        if not known or min(known) > share * max(most, held):  # a fast check: never released
            self._held_bytes = max(most, held)
            return found
        for at, (busy_ratio, used) in enumerate(zip(busy_ratios, used_bytes, strict=True)):
            if used is None:
                continue
            if held >= least and used <= share * held and busy_ratio <= active_above:
                found.append(at)
                held = 0
            if used > held:
                held = used
        self._held_bytes = held
        return found
