"""Ticks on a fixed grid of deadlines: lateness is data, and a slow tick never causes a burst."""

from __future__ import annotations

from gpumon.core.clock import Clock
from gpumon.core.tick import Tick
from gpumon.core.units import NS_PER_S
from gpumon.pipeline.source_thread import SourceThread


def next_deadline_ns(previous_ns: int, now_ns: int, period_ns: int) -> int:
    """The next tick on the original grid that is still in the future.

    The grid does not drift, and a slow tick causes one late tick, not a burst.

    >>> next_deadline_ns(10_000, 13_700, 1_000)
    14000
    """
    missed = max(0, (now_ns - previous_ns) // period_ns)
    return previous_ns + (missed + 1) * period_ns


class Sampler:
    """Yields one tick for each deadline."""

    def __init__(self, source: SourceThread, clock: Clock, *, period_ns: int) -> None:
        self._source = source
        self._clock = clock
        self._period_ns = period_ns
        self._patience_s = min(0.5 * period_ns / NS_PER_S, 2.0)
        self._deadline_ns: int | None = None

    def tick(self) -> Tick:
        """Wait for the next deadline, then for the source, but not long."""
        now_ns = self._clock.monotonic_ns()
        skipped = 0
        if self._deadline_ns is None:
            self._deadline_ns = now_ns
        else:
            before_ns = self._deadline_ns
            self._deadline_ns = next_deadline_ns(before_ns, now_ns, self._period_ns)
            skipped = (self._deadline_ns - before_ns) // self._period_ns - 1
        self._clock.sleep_until_ns(self._deadline_ns)
        self._source.ask()
        frames, error, duration_seconds = self._source.take(self._patience_s)
        at_ns = self._clock.monotonic_ns()
        if not frames and error is None and not self._source.idle:
            error = "the driver has not answered yet; its GPUs are not observed meanwhile"
        return Tick(
            at_ns=at_ns,
            late_ns=max(0, at_ns - self._deadline_ns),
            frames=frames,
            missed_count=skipped + (0 if frames else 1),
            error=error,
            duration_seconds=duration_seconds,
        )
