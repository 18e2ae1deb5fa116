"""Read this machine tick by tick.

Ticks come on a fixed grid of deadlines, so that a slow tick never causes a burst. The source is
read on its own thread, because a driver call that hangs cannot be ended.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from gpumon.core.clock import Clock, nanoseconds, seconds
from gpumon.core.reading import Reading
from gpumon.core.ring_format.events import RingCounts, RingsReading
from gpumon.core.sample import Frame, Tick
from gpumon.core.stacks.reading import NO_STACKS
from gpumon.core.state import CollectorState, MonitorState
from gpumon.errors import GpumonError, RestartNeededError, SourceUnavailableError, UsageError
from gpumon.pipeline.monitor import MonitorFacts
from gpumon.sources.gpu_source import GpuSource, ReadNow
from gpumon.sources.host.host_reader import HostReader
from gpumon.sources.ring_reader.phase_rings import PhaseRingReader

if TYPE_CHECKING:
    from gpumon.sources.stacks.stack_sampler import StackSampler

_FIRST_ANSWER_S: Final = 10.0
_STOP_PATIENCE_S: Final = 1.5
_BETWEEN: Final = (0.3, 0.7)
"""Share of the time between two ticks after which GPUs are looked at once more, at random."""
_MAX_BACK_OFF_S: Final = 60.0


class Watch(Protocol):
    """The machine, or a recording that is played.

    Attributes:
        facts: Its constants.
    """

    facts: MonitorFacts

    def require_source(self) -> None:
        """Fail if there is nothing to watch.

        Raises:
            SourceUnavailableError: The source cannot be read. One that only hangs is
                not an error.
        """
        ...

    def next_reading(self, now: ReadNow = ReadNow.SAMPLES) -> Reading | None:
        """Wait for the next tick; return ``None``, a period later, if there are no more.

        ``now`` is what the source must not leave for a later tick.

        Raises:
            RestartNeededError: Only a new process can read the source again.
        """
        ...

    def newest_counts(self) -> Mapping[int, RingCounts]:
        """Counts of living runs since the last tick, by pid. From any thread."""
        ...

    def collectors(self) -> tuple[CollectorState, ...]:
        """Its own collectors, besides the monitor's."""
        return ()

    def for_display(self, state: MonitorState) -> MonitorState:
        """The state for outlets, under the boot id of this machine."""
        return state

    def for_state_file(self, state: MonitorState) -> MonitorState:
        """The state for other processes, which compare it with CLOCK_MONOTONIC."""
        return state

    def close(self) -> None:
        """Release everything. Safe to call twice."""
        ...


class MachineWatch(Watch):
    """A source and the phase rings of this machine, read on a grid of deadlines.

    Args:
        make_source: Opens the source; called on its own thread.
        rings: The reader of this machine's rings; closed with the watch.
        facts: Constants of the monitor.
        clock: The system's clock; its ``wake`` ends the sleep.
    """

    def __init__(
        self,
        make_source: Callable[[], GpuSource],
        rings: PhaseRingReader,
        facts: MonitorFacts,
        clock: Clock,
    ) -> None:
        self.facts = facts
        self._rings, self._clock = rings, clock
        self._stacks: StackSampler | None = None
        self._tagged_pids: set[int] = set()
        self._host = HostReader()
        self._source = SourceThread(make_source, clock)
        self._patience_s = min(0.5 * seconds(facts.period_ns), 2.0)
        self._runs: set[tuple[str, int | None]] = set()
        self._found = ReadNow.SAMPLES  # what the rings showed to be needed next
        self._deadline_ns: int | None = None

    def sample_stacks(self, stacks: StackSampler) -> None:
        """Take stack samples from now on; the sampler is closed with the watch."""
        self._stacks = stacks

    def require_source(self) -> None:
        self._source.request(ReadNow.SAMPLES)
        frames, error, _ = self._source.collect(_FIRST_ANSWER_S)
        self._raise_fatal()
        if not frames and error is not None:
            raise SourceUnavailableError(error)

    def next_reading(self, now: ReadNow = ReadNow.SAMPLES) -> Reading:
        tick = self._tick(now | self._found)
        self._raise_fatal()
        began_ns = time.perf_counter_ns()  # after the source, so that phases cover all samples
        rings = self._rings.read(self._clock.monotonic_ns())
        read_seconds = seconds(time.perf_counter_ns() - began_ns)
        self._found = self._needed_after(rings)
        host = self._host.inspect(rings.rings, tick.frames, self._clock.monotonic_ns())
        stacks = NO_STACKS
        if self._stacks is not None:
            self._tagged_pids = {ring.host_pid for ring in rings.rings if ring.alive}
            for frame in tick.frames[-1:]:
                self._request_stacks(frame)
            stacks = self._stacks.collect()
        return Reading(tick, rings, self._clock.wall_time_s(), read_seconds, host, stacks)

    def _request_stacks(self, frame: Frame) -> None:
        if self._stacks is not None:
            self._stacks.request_due(frame, self._tagged_pids)

    def _needed_after(self, rings: RingsReading) -> ReadNow:
        """Samples, if a user watches, or a run began or ended: its GPUs are settled at once."""
        before, self._runs = self._runs, {(one.key, one.ended_ns) for one in rings.rings}
        is_quiet = self._runs == before and not rings.is_watched
        return ReadNow.NOTHING if is_quiet else ReadNow.SAMPLES

    def _raise_fatal(self) -> None:
        if self._source.fatal is not None:
            raise self._source.fatal

    def _tick(self, now: ReadNow) -> Tick:
        now_ns, period_ns, skipped = self._clock.monotonic_ns(), self.facts.period_ns, 0
        if self._deadline_ns is None:
            self._deadline_ns = now_ns
        else:
            before_ns = self._deadline_ns
            self._deadline_ns = next_deadline_ns(before_ns, now_ns, period_ns)
            skipped = (self._deadline_ns - before_ns) // period_ns - 1
        between: tuple[Frame, ...] = ()
        if self._stacks is not None:
            now |= ReadNow.PRESENT
            if self._stacks.can_sample(self._deadline_ns):
                between = self._read_between(now_ns, self._deadline_ns)
        self._clock.sleep_until_ns(self._deadline_ns)
        self._source.request(now)
        frames, error, duration_seconds = self._source.collect(self._patience_s)
        frames = between + frames
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

    def _read_between(self, now_ns: int, deadline_ns: int) -> tuple[Frame, ...]:
        """Look for idle GPUs once more before the next tick; return what the driver was read for.

        The time varies, so that a training loop with the period of the ticks is met, too.
        """
        at_ns = now_ns + round((deadline_ns - now_ns) * random.uniform(*_BETWEEN))
        self._clock.sleep_until_ns(at_ns)
        self._source.request(ReadNow.PRESENT)
        frames, _, _ = self._source.collect(seconds(max(0, deadline_ns - at_ns)) / 2)
        for frame in frames:
            self._request_stacks(frame)
        return tuple([frame for frame in frames if not frame.is_quiet])

    def newest_counts(self) -> Mapping[int, RingCounts]:
        return self._rings.newest_counts(self._clock.monotonic_ns())

    def collectors(self) -> tuple[CollectorState, ...]:
        return () if self._stacks is None else (self._stacks.collector_state(),)

    def close(self) -> None:
        """Close rings and processes, and the source if its last read returns in time."""
        self._rings.close()
        self._host.close()
        if self._stacks is not None:
            self._stacks.close()
        self._source.stop(_STOP_PATIENCE_S)


