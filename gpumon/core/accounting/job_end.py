"""When a job on a GPU is over, where no process list says so: the one definition of it.

Either nothing has been active for longer than a pause may last, or the memory was given back.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.core.settings.detector import DetectorSettings


def job_patience_ns(sample_ns: int, settings: DetectorSettings, *, is_listed: bool = False) -> int:
    """The longest time without an active sample that is still a pause: after it, the job is over.

    A minute, or ten while the driver lists a process of the job; but never before 12 samples: of
    fewer it may be chance that all fall into pauses.

    >>> job_patience_ns(1_000_000_000, DetectorSettings()) // 1_000_000_000
    60
    >>> job_patience_ns(10_000_000_000, DetectorSettings()) // 1_000_000_000
    120
    """
    patience_ns = settings.held_after_ns if is_listed else settings.idle_job_ends_after_ns
    return max(patience_ns, settings.idle_job_ends_after_samples * sample_ns)


class MemoryRelease:
    """Finds the samples at which the memory of a job had been given back.

    A training keeps its memory in a pause, whatever it waits for: its
    framework's allocator holds on to it, and so does the CUDA context. Memory
    that is back to next to nothing says that the process has ended, as an
    empty process list does, however soon the next one works.
    """

    def __init__(self, settings: DetectorSettings) -> None:
        self._settings = settings
        self._held_bytes = 0

    def positions(
        self, busy_ratios: Sequence[float], used_bytes: Sequence[int | None]
    ) -> list[int]:
        """Which of some samples found the memory given back since the one before, in order.

        Args:
            busy_ratios: Of one GPU, oldest first; each call goes on where the last one ended.
            used_bytes: Memory in use at the end of each; ``None``: not told.
        """
        active_above = self._settings.active_above
        share, least = self._settings.log.released_share, self._settings.log.held_from_bytes
        found: list[int] = []
        told = [used for used in used_bytes if used is not None]
        held = self._held_bytes
        most = max(told, default=0)
        if not told or min(told) > share * max(most, held):  # at one glance: never given back
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
