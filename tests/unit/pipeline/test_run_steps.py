"""How long the steps of a run take, how busy its GPUs are in them, and its shares."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from gpumon.core.accounting.histograms import WARM_UP_STEPS, LengthHistogram
from gpumon.core.phase import TrainingPhase
from gpumon.core.ring_format.events import RingEvent, RingKind, RingReading, RingRecords, RunFacts
from gpumon.core.sample import Device, Frame, GpuSample
from gpumon.core.state import RunState
from gpumon.pipeline.run_steps import StepBalance, StepPace
from gpumon.sources.ring_reader.phase_rings import PhaseRingReader
from tests.builders.monitor import monitor, reading, ring_reading
from tests.builders.ring import BOOT_ID, WrittenRing, held_by_a_process, now, only, run_facts
from tests.builders.time import s
from trainer_hooks.ring.process_ring import ProcessRing

MS = 1_000_000


def ends(*step_ms: float, first: int = 1, start_ms: float = 0.0) -> list[RingEvent]:
    """Records of steps that took so long, the first of them ending after ``start_ms``."""
    at_ms, events = start_ms, []
    for number, length_ms in enumerate(step_ms, start=first):
        at_ms += length_ms
        events.append(_record(RingKind.STEP, at_ms, number))
    return events


def _record(kind: RingKind, at_ms: float, value: int) -> RingEvent:
    return RingEvent(kind, round(at_ms * MS), TrainingPhase.TRAIN_STEP, value)


def median_ms(*readings: Sequence[RingEvent]) -> float | None:
    pace = StepPace()
    for events in readings:
        pace.ingest(RingRecords.of(events))
    return None if pace.median_ns is None else pace.median_ns / MS


def about(step_ms: float) -> object:
    return pytest.approx(step_ms, rel=0.012)


class TestTheTimeOfAStep:
    @pytest.mark.parametrize(
        ("readings", "step_ms"),
        [
            ([ends(9_000, 4_000, 3_000, *[20.0] * 5, start_ms=60_000)], 20),
            ([ends(*([20.0] * 9 + [900.0]) * 8)], 20),
            ([ends(1, 1, 1, *[10.0, 20.0, 40.0] * 20)], 20),
            ([[_record(RingKind.STEP, 160.0 * call, 8 * call) for call in range(1, 10)]], 20),
            ([one for event in ends(*[2_500.0] * 6) for one in ([], [event], [])], 2_500),
            ([ends(*[20.0] * 40), ends(*[35.0] * 400, first=41)], 35),
        ],
        ids=["without the first and the warm-up", "without a checkpoint here and there",
             "the middle one", "of several in one call", "of one in several readings", "the new"],
    )  # fmt: skip
    def test_is(self, readings: list[list[RingEvent]], step_ms: float) -> None:
        assert median_ms(*readings) == about(step_ms)

    def test_is_known_from_one_step_after_the_warm_up_on(self) -> None:
        warm = [9_000.0] * WARM_UP_STEPS

        assert median_ms([]) is None
        assert median_ms(ends(*warm)) is None
        assert median_ms(ends(*warm, 20.0)) == about(20)

    def test_leaves_out_what_lies_between_two_epochs(self) -> None:
        events: list[RingEvent] = []
        for epoch in range(12):
            begin_ms = 10_000.0 * epoch
            events.append(_record(RingKind.EPOCH, begin_ms, epoch))
            events += ends(500, 20, first=2 * epoch + 1, start_ms=begin_ms)

        assert median_ms(events) == about(20)
        assert median_ms(*([event] for event in events)) == about(20)
        last_and_end = [events[at : at + 2] for at in range(2, len(events) - 1, 3)]
        assert median_ms(*last_and_end) is None

    def test_is_unknown_where_the_records_make_no_sense(self) -> None:
        back = [_record(RingKind.STEP, 90.0 - number, 2**60 - number) for number in range(9)]

        assert median_ms(back, ends(5), ends(5)) is None


def marks(*step_ms: float, first: int = 1, start_ms: float = 0.0) -> list[RingEvent]:
    """The same of steps that the device itself reports."""
    steps = ends(*step_ms, first=first, start_ms=start_ms)
    return [step._replace(kind=RingKind.DEVICE_DONE) for step in steps]


class TestTheTimeOfAStepThatTheDeviceReports:
    """A host that runs ahead counts thirty steps in a few milliseconds, and then waits for them."""

    def test_is_from_end_to_end_on_the_device(self) -> None:
        handed_over, done = ends(*[0.3] * 40), marks(*[30.0] * 40)

        assert median_ms(handed_over, done) == about(30)
        assert median_ms(handed_over, marks(30)) is None  # what the host counted is forgotten
        assert median_ms(sorted([*handed_over, *done], key=lambda one: one.at_ns)) == about(30)

    def test_leaves_out_what_lies_between_epochs_where_the_last_of_one_is_reported_late(
        self,
    ) -> None:
        events: list[RingEvent] = []
        for epoch in range(12):
            begin_ms = 10_000.0 * epoch
            done = marks(500, 20, 20, first=3 * epoch + 1, start_ms=begin_ms)
            events += [_record(RingKind.EPOCH, begin_ms, epoch), *done]
        # A thread reports the epoch's last step after the next epoch has begun.
        for at in range(4, len(events), 4):
            events[at - 1], events[at] = events[at], events[at - 1]

        assert median_ms(events) == about(20)
        assert median_ms(*([event] for event in events)) == about(20)


class TestTheSamples:
    def test_are_few_however_many_records_there_are(self, monkeypatch: pytest.MonkeyPatch) -> None:
        lengths = LengthHistogram.add
        sampled: list[int] = []

        def noted(histogram: LengthHistogram, lengths_ns: Sequence[int], each: int = 1) -> None:
            sampled.append(each)
            lengths(histogram, lengths_ns, each)

        many = RingRecords.of(ends(*[1.0] * 20_000, first=2711, start_ms=2710))
        pace = StepPace()
        pace.ingest(RingRecords.of(ends(*[1.0] * 10)))
        for at in (10, 910, 1810):
            pace.ingest(RingRecords.of(ends(*[1.0] * 900, first=at + 1, start_ms=at)))
        monkeypatch.setattr(LengthHistogram, "add", noted)

        pace.ingest(many)

        assert 0 < len(sampled) < 20
        assert sum(sampled) >= 19_000
        assert pace.median_ns == about(MS)


@pytest.mark.measured
def test_what_a_real_ring_reports_is_what_the_steps_took(tmp_path: Path) -> None:
    ring = WrittenRing(tmp_path)
    pace, ended_ns = StepPace(), []
    reader = PhaseRingReader((str(tmp_path),), boot_id=BOOT_ID)
    time.sleep(0.15)  # a start-up as long as many steps
    for number in range(40):
        time.sleep(0.004)
        ring.writer.step()
        ended_ns.append(time.monotonic_ns())
        if number % 10 == 9:
            time.sleep(0.05)  # and pauses that are no step's
    # At once: who looks from the process that holds a ring finds its lock free, and so its end.
    pace.ingest(only(reader.read(time.monotonic_ns())).events)
    reader.close()

    took_ns = [after - before for before, after in pairwise(ended_ns[WARM_UP_STEPS - 1 :])]
    assert pace.median_ns == pytest.approx(median(took_ns), rel=0.1)


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
