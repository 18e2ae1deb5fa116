"""A workload as ``gpumon serve`` samples it each second, with or without tags."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Final

import numpy as np

from gpumon.core.phase import TrainingMode, TrainingPhase
from gpumon.core.ring_format.events import (
    RingEvent,
    RingKind,
    RingReading,
    RingRecords,
    RingsReading,
    RunFacts,
)
from gpumon.core.sample import BusySample, Device, Frame, GpuSample, ProcessSample
from gpumon.core.state import MonitorState
from tests.builders.monitor import monitor, reading, ring_reading
from tests.truth.workloads.spans import covered_ms
from tests.truth.workloads.truth import GpuTruth, PhaseMark, Workload

ZERO_NS: Final = 10**12
"""Where a workload begins on the daemon's clock, which has no time before 0."""
NS_PER_MS: Final = 1_000_000
TICK_MS: Final = 1_000
_REMEMBERED_MS: Final = 10_000
"""How long the ring of a process that has ended is still read, at least."""
_FIRST_PID: Final = 100


class DriverWindows:
    """The driver's samples of one GPU, taken tick by tick.

    Args:
        gpu: What it does.
        duration_ms: How long it is watched.
        window_ms: Over how long the driver averages.
        first_ms: Where the first window begins.
    """

    def __init__(self, gpu: GpuTruth, duration_ms: int, window_ms: float, first_ms: float) -> None:
        edges_ms = np.arange(first_ms, duration_ms + 1, window_ms)
        busy_ms = np.diff(covered_ms(gpu.busy, edges_ms))
        self._ratios = (np.round(100 * busy_ms / window_ms) / 100).tolist()
        self._edges_ns = (ZERO_NS + np.round(edges_ms * NS_PER_MS)).astype(np.int64).tolist()
        self._next = 0

    def until(self, now_ns: int) -> Iterator[BusySample]:
        """The windows that have ended since it was asked last."""
        edges_ns = self._edges_ns
        while self._next < len(self._ratios) and edges_ns[self._next + 1] <= now_ns:
            at = self._next
            self._next += 1
            yield BusySample(edges_ns[at], edges_ns[at + 1], min(self._ratios[at], 1.0))


def daemon_states(
    workload: Workload, windows: Sequence[DriverWindows], *, tagged: bool
) -> Iterator[tuple[int, MonitorState]]:
    """After each tick: when it was, in ms of the workload, and what the daemon says.

    Args:
        workload: Its truth.
        windows: Of each of its GPUs.
        tagged: Whether its training runs have a ``PhaseTagger``.
    """
    rings = [
        ring for place, gpu in enumerate(workload.gpus) if tagged for ring in _rings(place, gpu)
    ]
    devices = [Device(uuid=f"GPU-{place}", index=place) for place in range(len(workload.gpus))]
    held_ms = [gpu.held.tolist() for gpu in workload.gpus]
    daemon = monitor(simulated=True, period_ns=TICK_MS * NS_PER_MS)
    for at_ms in range(TICK_MS, workload.duration_ms + TICK_MS, TICK_MS):
        now_ns = ZERO_NS + at_ms * NS_PER_MS
        gpus = tuple(
            GpuSample(
                device=device,
                busy=tuple(ended.until(now_ns)),
                processes=_processes(held, at_ms),
            )
            for device, held, ended in zip(devices, held_ms, windows, strict=True)
        )
        reported = RingsReading(
            rings=tuple(ring.until(at_ms) for ring in rings if ring.is_on(at_ms))
        )
        frame = Frame(taken_at_ns=now_ns, gpus=gpus)
        yield at_ms, daemon.ingest(reading(now_ns, frame, rings=reported, wall_time_s=at_ms / 1000))


def _processes(held_ms: Sequence[tuple[int, int]], at_ms: int) -> tuple[ProcessSample, ...]:
    number = bisect_right(held_ms, at_ms, key=itemgetter(0)) - 1
    if number < 0 or at_ms >= held_ms[number][1]:
        return ()
    return (ProcessSample(_FIRST_PID + number, None),)


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
        self._events = [*_with_steps(marks)]
        self._facts = RunFacts(
            run=f"workload-{self._begin_ms}-r{place}", job=f"workload-{self._begin_ms}", rank=place,
            pid=pid, boot_id="boot", started_ns=self._events[0].at_ns, gpus=(str(place),),
        )  # fmt: skip
        self._next = self._steps = 0

    def is_on(self, at_ms: int) -> bool:
        """Whether a daemon still has something to read of it."""
        return self._begin_ms <= at_ms <= self._end_ms + _REMEMBERED_MS

    def until(self, at_ms: int) -> RingReading:
        """What a daemon reads of it at that reading."""
        now_ns, first = ZERO_NS + at_ms * NS_PER_MS, self._next
        while self._next < len(self._events) and self._events[self._next].at_ns <= now_ns:
            event = self._events[self._next]
            self._steps = event.value if event.kind is RingKind.STEP else self._steps
            self._next += 1
        alive = at_ms < self._end_ms
        return ring_reading(
            self._facts,
            alive=alive,
            read_at_ns=now_ns,
            ended_ns=None if alive else ZERO_NS + self._end_ms * NS_PER_MS,
            events=RingRecords.of(self._events[first : self._next]),
            steps=self._steps,
        )


def _with_steps(marks: Sequence[PhaseMark]) -> Iterator[RingEvent]:
    """The records of these marks, and of a step that is counted where each training step ends."""
    steps, was_step = 0, False
    for mark in marks:
        at_ns = ZERO_NS + mark.at_ms * NS_PER_MS
        if was_step:
            steps += 1
            yield RingEvent(RingKind.STEP, at_ns, TrainingPhase.TRAIN_STEP, steps)
        yield RingEvent(RingKind.ENTER, at_ns, mark.phase, mark.mode)
        was_step = mark.phase is TrainingPhase.TRAIN_STEP and mark.mode is TrainingMode.TRAIN
