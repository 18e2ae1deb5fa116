"""Specification of counting pauses: what a blip is, and that it splits none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.time.ledger import GpuLedger
from gpumon.core.time.totals import GpuTotals
from tests.builders_cycles import cycles, on_and_off
from tests.builders_time import every, rhythm, s, settled

WORK, LONG = [1.0] * 30, [0.0] * 25


def counted(*stretches: list[float]) -> GpuTotals:
    return settled(every(1.0, [level for stretch in stretches for level in stretch]))


BLIPS: dict[str, tuple[list[list[float]], int]] = {
    "splits no pause": ([WORK, LONG, WORK, LONG, [0.8], LONG, WORK], 2),
    "may come again and again in one": (
        [WORK, WORK, LONG, [1.0], LONG, WORK, LONG, [1.0], LONG, [1.0], LONG, WORK], 2,
    ),
    "is no longer than a sample": ([WORK, LONG, [1.0, 1.0], LONG, WORK], 2),
    "has a long pause before it": ([WORK, [0.0] * 9, [1.0], LONG, WORK], 2),
    "has a long pause behind it": ([WORK, LONG, [1.0], [0.0] * 9, WORK], 2),
    "needs no longer one": ([WORK, LONG, [1.0], [0.0] * 10, WORK], 1),
    "is a burst where all are short": ([rhythm(1, 12, 40), [1.0]], 40),
    "is a burst where most are short": ([rhythm(4, 12, 20), [1.0], LONG, [1.0] * 4], 21),
    "is of its own job alone": ([WORK, LONG, WORK, [0.0] * 300, rhythm(1, 12, 10), [1.0]], 1 + 10),
}  # fmt: skip
"""Stretches, and the pauses between their bursts."""


class TestABlip:
    @pytest.mark.parametrize("what", BLIPS)
    def test(self, what: str) -> None:
        stretches, pauses = BLIPS[what]

        assert counted(*stretches).pauses.count == pauses

    def test_leaves_all_time_to_the_pause_around_it_and_makes_no_pattern_of_two(self) -> None:
        totals = counted(WORK, LONG, WORK, LONG, [0.8], LONG, WORK)

        assert totals.pauses.longest_ns == s(50.2)
        assert totals.pauses.total_ns == totals.gaps.total_ns
        assert totals.suspected_ns == 0

    def test_splits_it_in_the_histogram_and_in_the_stretches_shown(self) -> None:
        totals = counted(WORK, LONG, WORK, LONG, [0.8], LONG, WORK, LONG, WORK)

        assert totals.pauses.count == 3
        assert totals.gaps.count == len(totals.starved_intervals) == 4
        assert totals.gaps.longest_ns == s(25.2)

    def test_in_each_of_two_pauses_leaves_the_longest_its_length(self) -> None:
        stretches, _ = BLIPS["may come again and again in one"]

        assert counted(*stretches).pauses.longest_ns == s(75)

    def test_ceases_to_be_one_where_it_becomes_the_rule(self) -> None:
        assert counted(WORK, *[[*LONG, 1.0]] * 40).pauses.count >= 38


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
