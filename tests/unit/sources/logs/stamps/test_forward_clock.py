"""Specification of a log whose clock was put back, forward, or set."""

from __future__ import annotations

from itertools import pairwise

from tests.builders_order import HOUR, TEN, UTC, every_second, seconds, settled


class TestTheEndOfSummerTime:
    LOG = (*every_second(TEN, 1_000), *every_second(TEN + 1_000 - HOUR, 5_000))

    def test_loses_no_row_of_a_local_clock(self) -> None:
        assert settled(self.LOG) == (
            every_second(TEN, 6_000),
            ("The clock was put back by 1 h (summer time) and the rows kept their pace: read on "
             "as if it had not been.",),
        )  # fmt: skip

    def test_may_be_half_an_hour(self) -> None:
        log = [*every_second(TEN, 3_000), *every_second(TEN + 3_000 - 1_800, 3_000)]

        assert settled(log)[0] == every_second(TEN, 6_000)

    def test_turns_every_gpu_of_the_log(self) -> None:
        kept, notes = settled([one._replace(gpu=gpu) for one in self.LOG for gpu in (0, 1)])

        assert (len(kept), len(notes)) == (12_000, 1)

    def test_cannot_be_met_by_a_clock_with_a_zone(self) -> None:
        kept, notes = settled(self.LOG, UTC)

        assert not any("summer" in note for note in notes)
        assert len(kept) == len(set(seconds(kept)))


class TestTheBeginOfSummerTime:
    LOG = (*every_second(TEN - 999.5, 1_000), *every_second(TEN + HOUR + 0.5, 5_000))

    def test_is_no_hole(self) -> None:
        kept, (note,) = settled(self.LOG)

        assert kept == every_second(TEN - 999.5, 6_000)
        assert "put forward by 1 h" in note

    def test_is_a_hole_to_a_clock_with_a_zone(self) -> None:
        assert settled(self.LOG, UTC) == ([*self.LOG], ())

    def test_needs_rows_that_keep_their_pace(self) -> None:
        log = [*every_second(TEN - 999.5, 1_000), *every_second(TEN + HOUR + 20, 5_000)]

        assert settled(log)[0] == log

    def test_needs_the_full_hour(self) -> None:
        log = [*every_second(TEN + 10.5, 1_000), *every_second(TEN + 1_010.5 + HOUR, 5_000)]

        assert settled(log)[0] == log


class TestAClockThatIsSetBack:
    def test_by_a_minute_or_two_loses_no_row(self) -> None:
        log = [*every_second(TEN, 1_000), *every_second(TEN + 880, 1_000)]

        assert settled(log, UTC) == (
            every_second(TEN, 2_000),
            ("The clock was set back by 2 min: read on as if it had not been.",),
        )

    def test_to_before_the_log_loses_no_row(self) -> None:
        kept, notes = settled([*every_second(TEN, 500), *every_second(TEN - HOUR * 5, 500)])

        assert kept == every_second(TEN, 1_000)
        assert "before its first row" in notes[0]

    def test_and_comes_to_time_that_was_told_counts_it_once(self) -> None:
        log = [*every_second(TEN, 500), *every_second(TEN - 1_000, 2_000)]

        assert settled(log, UTC)[0] == every_second(TEN, 2_000)

    def test_when_files_were_put_together_in_the_wrong_order_keeps_the_hole_between_them(
        self,
    ) -> None:
        first, second, third = (every_second(TEN + HOUR * n, 100) for n in range(3))

        kept, _ = settled([*second, *first, *third], UTC)

        assert len(kept) == 300
        assert sorted(b - a for a, b in pairwise(seconds(kept)))[-2:] == [1.0, HOUR - 99]
