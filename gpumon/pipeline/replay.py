"""Replays a recording: at once for a report, or in real time for a daemon.

Everything inside runs on the recording's clock, so durations do not depend on the speed. Only the
state for outlets is moved to the clock of this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from gpumon.core.clock import NS_PER_S, Clock, seconds
from gpumon.core.reading import Reading
from gpumon.core.report.lanes import ReportWithLanes
from gpumon.core.ring_format.events import RingCounts
from gpumon.core.sample import GpuSample
from gpumon.core.state import REPLAY, CollectorState, GpuState, MonitorState
from gpumon.errors import UnreadableLogError
from gpumon.pipeline.monitor import Monitor, MonitorFacts
from gpumon.pipeline.report_builder import Reports
from gpumon.pipeline.watch import Watch
from gpumon.sources.gpu_source import ReadNow
from gpumon.sources.recording import RecordingFile

Watched = Callable[[Iterable[Reading]], Iterable[Reading]]


def facts_of(recording: RecordingFile) -> MonitorFacts:
    """The facts for a monitor of this recording."""
    header = recording.header
    return MonitorFacts(
        source=f"replay:{recording.name}",
        source_kind=header.source.partition(":")[0],
        simulated=header.simulated,
        period_ns=header.period_ns,
        boot_id=header.boot_id,
        started_wall_time_s=header.started_wall_time_s,
        replayed=True,
    )


def replayed_report(
    recording: RecordingFile,
    watched: Watched = iter,
    *,
    since_s: float | None = None,
    run: str | None = None,
) -> ReportWithLanes:
    """The report, with lanes, that a daemon would have given at the end of the recording.

    Args:
        recording: Not yet read.
        watched: Observes the ticks, for progress.
        since_s: Length of the window before its end, in seconds.
        run: Only the run with this label or pid.

    Raises:
        UnreadableLogError: The disk cannot be read, or the recording has no tick.
        UsageError: There is no such run.
    """
    monitor, reports = Monitor(facts_of(recording)), Reports()
    for reading in watched(recording.readings()):
        reports.follow(monitor.ingest(reading))
    found = reports.report_with_lanes(since_s=since_s, run=run)
    if found is None:
        raise UnreadableLogError(f"{recording.name}: has no reading")
    report, note = found.report, recording.header.note
    own_note = (f"Note of the recording: {note}",) if note else ()
    notes = (*report.notes, *own_note, *recording.troubles())
    return found._replace(report=replace(report, notes=notes))


class ReplayClock:
    """The clock of a replayed recording, at ``speed``; it stops at the end."""

    def __init__(self, clock: Clock, speed: float) -> None:
        self._clock = clock
        self._speed = speed
        self._began_ns = clock.monotonic_ns()
        self._over_ns: int | None = None

    def monotonic_ns(self) -> int:
        """CLOCK_MONOTONIC of this machine at the start, plus the recording's time since then."""
        if self._over_ns is not None:
            return self._over_ns
        passed_ns = self._clock.monotonic_ns() - self._began_ns
        return self._began_ns + round(passed_ns * self._speed)

    def wall_time_s(self) -> float:
        return self._clock.wall_time_s()

    def sleep_until_ns(self, deadline_ns: int) -> None:
        """Return when that much of the recording has passed, or the clock is woken."""
        passed_ns = (deadline_ns - self._began_ns) / self._speed
        self._clock.sleep_until_ns(self._began_ns + round(passed_ns))

    def begin(self) -> None:
        self._began_ns = self._clock.monotonic_ns()

    def stand_still(self, at_ns: int) -> None:
        self._over_ns = at_ns


