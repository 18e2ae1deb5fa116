"""Specification of counting pauses: what a blip is, and that it splits none."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.time.ledger import GpuLedger
from gpumon.core.time.totals import GpuTotals
from tests.builders_cycles import cycles, on_and_off
from tests.builders_time import every, rhythm, s, settled

WORK, LONG = [1.0] * 30, [0.0] * 25


def counted(*stretches: list[float]) -> GpuTotals:
    return settled(every(1.0, [level for stretch in stretches for level in stretch]))


class TestABlip:
    def test_splits_no_pause(self) -> None:
        totals = counted(WORK, LONG, WORK, LONG, [0.8], LONG, WORK)

        assert totals.pauses.count == 2
        assert totals.pauses.longest_ns == s(50.2)
        assert totals.pauses.total_ns == totals.gaps.total_ns

    def test_splits_it_in_the_histogram_and_in_the_stretches_shown(self) -> None:
        totals = counted(WORK, LONG, WORK, LONG, [0.8], LONG, WORK, LONG, WORK)

        assert totals.pauses.count == 3
        assert totals.gaps.count == len(totals.starved_intervals) == 4
        assert totals.gaps.longest_ns == s(25.2)

    def test_makes_no_pattern_of_two_pauses(self) -> None:
        assert counted(WORK, LONG, WORK, LONG, [0.8], LONG, WORK).suspected_ns == 0

    def test_may_come_again_and_again_in_one_pause(self) -> None:
        totals = counted(WORK, WORK, LONG, [1.0], LONG, WORK, LONG, [1.0], LONG, [1.0], LONG, WORK)

        assert totals.pauses.count == 2
        assert totals.pauses.longest_ns == s(75)

    def test_is_no_longer_than_a_sample(self) -> None:
        assert counted(WORK, LONG, [1.0, 1.0], LONG, WORK).pauses.count == 2

    def test_has_long_pauses_on_both_sides(self) -> None:
        short = [0.0] * 9

        assert counted(WORK, short, [1.0], LONG, WORK).pauses.count == 2
        assert counted(WORK, LONG, [1.0], short, WORK).pauses.count == 2
        assert counted(WORK, LONG, [1.0], [0.0] * 10, WORK).pauses.count == 1

    def test_is_a_burst_where_bursts_are_short(self) -> None:
        assert counted(rhythm(1, 12, 40), [1.0]).pauses.count == 40
        assert counted(rhythm(4, 12, 20), [1.0], LONG, [1.0] * 4).pauses.count == 21

    def test_ceases_to_be_one_where_it_becomes_the_rule(self) -> None:
        totals = counted(WORK, *[[*LONG, 1.0]] * 40)

        assert totals.pauses.count >= 38

    def test_is_of_its_own_job_alone(self) -> None:
        gone = [0.0] * 300

        totals = counted(WORK, LONG, WORK, gone, rhythm(1, 12, 10), [1.0])

        assert totals.pauses.count == 1 + 10


class TestAPauseWithASilenceInIt:
    def test_is_shown_as_a_stretch_before_and_one_after(self) -> None:
        ledger = GpuLedger()
        for cycle in range(12):
            at_s = 6.0 * cycle  # of which nobody knows the fourth second
            ledger.observe(every(1.0, [1.0, 1.0, 0.0], at_s) + every(1.0, [0.0, 0.0], at_s + 4))
        ledger.observe(every(1.0, [1.0], 72.0))

        totals = ledger.snapshot()

        assert totals.gaps.count == 12
        assert [(one.start_ns, one.end_ns) for one in totals.starved_intervals[:4]] == [
            (s(2), s(3)), (s(4), s(6)), (s(8), s(9)), (s(10), s(12)),
        ]  # fmt: skip


class TestPausesAsCounted:
    @given(
        st.lists(st.sampled_from([1, 4, 5, 30]), min_size=2, max_size=12),
        st.lists(st.sampled_from([1, 9, 10, 25]), min_size=12, max_size=12),
        st.integers(1, 40),
    )
    def test_are_the_same_in_whatever_batches_samples_come(
        self, bursts: list[int], pauses: list[int], size: int
    ) -> None:
        ratios = on_and_off(list(zip(bursts, pauses, strict=False)))
        samples = every(1.0, ratios)
        ledger = GpuLedger()
        for first in range(0, len(samples), size):
            ledger.observe(samples[first : first + size])
        ledger.end_job()

        assert ledger.snapshot().pauses == settled(samples).pauses

    @given(cycles())
    def test_are_never_more_than_the_gaps_and_hold_the_same_time(
        self, some: list[tuple[int, int]]
    ) -> None:
        totals = settled(every(1.0, on_and_off(some)))

        assert totals.pauses.count <= totals.gaps.count
        assert totals.pauses.total_ns == totals.gaps.total_ns
        assert totals.pauses.longest_ns >= totals.gaps.longest_ns
