"""Watch one GPU, and take stack samples of a process that uses it: mostly while the GPU is idle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final, NamedTuple, TypeAlias

from gpumon.core.clock import NS_PER_S, nanoseconds
from gpumon.core.sample import BusySample, Device, Frame, GpuSample
from gpumon.core.stacks.evidence import PlaceCount, StackEvidence, StackFinding
from gpumon.core.stacks.idle_pauses import IdlePauses, Weighed
from gpumon.core.stacks.place import Place, place_of
from gpumon.core.stacks.sample_join import IDLE_UP_TO, Joined, SampleJoin, SampleKind
from gpumon.core.stacks.sample_times import SampleTimes
from gpumon.core.stacks.stack import ProcessStack, StackSample
from gpumon.core.waits.reasons import WaitReason
from gpumon.pipeline.untagged_run import UntaggedRun
from gpumon.pipeline.watch import SourceThread
from gpumon.sources.gpu_source import ReadNow
from gpumon.sources.system_clock import SystemClock

_MOST: Final = 0.9
_VARIATION: Final = (0.6, 1.4)
"""Of the time between two readings."""
_PATIENCE_S: Final = 1.0
_LAST_WINDOWS_NS: Final = 4 * NS_PER_S
"""How long to wait for the windows of the last samples."""
_LATE_AFTER_NS: Final = NS_PER_S // 4
"""A followed file without a span for so long is taken to be idle: a span comes as it ends."""


class WatchReader(NamedTuple):
    """How stacks are read, and what they show.

    Attributes:
        read: Reads the stacks of a process and its descendants; never raises.
        place_of: Where the training thread was.
        is_python: Whether it reads Python's stacks, not only the states of threads.
    """

    read: Callable[[int], StackSample]
    place_of: Callable[[StackSample], Place] = place_of
    is_python: bool = True


OnSample: TypeAlias = Callable[[SampleKind, StackSample, Place], None]


class Target(NamedTuple):
    """What is watched.

    Attributes:
        label: Of the GPU, such as ``"0"``.
        pid: Of the process.
        note: Why this one, as a sentence; empty: it was named.
    """

    label: str
    pid: int
    note: str = ""


class SourcePace(NamedTuple):
    """How a source is read.

    Attributes:
        period_s: Time between two readings.
        spans_come_late: Whether it reports a busy span only when that has ended.
    """

    period_s: float = 0.25
    spans_come_late: bool = False


_USUAL_PACE: Final = SourcePace()


class Ending(Enum):
    """Why a watch ended."""

    TIME = "time"
    STOPPED = "stopped"
    PROCESS_ENDED = "process_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedTime:
    """What a watch found.

    Attributes:
        device: The GPU; ``None``: it was never read.
        pid: The process.
        passed_ns: How long was watched.
        observed_ns: Time covered by the driver's windows; so is ``busy_ns``.
        seen_idle_ns: Idle time in pauses that were long enough to see.
        lowest_ratio: Busy ratio of the least busy window, 0 to 1; ``None``: there was no window.
        window_ns: The longest window.
        reasons: What held its idle time up, if all of it was a wait for input.
        trouble: What is wrong with the source, as a sentence; ``None``: nothing.
    """

    device: Device | None
    pid: int
    observed_ns: int
    busy_ns: int
    lowest_ratio: float | None
    window_ns: int
    ending: Ending
    finding: StackFinding
    seen_idle_ns: int = 0
    passed_ns: int = 0
    reasons: tuple[WaitReason, ...] = ()
    trouble: str | None = None

    @property
    def idle_ns(self) -> int:
        return self.observed_ns - self.busy_ns

    @property
    def sees_most(self) -> bool:
        """Whether its pauses are mostly long enough to see: the rest may have other causes."""
        return self.seen_idle_ns >= _MOST * self.idle_ns

    @property
    def is_short(self) -> bool:
        """Whether its pauses are shorter than a window, so that no sample lies in one for sure."""
        return self.lowest_ratio is not None and self.lowest_ratio > IDLE_UP_TO

    @property
    def idle_ratio(self) -> float:
        """Idle part of the observed time, 0 to 1."""
        return self.idle_ns / self.observed_ns if self.observed_ns else 0.0


class Progress(NamedTuple):
    """How far a watch is.

    Attributes:
        passed_ns: Since it began.
        place: Where most of the idle samples were.
    """

    passed_ns: int
    observed_ns: int
    idle_ns: int
    idle_samples: int
    failed_samples: int
    place: PlaceCount | None = None


class _Taken(NamedTuple):
    """One stack sample, and the time that it stands for."""

    sample: StackSample
    stands_for_ns: int


class _Placed(NamedTuple):
    """The same once it is known what the GPU did."""

    place: Place
    workers: tuple[ProcessStack, ...]
    stands_for_ns: int


class StackWatch:
    """Reads a source and takes stack samples, until its time is over.

    Args:
        source: The GPUs.
        target: Which of them, and the process.
        reader: Of its stacks.
        clock: Its ``wake`` ends the waiting.
        pace: How the source is read.
        on_sample: Called with each stack sample once it is known what the GPU did meanwhile.

    Attributes:
        random: Of the times at which it reads.
    """

    def __init__(
        self,
        source: SourceThread,
        target: Target,
        reader: WatchReader,
        clock: SystemClock,
        pace: SourcePace = _USUAL_PACE,
        on_sample: OnSample = lambda _kind, _sample, _place: None,
    ) -> None:
        self._source, self._target, self._clock = source, target, clock
        self._reader, self._on_sample = reader, on_sample
        self._period_ns = nanoseconds(pace.period_s)
        self._spans_come_late = pace.spans_come_late
        self.random = Random()
        self._times = SampleTimes(self.random)
        self._pauses: IdlePauses[_Placed] = IdlePauses()
        self._join: SampleJoin[_Taken] = SampleJoin()
        self._evidence = StackEvidence()
        self._device: Device | None = None
        self._newest: BusySample | None = None
        self._observed_ns = self._busy_ns = self._window_ns = 0
        self._lowest: float | None = None
        self._trouble: str | None = None
        self._run = UntaggedRun(target.pid, clock.monotonic_ns())
        self._stopped = False

    def stop(self) -> None:
        """End the watch. Safe in a signal handler."""
        self._stopped = True
        self._clock.wake()

    def run(
        self,
        length_s: float,
        *,
        is_alive: Callable[[], bool],
        show: Callable[[Progress], None] = lambda _: None,
    ) -> WatchedTime:
        """Watch for so many seconds, or until ``stop``, or until the process has ended."""
        began_ns = self._clock.monotonic_ns()
        until_ns = began_ns + nanoseconds(length_s)
        ending = Ending.TIME
        while (now_ns := self._clock.monotonic_ns()) < until_ns:
            if self._stopped:
                ending = Ending.STOPPED
                break
            if not is_alive():
                ending = Ending.PROCESS_ENDED
                break
            self._read_gpu()
            self._take_if_due()
            show(self._progress(now_ns - began_ns))
            # The time varies, so that a training loop of any period is met everywhere.
            deadline_ns = now_ns + round(self._period_ns * self.random.uniform(*_VARIATION))
            self._clock.sleep_until_ns(min(deadline_ns, until_ns))
        passed_ns, seen_idle_ns = self._clock.monotonic_ns() - began_ns, self._pauses.idle_ns
        self._wait_for_last_windows()
        self._count(self._pauses.finish())
        reasons = self._run.reasons()
        self._run.close()
        return WatchedTime(
            device=self._device,
            pid=self._target.pid,
            observed_ns=self._observed_ns,
            busy_ns=self._busy_ns,
            lowest_ratio=self._lowest,
            window_ns=self._window_ns,
            ending=ending,
            finding=self._evidence.finding(),
            seen_idle_ns=seen_idle_ns,
            passed_ns=passed_ns,
            reasons=reasons,
            trouble=self._trouble,
        )

    def _progress(self, passed_ns: int) -> Progress:
        return Progress(
            passed_ns,
            self._observed_ns,
            self._observed_ns - self._busy_ns,
            self._evidence.idle_samples + len(self._pauses),
            self._evidence.failed_samples,
            self._evidence.main_place,
        )

    def _wait_for_last_windows(self) -> None:
        """Read until the windows of all samples are known; time after the watch is not counted."""
        until_ns = self._clock.monotonic_ns() + _LAST_WINDOWS_NS
        while len(self._join) and self._clock.monotonic_ns() < until_ns:
            self._read_gpu(is_counted=False)
            SystemClock().sleep_until_ns(self._clock.monotonic_ns() + self._period_ns)

    # -- the GPU ---------------------------------------------------------------------

    def _read_gpu(self, *, is_counted: bool = True) -> None:
        self._source.request(ReadNow.SAMPLES)
        frames, error, _ = self._source.collect(_PATIENCE_S)
        self._trouble = error
        if not frames and error is None and not self._source.idle:
            self._trouble = "the driver does not answer"
        for frame in frames:
            gpu = _gpu_of(frame, self._target.label)
            if gpu is None:
                self._trouble = f"GPU {self._target.label} is no longer there"
                continue
            self._trouble = gpu.error or frame.trouble or error
            self._device = gpu.device
            self._ingest(gpu.busy, is_counted=is_counted)
            self._run.ingest(gpu.busy, self._clock.monotonic_ns())

    def _ingest(self, windows: tuple[BusySample, ...], *, is_counted: bool) -> None:
        for window in windows if is_counted else ():
            self._observed_ns += window.length_ns
            self._busy_ns += window.busy_ns
            self._window_ns = max(self._window_ns, window.length_ns)
            lowest = self._lowest
            self._lowest = window.busy_ratio if lowest is None else min(lowest, window.busy_ratio)
        if windows:
            self._newest = windows[-1]
            self._times.ingest(windows)
            for window in windows:
                self._join_to(window)
        else:
            self._note_all(self._join.ingest((), self._clock.monotonic_ns()))

    def _join_to(self, window: BusySample) -> None:
        self._count(self._pauses.ingest(window))
        self._note_all(self._join.ingest((window,), self._clock.monotonic_ns()))

    def _note_all(self, decided: list[Joined[_Taken]]) -> None:
        for kind, (sample, stands_for_ns) in ((one.kind, one.item) for one in decided):
            place, workers = self._reader.place_of(sample), sample.processes[1:]
            self._on_sample(kind, sample, place)
            if kind is SampleKind.IDLE:
                self._pauses.add(_Placed(place, workers, stands_for_ns))
            else:
                self._evidence.add(kind, place, workers, stands_for=stands_for_ns)

    def _count(self, found: list[Weighed[_Placed]]) -> None:
        for weighed in found:
            place, workers, stands_for_ns = weighed.item
            self._evidence.add(
                SampleKind.IDLE,
                place,
                workers,
                stands_for=stands_for_ns,
                weight=stands_for_ns * weighed.factor,
            )

    def _is_idle(self, now_ns: int) -> bool:
        newest = self._newest
        if newest is None:
            return False
        if self._spans_come_late and now_ns - newest.end_ns > _LATE_AFTER_NS:
            return True
        return newest.busy_ratio <= IDLE_UP_TO

    # -- the process -----------------------------------------------------------------

    def _take_if_due(self) -> None:
        now_ns = self._clock.monotonic_ns()
        stands_for_ns = self._times.due_for_ns(now_ns, is_idle=self._is_idle(now_ns))
        if stands_for_ns is None:
            return
        sample = self._reader.read(self._target.pid)
        if sample.error is not None and sample.is_retryable:
            sample = self._reader.read(self._target.pid)
        if sample.error is not None:
            self._evidence.add_failure(sample.error)
            return
        self._join.add(sample.start_ns, sample.end_ns, _Taken(sample, stands_for_ns))


def _gpu_of(frame: Frame, label: str) -> GpuSample | None:
    return next((gpu for gpu in frame.gpus if gpu.device.label == label), None)
