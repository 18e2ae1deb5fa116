"""Specification of rows in order: whatever order and clock the file has, time rises and is kept."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.log_sample import LogSample
from gpumon.sources.logs.stamps.forward_clock import WINDOW_ROWS
from tests.builders_logs import analysed, only_gpu, rows, smi_log
from tests.builders_order import (
    HOUR,
    TEN,
    UTC,
    S,
    every_second,
    in_order,
    log_in_order,
    row,
    seconds,
    settled,
)

PUT_BACK = "Put 1 row that came late back in order."


class TestRowsThatRise:
    @pytest.mark.parametrize("gpus", [1, 3])
    def test_are_handed_on_as_they_are(self, gpus: int) -> None:
        log = [row(at, gpu=gpu) for at in range(10_000 // gpus) for gpu in range(gpus)]

        assert settled(log) == (log, ())

    def test_may_have_a_hole_after_which_they_go_on(self) -> None:
        log = [*every_second(TEN, 100), *every_second(TEN + 48 * HOUR, 100)]

        assert settled(log) == (log, ())


class TestALateRow:
    @pytest.mark.parametrize("written", [(1, 2, 4, 3, 5), (1, 2, 3, 5, 4)])
    def test_is_put_back_and_that_is_said(self, written: tuple[int, ...]) -> None:
        assert settled([row(at) for at in written]) == (every_second(1, 5), (PUT_BACK,))

    def test_may_be_in_a_block_of_late_rows(self) -> None:
        log = every_second(0, 300)
        late = [*log[:100], *log[150:200], *log[100:150], *log[200:]]

        assert settled(late)[0] == log

    def test_that_comes_after_more_rows_than_are_held_is_dropped_and_counted(self) -> None:
        log = every_second(0, 20_000)
        others = [*log[:500], *log[501:]]

        kept, notes = settled([*others[:9_000], log[500], *others[9_000:]])

        assert kept == others
        assert notes == ("Dropped 1 row that came more than 64 rows late.",)

    @pytest.mark.parametrize("at", [1_930, 1_950, 1_970, 1_990, 2_010])
    def test_leaves_no_row_behind_it_unlooked_at(self, at: int) -> None:
        """Rows are read in blocks of 1,024; the last 128 before a block's end are held back."""
        log = every_second(0, 2_300)
        written = [*log[:1_600], log[1_601], log[1_600], *log[1_602:at], log[at], *log[at:]]

        assert settled(written) == (log, (PUT_BACK, "Dropped 1 row there twice."))

    @given(st.data())
    @settings(max_examples=30)
    def test_within_the_window_changes_nothing(self, data: st.DataObject) -> None:
        log = [row(at * 0.25, busy=at % 7 / 7, gpu=at % 2) for at in range(150)]

        samples, facts = in_order(shuffled(log, data))

        assert facts.skipped_lines == 0
        for gpu in (0, 1):
            assert [one for one in samples if one.gpu == gpu] == log[gpu::2]

    @given(st.data())
    @settings(max_examples=15)
    def test_within_the_window_leaves_the_report_as_it_is(self, data: st.DataObject) -> None:
        header, *lines = smi_log([0 if at % 7 > 3 else 96 for at in range(120)]).splitlines()

        gpu = only_gpu(analysed(rows(header, *shuffled(lines, data))))

        assert gpu == only_gpu(analysed(rows(header, *lines)))


def shuffled(log: list[Any], data: st.DataObject) -> list[Any]:
    """The same rows, none of them further from its place than rows are held."""
    places = [at + data.draw(st.integers(0, WINDOW_ROWS - 1)) for at in range(len(log))]
    return [log[at] for at in sorted(range(len(log)), key=lambda at: places[at])]


class TestARowThatIsThereTwice:
    def test_counts_once_and_is_counted(self) -> None:
        log = every_second(0.5, 10)

        kept, notes = settled([*log[:5], *log[2:]])

        assert kept == log
        assert "Dropped 3 rows there twice." in notes

    def test_with_another_value_is_dropped_where_the_clock_is_fine_enough(self) -> None:
        kept, notes = settled([row(1.5), row(2.5), row(2.5, 0.0), row(3.5)])

        assert kept == every_second(1.5, 3)
        assert "Dropped 1 row of a moment that another row has." in notes

    def test_with_its_whole_log_counts_once(self) -> None:
        log = every_second(TEN + 0.1, 10_000)

        assert settled([*log, *log])[0] == log