class ReplayWatch(Watch):
    """Plays a recording tick by tick, each when it is due; then its last state stays.

    Args:
        recording: Not yet read; closed with the watch.
        clock: The system's clock; waking it ends a wait.
        boot_id: Of this machine.
        speed: Seconds of the recording per second.
    """

    def __init__(
        self, recording: RecordingFile, clock: Clock, boot_id: str, *, speed: float = 1.0
    ) -> None:
        self.facts = facts_of(recording)
        self.clock = ReplayClock(clock, speed)
        self._recording = recording
        self._system_clock = clock
        self._boot_id = boot_id
        self._readings: Iterator[Reading] = recording.readings()
        self._ahead_ns: int | None = None  # what to add to a timestamp of the recording
        self._newest_ns = 0
        self._failed: str | None = None
        self._is_over = False

    def require_source(self) -> None:
        """Nothing to check: the recording is open."""

    def next_reading(self, now: ReadNow = ReadNow.SAMPLES) -> Reading | None:
        reading = None if self._is_over else self._next()
        if reading is None:
            if not self._is_over:
                self._is_over = True
                self.clock.stand_still(self._newest_ns + (self._ahead_ns or 0))
            now_ns = self._system_clock.monotonic_ns()
            self._system_clock.sleep_until_ns(now_ns + min(self.facts.period_ns, NS_PER_S))
            return None
        at_ns = reading.tick.at_ns
        if self._ahead_ns is None:
            self.clock.begin()
            self._ahead_ns = self.clock.monotonic_ns() - at_ns
        self._newest_ns = at_ns
        self.clock.sleep_until_ns(at_ns + self._ahead_ns)
        return reading

    def newest_counts(self) -> Mapping[int, RingCounts]:
        return {}  # a recording has no counts between two ticks

    def collectors(self) -> tuple[CollectorState, ...]:
        """Whether the recording is still playing, and its damage."""
        sentences: list[str] = []
        if self._is_over:
            played_s = seconds(self._recording.read_ns)
            sentences = [f"the recording ended after {played_s:,.0f} s; this is its last state."]
            if self._failed is not None:
                sentences.append(f"{self._failed}.")
            sentences += self._recording.troubles()
        return (
            CollectorState(
                name=REPLAY,
                success=not self._is_over,
                duration_seconds=0.0,
                errors_total=self._recording.damaged_count,
                message=" ".join(sentences) or None,
            ),
        )

    def for_display(self, state: MonitorState) -> MonitorState:
        """With timestamps that start at the start of the replay."""
        return self._moved(state, self._ahead_ns or 0)

    def for_state_file(self, state: MonitorState) -> MonitorState:
        """With the newest timestamp at the present, for readers that know no other clock."""
        return self._moved(state, self._system_clock.monotonic_ns() - state.taken_at_ns)

    def close(self) -> None:
        self._recording.close()

    def _next(self) -> Reading | None:
        try:
            return next(self._readings, None)
        except UnreadableLogError as error:
            self._failed = str(error)
            return None

    def _moved(self, state: MonitorState, by_ns: int) -> MonitorState:
        return state._replace(
            taken_at_ns=state.taken_at_ns + by_ns,
            wall_time_s=self._system_clock.wall_time_s(),
            boot_id=self._boot_id,
            gpus=tuple(_moved(gpu, by_ns) for gpu in state.gpus),
        )


def _moved(gpu: GpuState, by_ns: int) -> GpuState:
    last_ns = None if gpu.last_sample_at_ns is None else gpu.last_sample_at_ns + by_ns
    latest = None if gpu.latest is None else _moved_board(gpu.latest, by_ns)
    return gpu._replace(latest=latest, last_sample_at_ns=last_ns, errors=gpu.errors.moved(by_ns))


def _moved_board(sample: GpuSample, by_ns: int) -> GpuSample:
    """Move the timestamps that ``board_document`` shows."""
    details, activity = sample.details, sample.activity
    if details is not None:
        details = details._replace(read_at_ns=details.read_at_ns + by_ns)
    if activity is not None:
        activity = activity._replace(
            start_ns=activity.start_ns + by_ns, end_ns=activity.end_ns + by_ns
        )
    return sample._replace(details=details, activity=activity)
