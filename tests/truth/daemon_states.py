"""A workload as ``gpumon serve`` samples it each second, with or without tags."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Final

import numpy as np

from gpumon.core.accounting.seen_pauses import interval_ns
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
from gpumon.core.stacks.reading import NO_STACKS, StacksReading
from gpumon.core.stacks.stack import ProcessStack, StackSample
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
_LOOKS_BACK_MS: Final = 200.0
"""What a reading of the present utilisation covers."""
_LONG_AGO_MS: Final = -3_600_000


class Windows:
    """The driver's samples of one GPU, taken tick by tick."""

    def __init__(self, samples: Sequence[BusySample]) -> None:
        self._samples, self._next = samples, 0

    def until(self, now_ns: int) -> tuple[BusySample, ...]:
        """Those that have ended since the last call."""
        first = self._next
        while self._next < len(self._samples) and self._samples[self._next].end_ns <= now_ns:
            self._next += 1
        return tuple(self._samples[first : self._next])


def driver_windows(gpu: GpuTruth, duration_ms: int, window_ms: float, first_ms: float) -> Windows:
    """Windows of that length; ``first_ms``: where the first one begins."""
    edges_ms = np.arange(first_ms, duration_ms + 1, window_ms)
    busy_ms = np.diff(covered_ms(gpu.busy, edges_ms))
    ratios = np.minimum(np.round(100 * busy_ms / window_ms) / 100, 1.0).tolist()
    edges_ns = (ZERO_NS + np.round(edges_ms * NS_PER_MS)).astype(np.int64).tolist()
    return Windows([*map(BusySample, edges_ns[:-1], edges_ns[1:], ratios)])


class ReplayedRing:
    """The ring of one process, read tick by tick."""

    def __init__(self, facts: RunFacts, events: Sequence[RingEvent], samples: int = 0) -> None:
        """``samples``: how many it counts in a step."""
        self._facts, self._events, self._samples = facts, events, samples
        self._next = self._steps = 0
        self._phase_ns: dict[TrainingPhase, int] = {}
        self._phase, self._entered_ns = TrainingPhase.START_UP, 0

    def reading(self, now_ns: int, ended_ns: int | None = None) -> RingReading:
        """What a daemon reads."""
        first = self._next
        while self._next < len(self._events) and self._events[self._next].at_ns <= now_ns:
            event = self._events[self._next]
            if event.kind is RingKind.STEP:
                self._steps = event.value
            else:
                spent_ns = event.at_ns - self._entered_ns
                self._phase_ns[self._phase] = self._phase_ns.get(self._phase, 0) + spent_ns
                self._phase, self._entered_ns = event.phase, event.at_ns
            self._next += 1
        is_alive = ended_ns is None or now_ns < ended_ns
        return ring_reading(
            self._facts,
            alive=is_alive,
            read_at_ns=now_ns + NS_PER_MS,
            ended_ns=None if is_alive else ended_ns,
            events=RingRecords.of(self._events[first : self._next]),
            steps=self._steps,
            samples=self._samples * self._steps,
            phase_ns=dict(self._phase_ns),
        )


class Sampler:
    """Stack samples of the processes on idle GPUs, as ``serve --stacks`` takes them.

    Args:
        workload: What happens.
        processes: A process with its descendants, as they are in each pause.
    """

    def __init__(self, workload: Workload, processes: Sequence[ProcessStack]) -> None:
        self._busy = [gpu.busy for gpu in workload.gpus]
        self._processes = tuple(processes)
        self._pending: dict[str, StackSample] = {}
        self._idle_from_ms = [0] * len(self._busy)
        self._sampled_at_ms = [_LONG_AGO_MS] * len(self._busy)

    def reading(self, at_ms: int) -> StacksReading:
        """What came since the last tick; what is due now comes with the next one."""
        came = tuple(((uuid,), sample) for uuid, sample in self._pending.items())
        self._pending = {}
        for index, busy in enumerate(self._busy):
            before_ms, now_ms = covered_ms(busy, np.array([at_ms - _LOOKS_BACK_MS, at_ms]))
            if now_ms > before_ms:
                self._idle_from_ms[index] = at_ms
                continue
            paused_ns = (at_ms - self._idle_from_ms[index]) * NS_PER_MS
            if (at_ms - self._sampled_at_ms[index]) * NS_PER_MS >= interval_ns(paused_ns):
                self._sampled_at_ms[index] = at_ms
                start_ns = ZERO_NS + at_ms * NS_PER_MS
                self._pending[f"GPU-{index}"] = StackSample(
                    start_ns, start_ns + 10 * NS_PER_MS, _FIRST_PID, self._processes
                )
        return StacksReading(came, {uuid: one.start_ns for uuid, one in self._pending.items()})


