"""Each tick of this machine: on a fixed grid, with its rings read after the source."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from gpumon.core.clock import NS_PER_S
from gpumon.core.codecs.recording_codec import RecordingHeader
from gpumon.core.phase import PHASE_NUMBER, TrainingPhase
from gpumon.core.ring_format.events import KEEP_ENDED_NS
from gpumon.core.sample import Frame, Tick
from gpumon.errors import RestartNeededError, SourceUnavailableError, UsageError
from gpumon.outlets.recording import RecordingWriter
from gpumon.pipeline.monitor import Monitor, MonitorFacts
from gpumon.pipeline.replay import replayed_report
from gpumon.pipeline.report_builder import Reports
from gpumon.pipeline.watch import MachineWatch, next_deadline_ns
from gpumon.sources.gpu_source import GpuSource, ReadNow
from gpumon.sources.recording import RecordingFile
from gpumon.sources.ring_reader.phase_rings import PhaseRingReader, leave_alone
from gpumon.sources.simulated import SimulatedSource
from gpumon.sources.system_clock import SystemClock
from tests.builders.recording import facts
from tests.builders.ring import BOOT_ID, WrittenRing, held_by_a_process, now, run_facts
from tests.builders.time import HandClock, s

PERIOD_NS = NS_PER_S // 10
WAIT, STEP = (PHASE_NUMBER[p] for p in (TrainingPhase.INPUT_WAIT, TrainingPhase.TRAIN_STEP))


FACTS = MonitorFacts(
    source="simulated:flat",
    source_kind="simulated",
    simulated=True,
    period_ns=PERIOD_NS,
    boot_id=BOOT_ID,
    started_wall_time_s=1_700_000_000.0,
)


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[MachineWatch]:
    clock, rings = SystemClock(), PhaseRingReader([tmp_path], boot_id=BOOT_ID)
    watch = MachineWatch(lambda: SimulatedSource("flat", clock), rings, FACTS, clock)
    yield watch
    watch.close()


class TestAWatchOnTheMachine:
    def test_reads_the_rings_after_the_source(self, tmp_path: Path, watch: MachineWatch) -> None:
        WrittenRing(tmp_path)

        reading = watch.next_reading()

        (ring,) = reading.rings.rings
        assert reading.tick.frames[0].taken_at_ns < ring.read_at_ns

    def test_has_the_newest_counts_of_living_runs(
        self, tmp_path: Path, watch: MachineWatch
    ) -> None:
        ring = WrittenRing(tmp_path)
        with held_by_a_process(ring.path) as pid:
            watch.next_reading()
            ring.writer.step(steps=3)
            assert watch.newest_counts()[pid].steps == 3


class TestTheSource:
    def test_reads_all_samples_when_a_run_begins_or_ends_and_while_a_user_watches(
        self, tmp_path: Path
    ) -> None:
        asked: list[ReadNow] = []

        class Asked(SimulatedSource):
            def read(self, now: ReadNow = ReadNow.SAMPLES) -> Frame:
                asked.append(now)
                return super().read(now)

        clock, rings = SystemClock(), PhaseRingReader([tmp_path], boot_id=BOOT_ID)
        watch = MachineWatch(lambda: Asked("flat", clock), rings, FACTS, clock)

        def ticks(count: int) -> list[ReadNow]:
            asked.clear()
            for _ in range(count):
                watch.next_reading(ReadNow.NOTHING)
            return asked.copy()

        try:
            ticks(2)
            assert ticks(2) == [ReadNow.NOTHING] * 2
            ring = WrittenRing(tmp_path)
            with held_by_a_process(ring.path):
                assert ticks(3) == [ReadNow.NOTHING, ReadNow.SAMPLES, ReadNow.NOTHING]
            assert ReadNow.SAMPLES in ticks(3)
            (tmp_path / "phases" / f"{os.geteuid()}.watch").touch()
            assert ticks(3)[1:] == [ReadNow.SAMPLES] * 2
        finally:
            watch.close()


class TestARecordingOfARealRing:
    def test_gives_the_exact_live_report(self, tmp_path: Path, watch: MachineWatch) -> None:
        ring = WrittenRing(tmp_path, replace(run_facts(), gpus=("0",)))
        monitor, reports = Monitor(watch.facts), Reports()
        header = RecordingHeader(
            version="0.1.0", source=watch.facts.source, simulated=True, boot_id=BOOT_ID,
            started_wall_time_s=watch.facts.started_wall_time_s, started_ns=now(),
            period_ns=PERIOD_NS,
        )  # fmt: skip
        path = tmp_path / "training.gpumon"
        with held_by_a_process(ring.path), RecordingWriter(path) as writer:
            for _ in range(7):
                for phase in (WAIT, STEP) * 20:
                    ring.writer.enter(phase)
                ring.writer.step(samples=32)
                reading = watch.next_reading()
                writer.keep(reading, header)
                reports.follow(monitor.ingest(reading))

        with RecordingFile(path) as recording:
            replayed = replayed_report(recording).report

        live = reports.report()
        assert live is not None
        assert (live.runs[0].steps, len(live.gpus[0].totals.idle_ns) > 0) == (7, True)
        assert replace(replayed, source=live.source, replayed=False) == live


class TestARingThatEndedLongAgo:
    def test_is_left_to_the_daemon_by_other_readers(self, tmp_path: Path) -> None:
        ring = WrittenRing(tmp_path)
        reader = PhaseRingReader([tmp_path], boot_id=BOOT_ID, unlink=leave_alone)
        reader.read(now())

        assert reader.read(now() + KEEP_ENDED_NS).rings == ()
        assert ring.path.exists()
        assert reader.read(now() + KEEP_ENDED_NS).rejected == 0


class NotedClock(HandClock):
    """Moves only while a test sleeps; notes until when, in seconds from its start."""

    def __init__(self) -> None:
        super().__init__()
        self.began_ns, self.slept_until_s = self.now_ns, list[float]()

    def sleep_until_ns(self, deadline_ns: int) -> None:
        self.slept_until_s.append((deadline_ns - self.began_ns) / s(1))
        super().sleep_until_ns(deadline_ns)


class Sampling:
    """A source controlled by the test, sampled once a period.

    Attributes:
        does: What reading it does.
        make: Opens it.
    """

    def __init__(self, clock: HandClock | SystemClock, period_s: float = 1.0) -> None:
        self.clock, self.closed = clock, False
        self.does: Callable[[], object] = lambda: None
        self.make: Callable[[], GpuSource] = lambda: self
        rings = PhaseRingReader([], boot_id="")
        watched = replace(facts(), period_ns=s(period_s))
        self.watch = MachineWatch(lambda: self.make(), rings, watched, clock)

    def read(self, now: ReadNow = ReadNow.SAMPLES) -> Frame:
        self.does()
        return Frame(taken_at_ns=self.clock.monotonic_ns())

    def close(self) -> None:
        self.closed = True

    def ticks(self, count: int) -> list[Tick]:
        return [self.watch.next_reading().tick for _ in range(count)]


@pytest.fixture
def clock() -> NotedClock:
    return NotedClock()


@pytest.fixture
def sampling(clock: NotedClock) -> Iterator[Sampling]:
    one = Sampling(clock)
    yield one
    one.watch.close()


class TestTheGrid:
    @pytest.mark.parametrize(
        ("now", "expected"), [(10.0, 11), (10.2, 11), (11.0, 12), (13.7, 14), (9.0, 11)]
    )
    def test_the_next_deadline_is_on_it_and_in_the_future(self, now: float, expected: int) -> None:
        assert next_deadline_ns(s(10), s(now), s(1)) == s(expected)

    def test_does_not_drift_when_reads_take_time_and_measures_lateness(
        self, sampling: Sampling, clock: NotedClock
    ) -> None:
        sampling.does = lambda: clock.pass_seconds(0.25)

        ticks = sampling.ticks(5)

        assert clock.slept_until_s == [0, 1, 2, 3, 4]
        assert {tick.late_ns for tick in ticks} == {s(0.25)}
        assert ticks[0].duration_seconds == pytest.approx(0.25)

    def test_an_overrun_is_counted_and_not_caught_up(
        self, sampling: Sampling, clock: NotedClock
    ) -> None:
        sampling.ticks(1)
        clock.pass_seconds(4.5)

        late, after = sampling.ticks(2)

        assert (late.missed_count, after.missed_count) == (4, 0)
        assert clock.slept_until_s[1:] == [5, 6]


class TestAHangingCall:
    @pytest.mark.measured
    def test_costs_ticks_and_nothing_else_and_its_frame_is_not_lost(self) -> None:
        release, release_again = threading.Event(), threading.Event()
        sampling = Sampling(SystemClock(), period_s=0.05)
        (first,) = sampling.ticks(1)
        sampling.does = lambda: release.wait(10)
        began_s = time.monotonic()
        hanging = sampling.ticks(5)
        lasted_s = time.monotonic() - began_s
        threads = threading.active_count()
        release.set()
        back = sampling.ticks(5)
        sampling.does = lambda: release_again.wait(10)
        sampling.ticks(1)
        began_closing_s = time.monotonic()
        sampling.watch.close()
        closing_s = time.monotonic() - began_closing_s
        release_again.set()

        assert closing_s < 2.0
        assert len(first.frames) == 1
        assert all(tick.frames == () for tick in hanging)
        assert all("not answered" in (tick.error or "") for tick in hanging)
        assert lasted_s < 2.0
        assert sum(len(tick.frames) for tick in back) >= 5
        assert back[-1].error is None
        assert threading.active_count() <= threads


class TestASourceThatIsUsedWrongly:
    def test_ends_the_watch_with_that_error(self, sampling: Sampling) -> None:
        def refuse() -> object:
            raise UsageError("--drain-every 7: too long")

        sampling.does = refuse

        with pytest.raises(UsageError, match="too long"):
            sampling.watch.require_source()
        with pytest.raises(UsageError, match="too long"):
            sampling.watch.next_reading()


class TestASourceThatCannotBeRead:
    def test_is_required_and_an_error_in_each_tick_until_it_can(self, sampling: Sampling) -> None:
        tries = iter(range(10))

        def make() -> GpuSource:
            if next(tries) < 2:
                raise SourceUnavailableError("no driver")
            return sampling

        sampling.make = make
        with pytest.raises(SourceUnavailableError, match="no driver"):
            sampling.watch.require_source()
        ticks = sampling.ticks(6)

        assert [tick.error for tick in ticks[:3]] == ["no driver"] * 3
        assert ticks[-1].error is None
        assert ticks[-1].frames

    @pytest.mark.parametrize("trouble", [SourceUnavailableError("no driver"), OSError("a bug")])
    def test_is_tried_again_at_longer_and_longer_intervals(
        self, sampling: Sampling, clock: NotedClock, trouble: Exception
    ) -> None:
        tries: list[int] = []

        def make() -> GpuSource:
            tries.append(clock.now_ns)
            raise trouble

        sampling.make = make
        sampling.ticks(300)

        waits = [(after - before) / s(1) for before, after in pairwise(tries)]
        assert waits[:6] == [1, 2, 4, 8, 16, 32]
        assert set(waits[6:]) == {60}

    @pytest.mark.parametrize("fails", ["does", "make"])
    def test_by_this_process_any_more_asks_for_a_new_one(
        self, sampling: Sampling, fails: str
    ) -> None:
        trouble = RestartNeededError("start again")

        def fail() -> None:
            raise trouble

        setattr(sampling, fails, fail)

        with pytest.raises(RestartNeededError) as raised:
            sampling.ticks(1)
        assert raised.value is trouble

    def test_never_ends_the_thread_whatever_it_raises(self, sampling: Sampling) -> None:
        troubles = [RuntimeError("driver bug"), ValueError("another")]

        def does() -> None:
            if troubles:
                raise troubles.pop()

        sampling.does = does
        ticks = sampling.ticks(3)

        assert ticks[0].error == "ValueError: another"
        assert ticks[2].frames
        sampling.watch.close()
        assert sampling.closed
