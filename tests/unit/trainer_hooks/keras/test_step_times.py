"""Step times: a median that is near enough, and the ends of its steps."""

from __future__ import annotations

import statistics
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.accounting.histograms import WARM_UP_STEPS
from gpumon.core.phase import TrainingPhase
from gpumon.core.ring_format.events import RingEvent, RingKind, RingRecords
from gpumon.pipeline.run_steps import StepPace
from tests.builders.ring import WrittenRing
from tests.ring_contents import records_in
from trainer_hooks.keras.fit_figures import StepEnds, StepTimes

MS = 1_000_000
steps = st.lists(st.integers(1_000, 10**12), min_size=WARM_UP_STEPS + 1, max_size=300)


def times_of(*durations_ns: int, at_once: int = 1) -> StepTimes:
    times = StepTimes()
    times.begin_epoch(0)
    step, at_ns = 0, 1
    for duration_ns in durations_ns:
        step, at_ns = step + at_once, at_ns + duration_ns
        times.done(step, at_ns)
    return times


class TestTheMedian:
    @given(steps)
    def test_is_within_a_percent_of_a_real_one(self, durations_ns: list[int]) -> None:
        counted = sorted(durations_ns[WARM_UP_STEPS:])

        recorded = times_of(*durations_ns).median_ns

        assert recorded is not None
        low, high = statistics.median_low(counted), statistics.median_high(counted)
        assert 0.99 * low <= recorded <= 1.01 * high

    def test_leaves_the_slow_first_steps_out(self) -> None:
        times = times_of(9_000 * MS, 900 * MS, 90 * MS, 30 * MS, 30 * MS)

        assert times.median_ns == pytest.approx(30 * MS, rel=0.01)
        assert (times.left_out, times.counted, times.counted_ns) == (3, 2, 60 * MS)

    def test_is_of_single_steps_where_several_are_one_execution(self) -> None:
        times = times_of(900 * MS, 40 * MS, 40 * MS, at_once=10)

        assert times.median_ns == pytest.approx(4 * MS, rel=0.01)
        assert (times.left_out, times.counted) == (10, 20)

    @given(st.lists(st.lists(st.integers(1_000, 10**12), max_size=30), max_size=20))
    def test_is_the_one_that_the_daemon_reports(self, epochs: list[list[int]]) -> None:
        times, records, step, at_ns = StepTimes(), list[RingEvent](), 0, 0
        for epoch, durations_ns in enumerate(epochs):
            at_ns += 10**9
            records.append(RingEvent(RingKind.EPOCH, at_ns, TrainingPhase.CALLBACKS, epoch))
            times.begin_epoch(step)
            for duration_ns in durations_ns:
                step, at_ns = step + 1, at_ns + duration_ns
                times.done(step, at_ns)
                records.append(
                    RingEvent(RingKind.DEVICE_DONE, at_ns, TrainingPhase.TRAIN_STEP, step)
                )
        pace = StepPace()
        pace.ingest(RingRecords.of(records[:50]))
        for record in records[50:]:
            pace.ingest(RingRecords.of([record]))

        reported, counted = pace.median_ns, times.median_ns
        assert (reported is None) == (counted is None)
        if len(records) <= 100:
            assert reported == (counted and round(counted))


class TestAnEndOfAStep:
    def test_duplicate_or_late_end_is_counted_once(self) -> None:
        times = times_of(*[30 * MS] * 10)
        times.done(10, 999 * MS)
        times.begin_epoch(10)
        times.done(9, 1_001 * MS)

        assert times.counted == 7

    def test_unobserved_end_is_shared_by_the_next(self) -> None:
        times = times_of(*[30 * MS] * 5)
        times.done(9, 1 + 9 * 30 * MS)

        assert times.median_ns == pytest.approx(30 * MS, rel=0.01)
        assert times.counted == 6

    def test_takes_no_more_memory_after_many_steps_than_after_some(self) -> None:
        def held_after(steps: int) -> int:
            tracemalloc.start()
            times = StepTimes()
            times.begin_epoch(0)
            for step in range(1, steps + 1):
                times.done(step, step * MS)
            held, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            return held

        assert held_after(40_000) <= held_after(4_000) + 1_000


@pytest.fixture
def ring(tmp_path: Path) -> WrittenRing:
    return WrittenRing(tmp_path)


def done(ring: WrittenRing) -> list[tuple[int, int]]:
    records = records_in(ring.path.read_bytes())
    return [(e.value, e.at_ns) for e in records if e.kind is RingKind.DEVICE_DONE]


class TestResultsThatAreThere:
    def test_end_the_step_of_their_batch_in_its_epoch(self, ring: WrittenRing) -> None:
        ends = StepEnds(ring.writer, 1)
        ring.writer.step(10)
        ends.epoch_begins()
        ring.writer.step(3)

        for batch in range(3):
            ends.results_arrived(batch, 100 + batch)

        assert done(ring) == [(11, 100), (12, 101), (13, 102)]

    @pytest.mark.parametrize("batches", [(0, 4, 8), (3, 7, 9)], ids=["first", "last"])
    def test_end_all_steps_of_an_execution_whichever_of_its_batches_keras_names(
        self, ring: WrittenRing, batches: tuple[int, ...]
    ) -> None:
        ends = StepEnds(ring.writer, 4)
        ends.epoch_begins()
        ring.writer.step(10)  # two of four, and the last of two

        for batch in batches:
            ends.results_arrived(batch, 100)

        assert [step for step, _ in done(ring)] == [4, 8, 10]

    def test_are_late_news_where_the_device_records_itself(self, ring: WrittenRing) -> None:
        ends = StepEnds(ring.writer, 1)
        ends.epoch_begins()
        ring.writer.step(2)

        ends.device_finished(1, 90)
        ends.results_arrived(0, 100)
        ends.device_finished(2, 190)

        assert done(ring) == [(1, 90), (2, 190)]