def daemon_states(
    workload: Workload, windows: Sequence[Windows], *, tagged: bool, sampler: Sampler | None = None
) -> Iterator[tuple[int, MonitorState]]:
    """The daemon's state after each tick, with the tick's time in ms of the workload.

    Args:
        workload: What happens.
        windows: Of each of its GPUs.
        tagged: Whether its training runs have a ``PhaseTagger``.
        sampler: Of stacks; ``None``: it reads none.
    """
    rings = [
        ring for index, gpu in enumerate(workload.gpus) if tagged for ring in _rings(index, gpu)
    ]
    devices = [Device(uuid=f"GPU-{index}", index=index) for index in range(len(workload.gpus))]
    held_ms = [gpu.held.tolist() for gpu in workload.gpus]
    daemon = monitor(simulated=True, period_ns=TICK_MS * NS_PER_MS)
    for at_ms in range(TICK_MS, workload.duration_ms + TICK_MS, TICK_MS):
        now_ns = ZERO_NS + at_ms * NS_PER_MS
        gpus = tuple(
            GpuSample(device=device, busy=samples.until(now_ns), processes=_processes(held, at_ms))
            for device, held, samples in zip(devices, held_ms, windows, strict=True)
        )
        read = tuple(
            ring.reading(now_ns, ZERO_NS + end_ms * NS_PER_MS)
            for ring, begin_ms, end_ms in rings
            if begin_ms <= at_ms <= end_ms + _REMEMBERED_MS
        )
        frame = Frame(taken_at_ns=now_ns, gpus=gpus)
        tick = reading(now_ns, frame, rings=RingsReading(rings=read), wall_time_s=at_ms / 1000)
        stacks = NO_STACKS if sampler is None else sampler.reading(at_ms)
        yield at_ms, daemon.ingest(tick._replace(stacks=stacks))


def _processes(held_ms: Sequence[tuple[int, int]], at_ms: int) -> tuple[ProcessSample, ...]:
    number = bisect_right(held_ms, at_ms, key=itemgetter(0)) - 1
    if number < 0 or at_ms >= held_ms[number][1]:
        return ()
    return (ProcessSample(_FIRST_PID + number, None),)


def _rings(index: int, gpu: GpuTruth) -> Iterator[tuple[ReplayedRing, int, int]]:
    """The ring of each tagged process on a GPU, and when it begins and ends."""
    begins_ms = [mark.at_ms for mark in gpu.phases]
    for number, (begin_ms, end_ms) in enumerate(gpu.held.tolist()):
        marks = gpu.phases[bisect_left(begins_ms, begin_ms) : bisect_left(begins_ms, end_ms)]
        if marks:
            events = [*_with_steps(marks)]
            facts = RunFacts(
                run=f"workload-{begin_ms}-r{index}", job=f"workload-{begin_ms}", rank=index,
                pid=_FIRST_PID + number, boot_id="boot", started_ns=events[0].at_ns,
                gpus=(str(index),),
            )  # fmt: skip
            yield ReplayedRing(facts, events), begin_ms, end_ms


def _with_steps(marks: Sequence[PhaseMark]) -> Iterator[RingEvent]:
    """The records of these marks, with a step at the end of each training step."""
    steps, was_step = 0, False
    for mark in marks:
        at_ns = ZERO_NS + mark.at_ms * NS_PER_MS
        if was_step:
            steps += 1
            yield RingEvent(RingKind.STEP, at_ns, TrainingPhase.TRAIN_STEP, steps)
        yield RingEvent(RingKind.ENTER, at_ns, mark.phase, mark.mode)
        was_step = mark.phase is TrainingPhase.TRAIN_STEP and mark.mode is TrainingMode.TRAIN
