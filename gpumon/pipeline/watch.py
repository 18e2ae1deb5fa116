"""What a command watches: this machine as it is now, tick by tick."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from gpumon.core.clock import NS_PER_S, Clock
from gpumon.core.ring.events import RingCounts
from gpumon.core.sample import Moment
from gpumon.core.state import CollectorState, MonitorState
from gpumon.errors import SourceUnavailableError
from gpumon.pipeline.monitor import MonitorFacts
from gpumon.pipeline.source_thread import Sampler, SourceThread
from gpumon.sources.gpu_source import GpuSource
from gpumon.sources.rings.phase_rings import PhaseRingReader

_FIRST_ANSWER_S: Final = 10.0
_STOP_PATIENCE_S: Final = 1.0


class Watch(Protocol):
    """Something that is watched: the machine, or a recording that is played."""

    @property
    def facts(self) -> MonitorFacts:
        """What stays the same while it is watched."""
        ...

    @property
    def clock(self) -> Clock:
        """The clock of the states that outlets are shown."""
        ...

    def insist(self) -> None:
        """Fail now if there is nothing to watch.

        Raises:
            SourceUnavailableError: The source cannot be read at all; one that
                only hangs is waited for.
        """
        ...

    def next_moment(self) -> Moment | None:
        """Wait for the next tick; ``None``, a period later, where there will be none any more.

        Raises:
            RestartNeededError: Only a new process can read the source again.
        """
        ...

    def newest_counts(self) -> Mapping[int, RingCounts]:
        """What living runs have counted since the last tick, by pid. From any thread."""
        ...

    def collectors(self) -> tuple[CollectorState, ...]:
        """How collectors of its own did, beside those that a monitor knows."""
        ...

    def shown(self, state: MonitorState) -> MonitorState:
        """A state as outlets show it, on ``clock`` and under the boot id of this machine."""
        ...

    def left(self, state: MonitorState) -> MonitorState:
        """A state as it is left for other processes, who hold it against CLOCK_MONOTONIC."""
        ...

    def close(self) -> None:
        """Let go of everything. Safe to call twice."""
        ...


class MachineWatch:
    """A source and the phase rings of this machine, read on a grid of deadlines.

    Args:
        make_source: Opens the source; called on a thread of its own.
        rings: The reader of this machine's rings; closed with the watch.
        facts: What stays the same.
        clock: The system's clock; the sleep that ends with its ``wake``.
    """

    def __init__(
        self,
        make_source: Callable[[], GpuSource],
        rings: PhaseRingReader,
        facts: MonitorFacts,
        clock: Clock,
    ) -> None:
        self.facts, self.clock = facts, clock
        self._rings = rings
        self._source = SourceThread(make_source, clock)
        self._sampler = Sampler(self._source, clock, period_ns=facts.period_ns)

    def insist(self) -> None:
        """Fail now if the source cannot be read at all."""
        self._source.ask()
        frames, error, _ = self._source.take(_FIRST_ANSWER_S)
        if not frames and error is not None:
            raise SourceUnavailableError(error)

    def next_moment(self) -> Moment:
        """The next tick, and what the rings said after it."""
        tick = self._sampler.tick()
        if self._source.restart_needed is not None:
            raise self._source.restart_needed
        began_ns = time.perf_counter_ns()
        rings = self._rings.read(self.clock.monotonic_ns())
        took_seconds = (time.perf_counter_ns() - began_ns) / NS_PER_S
        return Moment(tick, rings, self.clock.wall_time_s(), took_seconds)

    def newest_counts(self) -> Mapping[int, RingCounts]:
        """As the rings tell just now."""
        return self._rings.newest_counts(self.clock.monotonic_ns())

    def collectors(self) -> tuple[CollectorState, ...]:
        """None of its own."""
        return ()

    def shown(self, state: MonitorState) -> MonitorState:
        """As it is."""
        return state

    def left(self, state: MonitorState) -> MonitorState:
        """As it is."""
        return state

    def close(self) -> None:
        """Close the rings, and the source if its last read returns in time."""
        self._rings.close()
        self._source.stop(_STOP_PATIENCE_S)
