"""Each tick of this machine, and its rings after it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpumon.core.clock import NS_PER_S
from gpumon.core.codecs.recording_codec import RecordingHeader
from gpumon.core.phase import PHASE_NUMBER, TrainingPhase
from gpumon.core.ring_format.events import KEEP_ENDED_NS
from gpumon.errors import SourceUnavailableError
from gpumon.outlets.recording import RecordingWriter
from gpumon.pipeline.monitor import Monitor, MonitorFacts
from gpumon.pipeline.past_reports import Reports
from gpumon.pipeline.replay import replayed_report
from gpumon.pipeline.watch import MachineWatch
from gpumon.sources.gpu_source import GpuSource
from gpumon.sources.recording import RecordingFile
from gpumon.sources.ring_reader.phase_rings import PhaseRingReader, leave_alone
from gpumon.sources.simulated import SimulatedSource
from gpumon.sources.system_clock import SystemClock
from tests.builders.ring import BOOT_ID, WrittenRing, held_by_a_process, now, run_facts

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


def flat() -> GpuSource:
    return SimulatedSource("flat", SystemClock())


def no_driver() -> GpuSource:
    raise SourceUnavailableError("no libnvidia-ml.so.1")


def rings_of(folder: Path) -> PhaseRingReader:
    return PhaseRingReader([folder], boot_id=BOOT_ID)


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[MachineWatch]:
    watch = MachineWatch(flat, rings_of(tmp_path), FACTS, SystemClock())
    yield watch
    watch.close()


class TestAWatchOnTheMachine:
    def test_reads_the_rings_after_the_source(self, tmp_path: Path, watch: MachineWatch) -> None:
        WrittenRing(tmp_path)

        reading = watch.next_reading()

        (ring,) = reading.rings.rings
        assert reading.tick.frames[0].taken_at_ns < ring.read_at_ns

    def test_requires_a_source(self, tmp_path: Path) -> None:
        watch = MachineWatch(no_driver, rings_of(tmp_path), FACTS, SystemClock())

        with pytest.raises(SourceUnavailableError, match="libnvidia"):
            watch.require_source()
        watch.close()

    def test_has_the_newest_counts_of_living_runs(
        self, tmp_path: Path, watch: MachineWatch
    ) -> None:
        ring = WrittenRing(tmp_path)
        with held_by_a_process(ring.path) as pid:
            watch.next_reading()
            ring.writer.step(steps=3)
            assert watch.newest_counts()[pid].steps == 3


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
