"""A GPU that processes hold without using it, so that its memory is not free for others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.core.clock import NS_PER_S
from gpumon.core.sample import BusySample, ProcessSample

_GONE_AFTER_NS: Final = 30 * NS_PER_S
"""A process that was missing in the list for longer counts as a new one."""


class HeldGpu(NamedTuple):
    """The process that holds a GPU: among those on it for long, the one with the most memory.

    Attributes:
        pid: On the host.
        user: The user's name where names are switched on, else its number; ``None``: unknown.
        command: The program's name, only where names are switched on.
        memory_bytes: Device memory that the process holds; ``None``: unknown.
        since_ns: CLOCK_MONOTONIC since when it has been there and nothing has run on the GPU.
    """

    pid: int
    user: str | None
    command: str | None
    memory_bytes: int | None
    since_ns: int
    process_count: int = 1


class HoldWatch:
    """Tracks one GPU: which processes have been on it for how long while nothing ran.

    Attributes:
        held: The process that holds it; ``None``: none, as far as is known.
    """

    def __init__(self, held_after_ns: int) -> None:
        """A process holds it after ``held_after_ns`` on it, if nothing ran meanwhile."""
        self._held_after_ns = held_after_ns
        self._seen_ns: dict[int, tuple[int, int]] = {}  # by pid: when first, and when last
        self._busy_until_ns = 0
        self._listed_ns: int | None = None  # when there was a list last
        self.held: HeldGpu | None = None

    def update(
        self,
        busy: Sequence[BusySample],
        processes: Sequence[ProcessSample] | None,
        now_ns: int,
        *,
        has_run: bool,
    ) -> None:
        """Add the samples of a tick, and the newest process list.

        Args:
            busy: The samples of this tick.
            processes: ``None``: there is no list now; the last one stays valid for a while.
            now_ns: CLOCK_MONOTONIC up to which the GPU was observed; below 0: not yet.
            has_run: Whether a tagged run uses it, whose tags show what it does.
        """
        for sample in busy:
            if sample.busy_ratio > 0.0:
                self._busy_until_ns = max(self._busy_until_ns, sample.end_ns)
        if now_ns < 0:
            return
        if processes is None:
            if self._listed_ns is None or now_ns - self._listed_ns > _GONE_AFTER_NS or has_run:
                self.held = None
            return
        self._listed_ns = now_ns
        for pid in [process.pid for process in processes]:
            self._seen_ns[pid] = self._seen_ns.get(pid, (now_ns, now_ns))[0], now_ns
        self._seen_ns = {
            pid: (first_ns, last_ns)
            for pid, (first_ns, last_ns) in self._seen_ns.items()
            if now_ns - last_ns <= _GONE_AFTER_NS
        }
        self.held = None if has_run else self._held_by(processes, now_ns)

    def _held_by(self, processes: Sequence[ProcessSample], now_ns: int) -> HeldGpu | None:
        held = [
            (process.memory_used_bytes or 0, process)
            for process in processes
            if not process.serves_others and now_ns - self._since_ns(process) > self._held_after_ns
        ]
        if not held:
            return None
        _, most = max(held, key=lambda one: one[0])
        user = most.user if most.uid is None else most.user or str(most.uid)
        since_ns, count = self._since_ns(most), len(processes)
        return HeldGpu(most.pid, user, most.name, most.memory_used_bytes, since_ns, count)

    def _since_ns(self, process: ProcessSample) -> int:
        return max(self._busy_until_ns, self._seen_ns[process.pid][0])