class TestAStampOfWholeSeconds:
    def test_on_rows_that_are_faster_is_spread_over_its_second(self) -> None:
        kept, notes = settled([row(at // 5) for at in range(50)])

        assert seconds(kept) == pytest.approx([at / 5 for at in range(50)])
        assert any("one every 0.2 s" in note for note in notes)

    @pytest.mark.parametrize(
        ("first", "end"), [(3, 47), (0, 20_000)], ids=["within a second", "where blocks meet"]
    )
    def test_begins_and_ends_anywhere(self, first: int, end: int) -> None:
        kept, _ = settled([row(at // 5) for at in range(first, end)])

        assert seconds(kept) == pytest.approx([at / 5 for at in range(first, end)])

    def test_may_have_rows_that_do_not_divide_it(self) -> None:
        kept, _ = settled([row(int(at * 0.4)) for at in range(1_000)])

        assert len(kept) == 1_000
        assert all(abs(s - at * 0.4) < 0.41 for at, s in enumerate(seconds(kept)))

    @pytest.mark.parametrize("a_minute", [6, 60, 120, 420, 900])
    def test_may_be_one_of_whole_minutes(self, a_minute: int) -> None:
        kept, _ = settled([row(TEN + at // a_minute * 60) for at in range(10 * a_minute)])

        assert seconds(kept) == pytest.approx(
            [TEN + at * 60 / a_minute for at in range(10 * a_minute)]
        )

    def test_is_not_taken_for_one_of_minutes_by_two_moments(self) -> None:
        log = [row(TEN + at // 4 * 60) for at in range(8)]

        assert seconds(in_order(log)[0])[3] < TEN + 1

    @pytest.mark.parametrize("more", [0, 1, 143])
    def test_is_told_with_the_pace_of_most_rows_whatever_the_last_ones_have(
        self, more: int
    ) -> None:
        log = [row(TEN + at // 428 * 60) for at in range(428 * 7 + more)]

        kept, notes = settled(log)

        assert [note for note in notes if "one every 0.140187 s" in note]
        assert seconds(kept)[-1] == pytest.approx(TEN + (len(log) - 1) * 60 / 428)


class TestTimeThatStandsStill:
    @pytest.mark.parametrize("stamp", [TEN, TEN + 0.25])
    @pytest.mark.parametrize("count", [3, 500, 20_000])
    def test_is_a_sentence(self, stamp: float, count: int) -> None:
        with pytest.raises(UnreadableLogError, match=f"time stands still: all {count:,} rows"):
            in_order([row(stamp)] * count)

    def test_is_not_known_from_two_rows(self) -> None:
        assert settled([row(TEN)] * 2)[0] == every_second(TEN, 2, 0.5)

    def test_of_rows_that_contradict_each_other_keeps_the_first(self) -> None:
        assert settled([row(TEN + 0.25), row(TEN + 0.25, busy=0.5)])[0] == [row(TEN + 0.25)]

    def test_and_goes_on_again_is_read_on(self) -> None:
        log = every_second(TEN, 200)

        assert settled([*log[:100], *[log[99]] * 8_000, *log[100:]])[0] == log

    def test_is_no_lack_of_rows_which_is_a_sentence_too(self) -> None:
        with pytest.raises(UnreadableLogError, match="no line of it tells of a GPU at a moment"):
            in_order([])


class TestARowAloneThatIsFarOffInTime:
    @pytest.mark.parametrize("years", [-20, 36])
    @pytest.mark.parametrize("at", [1, 300, 598])
    def test_is_dropped_and_counted(self, years: int, at: int) -> None:
        log = every_second(TEN, 600)
        stray = row(TEN + at + years * 365 * 24 * HOUR)

        kept, notes = settled([*log[:at], stray, *log[at + 1 :]])

        assert kept == [*log[:at], *log[at + 1 :]]
        assert notes == ("Dropped 1 row whose time is far from those of the rows around.",)

    def test_is_dropped_beside_another_one_and_in_every_block(self) -> None:
        log = every_second(TEN, 20_000)
        strays = (700, 703, 1_023, 1_024 + 64, 9_000)
        written = [row(TEN + at + 90 * 24 * HOUR * (at in strays)) for at in range(len(log))]

        assert settled(written)[0] == [one for at, one in enumerate(log) if at not in strays]


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


class TestLaws:
    @given(
        st.lists(
            st.tuples(st.integers(0, 2), st.integers(0, 20_000), st.sampled_from([0.0, 1.0])),
            max_size=200,
        ),
        st.sampled_from([S, S // 4]),
    )
    def test_time_rises_and_every_row_is_handed_on_or_counted(
        self, given_rows: list[tuple[int, int, float]], unit_ns: int
    ) -> None:
        log = [LogSample(gpu, at * unit_ns, busy) for gpu, at, busy in given_rows]
        reader = log_in_order(log)
        samples: list[LogSample] = []
        try:
            samples.extend(reader.samples())
        except UnreadableLogError as refusal:
            if "several logs" not in str(refusal) and "sort them" not in str(refusal):
                moments = {(one.gpu, one.stamp_ns) for one in log}
                assert len(moments) == len({one.gpu for one in log})
                return

        assert len(samples) + reader.facts().skipped_lines == len(log)
        for gpu in range(3):
            stamps = [one.stamp_ns for one in samples if one.gpu == gpu]
            assert stamps == sorted(set(stamps))
