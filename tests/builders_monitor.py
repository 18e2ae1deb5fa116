"""A monitor, and what a tick brings to it, with only what matters to a test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpumon.core.clock import NS_PER_S
from gpumon.core.ring_format.events import NO_RECORDS, RingReading, RingsReading, RunFacts
from gpumon.core.sample import Frame, Moment, Tick
from gpumon.pipeline.monitor import Monitor, MonitorFacts

NO_RINGS = RingsReading()
HOST_PID = 77


def monitor(source: str = "nvml", *, simulated: bool = False, period_ns: int = NS_PER_S) -> Monitor:
    """One that has watched such a source since the epoch began."""
    return Monitor(
        MonitorFacts(
            source=source,
            source_kind=source.partition(":")[0],
            simulated=simulated,
            period_ns=period_ns,
            boot_id="boot",
            started_wall_time_s=0.0,
        )
    )


def moment(
    at_ns: int,
    *frames: Frame,
    rings: RingsReading = NO_RINGS,
    wall_time_s: float = 0.0,
    error: str | None = None,
) -> Moment:
    """A tick that came in time; without a frame, one was missed."""
    tick = Tick(
        at_ns=at_ns,
        late_ns=0,
        frames=frames,
        missed_count=int(not frames),
        error=error,
        duration_seconds=0.0,
    )
    return Moment(tick, rings, wall_time_s)


def ring_reading(facts: RunFacts, **changes: Any) -> RingReading:
    """What the ring of a run says that lives: nothing new, unless told otherwise."""
    known = RingReading(
        key=facts.run,
        facts=facts,
        alive=True,
        host_pid=facts.pid,
        owner_uid=0,
        read_at_ns=0,
        ended_ns=None,
        events=NO_RECORDS,
        lost_events=0,
        phase_ns={},
        steps=0,
        samples=0,
        epoch=None,
    )
    return replace(known, **changes)


def run_that_says(**facts: Any) -> RingReading:
    """A run that says so of itself; the host knows it by another pid than its container."""
    said = RunFacts(run="a", job="a", pid=1, boot_id="", started_ns=0)
    return ring_reading(replace(said, **facts), host_pid=HOST_PID)
