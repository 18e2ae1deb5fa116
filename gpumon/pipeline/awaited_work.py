"""What a GPU waited for before a run's first work on it: told once that work has come."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.core.sample import BusySample
from gpumon.core.sharing import SharedIdle, WindowParts, merge_parts, share_idle
from gpumon.pipeline.runs import Run


class AwaitedWork:
    """Idle time of one GPU while runs have yet to use it, by what they did meanwhile.

    A phase is asked only once it is over: what it held, such as compiling, is told at its end.
    Memory is constant, however long nothing comes.
    """

    __slots__ = ("_busy_ns", "_from_ns", "_said", "_until_ns")

    def __init__(self) -> None:
        self._from_ns = self._until_ns = self._busy_ns = 0
        self._said = SharedIdle({})

    def add(self, sample: BusySample, runs: Sequence[Run]) -> None:
        """Take one more inactive sample, oldest first, and who may use the GPU."""
        start_ns, end_ns, busy_ratio = sample
        if start_ns != self._until_ns:
            self._ask(self._until_ns, runs)
            self._from_ns = start_ns
        self._until_ns = end_ns
        self._busy_ns += round((end_ns - start_ns) * busy_ratio)
        self._ask(min(end_ns, *(run.timeline.open_since_ns for run in runs)), runs)

    def take(self, runs: Sequence[Run]) -> SharedIdle:
        """All of it, by cause: the work has come."""
        self._ask(self._until_ns, runs)
        said = self._said
        self.forget()
        return said

    def forget(self) -> None:
        """Nobody will come for it."""
        self._said, self._busy_ns, self._from_ns = SharedIdle({}), 0, self._until_ns

    def _ask(self, until_ns: int, runs: Sequence[Run]) -> None:
        length_ns = until_ns - self._from_ns
        if length_ns <= 0:
            return
        busy_ns = min(self._busy_ns, length_ns)
        parts = parts_of(runs, self._from_ns, until_ns)
        self._said = self._said.plus(share_idle(length_ns - busy_ns, parts, wholly_idle=True))
        self._busy_ns -= busy_ns
        self._from_ns = until_ns


def parts_of(runs: Sequence[Run], start_ns: int, end_ns: int) -> WindowParts:
    """What these runs did between two instants."""
    parts = [
        (run.timeline.parts(start_ns, end_ns), run.timeline.covered_ns(start_ns, end_ns))
        for run in runs
    ]
    return parts[0][0] if len(parts) == 1 else merge_parts(parts, end_ns - start_ns)