def next_deadline_ns(previous_ns: int, now_ns: int, period_ns: int) -> int:
    """The next tick on the original grid that is still in the future.

    The grid does not drift, and a slow tick causes one late tick, not a burst.

    >>> next_deadline_ns(10_000, 13_700, 1_000)
    14000
    """
    missed = max(0, (now_ns - previous_ns) // period_ns)
    return previous_ns + (missed + 1) * period_ns


class _Answer(NamedTuple):
    """What one read returned: a frame, or why there is none."""

    frame: Frame | None
    error: str | None
    duration_seconds: float


class SourceThread:
    """Makes, reads and closes a source on its own thread.

    A source that cannot be made is tried again at growing intervals, up to a minute.

    Attributes:
        idle: Whether no read is under way.
        fatal: Why this process can never read the source; ``None``: it can.
    """

    def __init__(self, make_source: Callable[[], GpuSource], clock: Clock) -> None:
        self._make_source = make_source
        self._clock = clock
        self._source: GpuSource | None = None
        self._retry_at_ns, self._back_off_s = 0, 1.0
        self._requests: queue.SimpleQueue[ReadNow | None] = queue.SimpleQueue()  # None: the end
        self._answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
        self._newest = _Answer(None, None, 0.0)
        self._frames: list[Frame] = []  # that were not collected
        self._error: str | None = None  # of the newest read
        self.idle = True
        self.fatal: RestartNeededError | UsageError | None = None
        self._now = ReadNow.NOTHING
        self._thread = threading.Thread(target=self._work, name="gpumon-source", daemon=True)
        self._thread.start()

    def request(self, now: ReadNow) -> None:
        """Start a read, unless one is under way; the next one then reads ``now``, too."""
        self._now |= now
        self._take_answer(0.0)
        if self.idle:
            self.idle = False
            self._requests.put(self._now)
            self._now = ReadNow.NOTHING

    def collect(self, patience_s: float) -> tuple[tuple[Frame, ...], str | None, float]:
        """Wait for the read, at most ``patience_s``.

        Returns:
            All frames since the last call, the error if the newest read
            failed, and how long that read took, in seconds.
        """
        self._take_answer(patience_s)
        frames, self._frames = tuple(self._frames), []
        return frames, self._newest.error, self._newest.duration_seconds

    def stop(self, patience_s: float) -> None:
        """Close the source if its last read returns in time; else it ends with the process."""
        self._requests.put(None)
        self._thread.join(patience_s)

    def _take_answer(self, patience_s: float) -> None:
        """Wait for the answer of the read that is under way, if there is one."""
        if self.idle:
            return
        with suppress(queue.Empty):
            self._newest = self._answers.get(timeout=patience_s)
            self.idle = True
            if self._newest.frame is not None:
                self._frames.append(self._newest.frame)

    def _work(self) -> None:
        while (now := self._requests.get()) is not None:
            began_ns = self._clock.monotonic_ns()
            frame, self._error = self._read(began_ns, now)
            took_seconds = seconds(self._clock.monotonic_ns() - began_ns)
            self._answers.put(_Answer(frame, self._error, took_seconds))
        if self._source is not None:
            self._source.close()

    def _read(self, now_ns: int, now: ReadNow) -> tuple[Frame | None, str | None]:
        try:
            if self._source is None:
                if now_ns < self._retry_at_ns:
                    return None, self._error
                self._source = self._make_source()
                self._back_off_s = 1.0
            return self._source.read(now), None
        except Exception as trouble:  # noqa: BLE001 - whatever a driver raises, sampling goes on
            if self._source is None:
                self._retry_at_ns = now_ns + nanoseconds(self._back_off_s)
                self._back_off_s = min(self._back_off_s * 2, _MAX_BACK_OFF_S)
            if isinstance(trouble, RestartNeededError | UsageError):
                self.fatal = trouble
            if isinstance(trouble, GpumonError):
                return None, str(trouble)
            return None, f"{type(trouble).__name__}: {trouble}"
