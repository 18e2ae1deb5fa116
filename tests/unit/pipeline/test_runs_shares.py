"""A run's shares, and how busy each GPU is in its steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpumon.core.phase import TrainingPhase
from gpumon.core.ring_format.events import RingEvent, RingKind, RingReading, RingRecords, RunFacts
from gpumon.core.sample import Device, Frame, GpuSample
from gpumon.core.state import RunState
from gpumon.pipeline.run_steps import StepBalance
from gpumon.sources.ring_reader.phase_rings import PhaseRingReader
from tests.builders.monitor import monitor, reading, ring_reading
from tests.builders.ring import BOOT_ID, WrittenRing, held_by_a_process, now, run_facts
from tests.builders.time import s
from trainer_hooks.ring.process_ring import ProcessRing

FACTS = RunFacts(run="a", job="a", pid=1, boot_id="", started_ns=0)


def reported(*, changes: int, at_s: float | None = None, mark: int | None = None) -> RingReading:
    """The reading of a ring at 10 s, with a mark at some time."""
    mark = changes if mark is None else mark
    event = RingEvent(RingKind.EVENT, s(at_s or 0), TrainingPhase.TRAIN_STEP, mark)
    facts = replace(FACTS, shares={"0": 1.0}, ratio_changes=changes)
    events = RingRecords.of([] if at_s is None else [event])
    return ring_reading(facts, read_at_ns=s(10), events=events)


@pytest.fixture
def balance() -> StepBalance:
    return StepBalance()


class TestTheBusyPartOfSteps:
    def test_adds_up_the_windows_of_each_gpu(self, balance: StepBalance) -> None:
        balance.add("GPU-1", s(1), s(1), s(1))
        balance.add("GPU-2", s(1), s(0.9), s(0.5))  # less than a second is no figure
        balance.add("GPU-0", s(1), s(1), s(0.5))
        balance.add("GPU-0", s(2), s(3), s(0.5))

        assert balance.busy_ratios == {"GPU-0": 0.25, "GPU-1": 1.0}
        assert list(balance.busy_ratios) == ["GPU-0", "GPU-1"]


class TestAChange:
    @pytest.mark.parametrize(
        ("reading", "counts_from_s"),
        [
            (reported(changes=1, at_s=7), 7),
            (reported(changes=1), 10),
            (reported(changes=1, at_s=7, mark=5), 10),  # a mark of something else
        ],
        ids=["marked", "unmarked", "another mark"],
    )
    def test_leaves_out_windows_from_before_it(
        self, balance: StepBalance, reading: RingReading, counts_from_s: int
    ) -> None:
        balance.update(reported(changes=0))
        balance.add("GPU-0", s(20), s(5), s(5))
        balance.update(reading)
        balance.add("GPU-0", s(counts_from_s) - 1, s(5), s(5))
        balance.add("GPU-0", s(counts_from_s), s(5), s(1))

        assert balance.busy_ratios == {"GPU-0": 0.2}

    def test_is_none_where_the_ring_repeats_it(self, balance: StepBalance) -> None:
        balance.update(reported(changes=2))
        balance.add("GPU-0", s(20), s(5), s(5))
        balance.update(reported(changes=2, at_s=9))

        assert balance.busy_ratios == {"GPU-0": 1.0}


class TestSharesOfARun:
    def test_are_shown_by_uuid_and_follow_each_change(self, tmp_path: Path) -> None:
        ring = WrittenRing(tmp_path, replace(run_facts(), gpus=("0", "1")))
        reader = PhaseRingReader([tmp_path], boot_id=BOOT_ID)
        daemon, training = monitor(simulated=True), ProcessRing(ring.writer)

        def run_now() -> RunState:
            gpus = tuple(GpuSample(device=Device(uuid=f"GPU-{at}", index=at)) for at in (0, 1))
            frame = Frame(taken_at_ns=now(), gpus=gpus)
            (run,) = daemon.ingest(reading(now(), frame, rings=reader.read(now()))).runs
            return run

        with held_by_a_process(ring.path):
            assert (run_now().shares, run_now().ratio_changes) == ({}, 0)
            training.report_shares({"0": 0.5, "1": 0.5})
            assert (run_now().shares, run_now().ratio_changes) == ({"GPU-0": 0.5, "GPU-1": 0.5}, 0)
            training.report_shares({"0": 0.6, "GPU-1": 0.4})
            assert (run_now().shares, run_now().ratio_changes) == ({"GPU-0": 0.6, "GPU-1": 0.4}, 1)
        reader.close()
