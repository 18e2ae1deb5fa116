"""Tests of the time that each entry of a GPU's utilisation ring covers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.clock import NS_PER_S
from gpumon.core.sample import BusySample
from gpumon.sources.nvml.busy import BusyTrack
from gpumon.sources.nvml.stamp_clock import Entry
from tests.builders.driver import busy_ns, holes_ns, total_ns
from tests.builders.nvml import MS, Refusals

STEP_US = 166_667
STEP_NS = STEP_US * 1000
START_US = 100_000_000_000
NOW_NS = START_US * 1000


def stamped(*percents: float, after_us: int = START_US, step_us: int = STEP_US) -> list[Entry]:
    """Entries a step apart, the first one step after ``after_us``."""
    return [(after_us + number * step_us, percent) for number, percent in enumerate(percents, 1)]


def started(
    refuse: Callable[[], None] | None = None, *, step_us: int = STEP_US, entries: int = 20
) -> BusyTrack:
    """A track that was started with a ring that ends now."""
    track = BusyTrack(refuse or Refusals())
    track.start(
        stamped(*[50] * entries, after_us=START_US - entries * step_us, step_us=step_us), 0, NOW_NS
    )
    return track


def ingest(track: BusyTrack, entries: list[Entry], offset_ns: int = 0) -> list[BusySample]:
    """Ingest a drain that ended just after the newest entry."""
    now_ns = max([stamp_us for stamp_us, _ in entries], default=START_US) * 1000 - offset_ns + MS
    return track.ingest(entries, offset_ns, now_ns)


class TestTheFirstReading:
    def test_observes_nothing_but_has_the_latest_value(self) -> None:
        track = BusyTrack(Refusals())
        track.start(stamped(10, 20, 30), 0, NOW_NS + 600 * MS)

        assert track.position_us == START_US + 3 * STEP_US
        assert track.percent == 30

    def test_starts_within_a_window(self) -> None:
        track = BusyTrack(Refusals())
        track.start(stamped(50, 50), 0, (START_US + 2 * STEP_US) * 1000 + 100 * MS)

        (sample,) = ingest(track, stamped(80, after_us=START_US + 2 * STEP_US))

        assert sample.start_ns == (START_US + 2 * STEP_US) * 1000 + 100 * MS
        assert sample.end_ns == (START_US + 3 * STEP_US) * 1000


class TestALaterStart:
    def test_reports_no_time_twice(self) -> None:
        track = started()
        (first,) = ingest(track, stamped(80))

        track.start([], 0, NOW_NS)
        (again,) = ingest(track, stamped(80, step_us=STEP_US + 50_000))

        assert again.start_ns == first.end_ns


class TestASample:
    @pytest.mark.parametrize(
        ("after_us", "covered_ns"),
        [
            pytest.param(2 * STEP_US, 2 * STEP_NS, id="late: the time since the last"),
            pytest.param(60_000_000, STEP_NS, id="after a stop: its own window"),
        ],
    )
    def test_that_is_late_covers(self, after_us: int, covered_ns: int) -> None:
        (sample,) = ingest(started(), [(START_US + after_us, 40)])

        assert total_ns([sample]) == covered_ns

    def test_that_is_known_is_skipped(self, refused: Refusals) -> None:
        track = started(refused)
        seen = ingest(track, stamped(10, 20))

        again = ingest(track, stamped(10, 20, 30))

        assert len(seen) == 2
        assert [sample.busy_ratio for sample in again] == [0.3]
        assert refused.count == 0


class TestAnImpossibleValue:
    @pytest.mark.parametrize("value", [101, 255, -1, float("nan"), float("inf")])
    def test_is_counted_and_its_window_stays_unobserved(
        self, refused: Refusals, value: float
    ) -> None:
        track = started(refused)

        samples = ingest(track, stamped(100, value, 50))

        assert refused.count == 1
        assert [sample.busy_ratio for sample in samples] == [1.0, 0.5]
        assert total_ns(samples) == 2 * STEP_NS
        assert holes_ns(samples) == [STEP_NS]
        ingest(track, stamped(70, value, after_us=START_US + 3 * STEP_US))
        assert track.percent == 70


class TestAStamp:
    def test_that_runs_back_is_counted_and_ignored(self, refused: Refusals) -> None:
        track = started(refused)
        entries = [
            *stamped(100, 100),
            (START_US + STEP_US // 2, 0),
            *stamped(50, after_us=START_US + 2 * STEP_US),
        ]

        samples = ingest(track, entries)

        assert refused.count == 1
        assert [sample.busy_ratio for sample in samples] == [1.0, 1.0, 0.5]

    def test_from_the_future_is_counted_and_does_not_move_the_position(
        self, refused: Refusals
    ) -> None:
        track = started(refused)

        assert track.ingest([(START_US + 3_600_000_000, 100)], 0, NOW_NS) == []
        assert refused.count == 1
        assert track.position_us == START_US


class TestTheCadence:
    def test_is_learnt_from_the_first_gap_of_an_empty_ring(self) -> None:
        track = BusyTrack(Refusals())
        track.start((), 0, NOW_NS)
        ingest(track, [(START_US + 200_000, 30)])

        samples = ingest(track, stamped(30, 30, after_us=START_US + 200_000, step_us=1_000_000))

        assert total_ns(samples) == 2 * NS_PER_S

    def test_follows_a_board_that_samples_less_while_idle(self) -> None:
        samples = ingest(started(), stamped(*[0] * 10, step_us=1_000_000))

        assert busy_ns(samples) == 0
        assert total_ns(samples) >= 9 * NS_PER_S

    def test_ignores_omitted_idle_windows(self) -> None:
        # 1/6 s of work in every second, and no entry for the other five sixths.
        samples = ingest(started(), stamped(*[100] * 10, step_us=1_000_000))

        assert busy_ns(samples) == pytest.approx(10 * STEP_NS, rel=0.01)

    def test_ignores_two_nearly_equal_stamps(self) -> None:
        track = started()
        ingest(track, [(START_US + STEP_US, 50), (START_US + STEP_US + 1, 50)])

        samples = ingest(track, stamped(50, 50, after_us=START_US + STEP_US + 1))

        assert total_ns(samples) == 2 * STEP_NS


def reach_ns(track: BusyTrack, newest_us: int) -> int:
    """How long after its newest stamp a ring is not yet dry: 2.5 times the usual distance."""
    silences_ns = range(NS_PER_S // 2)
    return bisect_left(silences_ns, True, key=lambda ns: track.is_dry(newest_us * 1000 + ns)) - 1


class TestADistanceOfTwoStamps:
    """Two drains with one entry each have the effect of one drain with both."""

    @pytest.mark.parametrize("gap_us", [50_000, STEP_US * 2 // 5])
    def test_that_is_much_shorter_counts_after_two_drains(self, gap_us: int) -> None:
        track = started()
        ingest(track, [(START_US + gap_us, 50)])
        before_ns = reach_ns(track, START_US + gap_us)

        ingest(track, [(START_US + 2 * gap_us, 50)])

        after_ns = reach_ns(track, START_US + 2 * gap_us)
        assert (before_ns, after_ns) == (STEP_US * 2500, gap_us * 2500)

    def test_that_is_shorter_by_three_fifths_at_most_counts_an_eighth_at_once(self) -> None:
        track, gap_us = started(), STEP_US * 2 // 5 + 1

        ingest(track, [(START_US + gap_us, 50)])

        learnt_ns = STEP_NS - (STEP_US - gap_us) * 125
        assert reach_ns(track, START_US + gap_us) == learnt_ns * 5 // 2

    def test_that_is_longer_counts_after_two_idle_drains(self) -> None:
        track = started()
        first = ingest(track, [(START_US + 1_000_000, 0)])

        second = ingest(track, [(START_US + 2_000_000, 0)])

        assert (total_ns(first), total_ns(second)) == (STEP_NS, NS_PER_S)


class TestAReadingWithoutAStamp:
    def test_covers_its_time_before_late_entries(self) -> None:
        track = started()
        covered = track.cover(0, 0, NOW_NS + 1000 * MS)

        late = ingest(track, stamped(*[100] * 7))

        assert late[0].start_ns >= covered[-1].end_ns
        assert total_ns(covered + late) == 7 * STEP_NS


entries_of_any_kind = st.lists(
    st.tuples(
        st.integers(START_US - 10_000_000, START_US + 20_000_000),
        st.one_of(st.integers(0, 100), st.floats(), st.integers(-5, 300)),
    ),
    max_size=30,
)
drains = st.lists(st.one_of(entries_of_any_kind, st.floats(0.0, 150.0)), min_size=1, max_size=6)


class TestLaws:
    @given(drains)
    def test_samples_are_ordered_disjoint_and_valid(self, story: list[list[Entry] | float]) -> None:
        track = started()
        samples: list[BusySample] = []
        for number, part in enumerate(story, 1):
            now_ns = NOW_NS + number * 3 * NS_PER_S
            if isinstance(part, float):
                samples += track.cover(part, 0, now_ns)
            else:
                samples += track.ingest(part, 0, now_ns)

        assert all(early.end_ns <= late.start_ns for early, late in pairwise(samples))
        assert all(sample.start_ns < sample.end_ns for sample in samples)
        assert all(0.0 <= sample.busy_ratio <= 1.0 for sample in samples)

    @given(st.lists(st.integers(0, 100), min_size=1, max_size=60), st.integers(1, 7))
    def test_the_number_of_drains_does_not_matter(self, percents: list[int], at_once: int) -> None:
        entries = stamped(*percents)
        whole = ingest(started(), entries)
        track = started()

        parts = [
            sample
            for first in range(0, len(entries), at_once)
            for sample in ingest(track, entries[first : first + at_once])
        ]

        assert parts == whole
