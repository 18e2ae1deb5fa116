"""Idle time of a GPU while runs wait that have not used it yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpumon.core.sample import BusySample
from gpumon.core.sharing import SharedIdle, share_idle
from gpumon.core.timeline import merge_parts
from gpumon.pipeline.runs import Run


class UnusedTime:
    """Shares such time out as late as need be.

    A ring may say only at its end that a step was compiling for a minute. So
    what lies in a run's present phase is kept, as one stretch, until the run
    enters the next one, or uses the GPU.
    """

    __slots__ = ("_from_ns", "_idle_ns", "_until_ns")

    def __init__(self) -> None:
        self._from_ns = self._until_ns = self._idle_ns = 0

    @property
    def is_open(self) -> bool:
        """Whether anything is kept."""
        return self._until_ns > self._from_ns

    def take(self, sample: BusySample, runs: Sequence[Run]) -> Iterator[SharedIdle]:
        """Take one inactive sample; yields what the phases that are over say.

        Args:
            sample: The sample.
            runs: The runs that wait.
        """
        start_ns, end_ns, busy_ratio = sample
        if start_ns != self._until_ns:
            yield from self.release(runs)
            self._from_ns = self._until_ns = start_ns
        self._until_ns = end_ns
        length_ns = end_ns - start_ns
        self._idle_ns += length_ns - round(length_ns * busy_ratio)
        cut_ns = min(min(run.entered_ns for run in runs), end_ns)
        if cut_ns > self._from_ns:
            yield self._cut_off(cut_ns, runs)

    def release(self, runs: Sequence[Run]) -> Iterator[SharedIdle]:
        """Yields what the phases of all that was kept say, as far as is known now."""
        if self.is_open:
            yield self._cut_off(self._until_ns, runs)

    def clear(self) -> None:
        """Nobody waits any more."""
        self._from_ns = self._until_ns = self._idle_ns = 0

    def _cut_off(self, cut_ns: int, runs: Sequence[Run]) -> SharedIdle:
        start_ns, self._from_ns = self._from_ns, cut_ns
        idle_ns = self._idle_ns * (cut_ns - start_ns) // (self._until_ns - start_ns)
        self._idle_ns -= idle_ns
        parts = [
            (run.timeline.parts(start_ns, cut_ns), covered_ns)
            for run in runs
            if (covered_ns := run.timeline.covered_ns(start_ns, cut_ns)) > 0
        ]
        if not parts:
            return SharedIdle({}, 0, 0)
        window = parts[0][0] if len(parts) == 1 else merge_parts(parts, cut_ns - start_ns)
        return share_idle(idle_ns, window, wholly_idle=True)
