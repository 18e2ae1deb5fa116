"""What ``gpumon serve`` makes of a world: it drains the driver each second, and may read tags."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from gpumon.core.device import Device
from gpumon.core.report import GpuReport
from gpumon.core.ring_events import RingEvent, RingKind, RingReading, RingsReading, RunFacts
from gpumon.core.sample import BusySample, Frame, GpuSample, ProcessSample
from gpumon.core.state import GpuState, MonitorState
from gpumon.core.tick import Tick
from gpumon.pipeline.monitor import Monitor, MonitorFacts
from tests.truth.score.finding import NS_PER_MS, Finding, finding_of
from tests.truth.worlds.spans import covered_ms
from tests.truth.worlds.truth import GpuTruth, PhaseMark, World

_TICK_MS: Final = 1_000
_REMEMBERED_MS: Final = 10_000
"""How long the ring of a process that has ended is still read, at least."""
_FIRST_PID: Final = 100
_ZERO_NS: Final = 10**12
"""Where a world begins on the daemon's clock, which has no time before 0."""
_SHORTEST_WINDOW_MS, _LONGEST_WINDOW_MS = 1000 / 6, 1000.0


def found_by_daemon(world: World, rng: np.random.Generator, *, tagged: bool) -> list[Finding]:
    """What is found of each GPU of a world.

    Args:
        world: Its truth.
        rng: Draws the driver's window and where it begins.
        tagged: Whether its trainings have a ``PhaseTagger``.
    """
    window_ms = float(rng.uniform(_SHORTEST_WINDOW_MS, _LONGEST_WINDOW_MS))
    frames = [_windows(gpu, world.duration_ms, window_ms, rng) for gpu in world.gpus]
    rings = [ring for place, gpu in enumerate(world.gpus) if tagged for ring in _rings(place, gpu)]
    monitor = Monitor(
        MonitorFacts(
            source="world", source_kind="nvml", simulated=True, period_ns=_TICK_MS * NS_PER_MS,
            boot_id="boot", started_wall_time_s=0.0,
        )
    )  # fmt: skip
    spoke_ms: list[float | None] = [None] * len(world.gpus)
    state: MonitorState | None = None
    for at_ms in range(_TICK_MS, world.duration_ms + _TICK_MS, _TICK_MS):
        now_ns = _ZERO_NS + at_ms * NS_PER_MS
        gpus = tuple(
            GpuSample(
                device=_device(place),
                busy=tuple(windows.until(now_ns)),
                processes=_processes(world.gpus[place], at_ms),
            )
            for place, windows in enumerate(frames)
        )
        tick = Tick(now_ns, 0, (Frame(taken_at_ns=now_ns, gpus=gpus),), 0, None, 0.0)
        readings = RingsReading(
            rings=tuple(ring.until(at_ms) for ring in rings if ring.is_on(at_ms))
        )
        state = monitor.advance(tick, readings, wall_time_s=at_ms / 1000)
        for place, gpu in enumerate(state.gpus):
            if spoke_ms[place] is None and gpu.totals.suspected_ns + gpu.totals.starved_ns:
                spoke_ms[place] = float(at_ms)
    assert state is not None
    return [
        finding_of(_as_report(gpu), _ZERO_NS, spoke)
        for gpu, spoke in zip(state.gpus, spoke_ms, strict=True)
    ]


def _as_report(gpu: GpuState) -> GpuReport:
    return GpuReport(
        index=gpu.device.index, uuid=None, name=None, totals=gpu.totals, verdict=gpu.verdict
    )


def _processes(gpu: GpuTruth, at_ms: int) -> tuple[ProcessSample, ...]:
    begins_ms = gpu.held[:, 0]
    number = int(np.searchsorted(begins_ms, at_ms, side="right")) - 1
    if number < 0 or at_ms >= gpu.held[number, 1]:
        return ()
    return (ProcessSample(_FIRST_PID + number, None),)


def _device(place: int) -> Device:
    return Device(uuid=f"GPU-{place}", index=place)


class _windows:  # noqa: N801 - reads as what it is where it is made
    """The driver's samples of one GPU, taken tick by tick."""

    def __init__(
        self, gpu: GpuTruth, duration_ms: int, window_ms: float, rng: np.random.Generator
    ) -> None:
        edges_ms = np.arange(-rng.uniform(0, window_ms), duration_ms, window_ms)
        edges_ms = edges_ms[edges_ms >= 0]
        busy_ms = np.diff(covered_ms(gpu.busy, edges_ms))
        self._ratios = (np.round(100 * busy_ms / window_ms) / 100).tolist()
        self._edges_ns = (_ZERO_NS + np.round(edges_ms * NS_PER_MS)).astype(np.int64).tolist()
        self._next = 0

    def until(self, now_ns: int) -> Iterator[BusySample]:
        edges_ns = self._edges_ns
        while self._next < len(self._ratios) and edges_ns[self._next + 1] <= now_ns:
            at = self._next
            self._next += 1
            yield BusySample(edges_ns[at], edges_ns[at + 1], min(self._ratios[at], 1.0))


def _rings(place: int, gpu: GpuTruth) -> list[_Ring]:
    """One for each process on a GPU that tags its phases."""
    begins_ms = [mark.at_ms for mark in gpu.phases]
    rings = []
    for number, (begin_ms, end_ms) in enumerate(gpu.held.tolist()):
        marks = gpu.phases[bisect_left(begins_ms, begin_ms) : bisect_left(begins_ms, end_ms)]
        if marks:
            rings.append(_Ring(place, _FIRST_PID + number, (begin_ms, end_ms), marks))
    return rings


class _Ring:
    """The tags of one process: a rank of the machine's one job of that time."""

    def __init__(
        self, place: int, pid: int, life_ms: tuple[int, int], marks: Sequence[PhaseMark]
    ) -> None:
        self._begin_ms, self._end_ms = life_ms
        self._events = [
            RingEvent(RingKind.ENTER, _ZERO_NS + mark.at_ms * NS_PER_MS, mark.phase, mark.mode)
            for mark in marks
        ]
        self._facts = RunFacts(
            run=f"world-{self._begin_ms}-r{place}", job=f"world-{self._begin_ms}", rank=place,
            pid=pid, boot_id="boot", started_ns=self._events[0].at_ns, gpus=(str(place),),
        )  # fmt: skip
        self._next = 0

    def is_on(self, at_ms: int) -> bool:
        """Whether a daemon still has something to read of it."""
        return self._begin_ms <= at_ms <= self._end_ms + _REMEMBERED_MS

    def until(self, at_ms: int) -> RingReading:
        """What a daemon reads of it at that moment."""
        now_ns, first = _ZERO_NS + at_ms * NS_PER_MS, self._next
        while self._next < len(self._events) and self._events[self._next].at_ns <= now_ns:
            self._next += 1
        alive = at_ms < self._end_ms
        return RingReading(
            key=self._facts.run, facts=self._facts, alive=alive, host_pid=self._facts.pid,
            owner_uid=0, read_at_ns=now_ns,
            ended_ns=None if alive else _ZERO_NS + self._end_ms * NS_PER_MS,
            events=self._events[first : self._next], lost_events=0, phase_ns={}, steps=0,
            samples=0, epoch=None,
        )  # fmt: skip
