"""Specification of rows in order: whatever order and clock the file has, time rises and is kept."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.log_sample import LogSample
from gpumon.sources.logs.stamps.forward_clock import WINDOW_ROWS
from tests.builders_logs import analysed, only_gpu, rows, smi_log
from tests.builders_order import HOUR, TEN, S, every_second, in_order, log_in_order, row, seconds


class TestRowsThatRise:
    @pytest.mark.parametrize("gpus", [1, 3])
    def test_are_handed_on_as_they_are(self, gpus: int) -> None:
        log = [row(at, gpu=gpu) for at in range(10_000 // gpus) for gpu in range(gpus)]

        samples, facts = in_order(log)

        assert samples == log
        assert facts.notes == ()


class TestALateRow:
    def test_is_put_back_and_that_is_said(self) -> None:
        samples, facts = in_order([row(1), row(2), row(4), row(3), row(5)])

        assert seconds(samples) == [1, 2, 3, 4, 5]
        assert facts.notes == ("Put 1 row that came late back in order.",)
        assert facts.skipped_lines == 0

    def test_may_be_in_a_block_of_late_rows(self) -> None:
        log = every_second(0, 300)
        late = [*log[:100], *log[150:200], *log[100:150], *log[200:]]

        assert in_order(late)[0] == log

    def test_may_be_the_last(self) -> None:
        assert seconds(in_order([row(1), row(2), row(4), row(3)])[0]) == [1, 2, 3, 4]

    def test_that_comes_after_more_rows_than_are_held_is_dropped_and_counted(self) -> None:
        log = every_second(0, 20_000)
        early = log.pop(500)
        log.insert(9_000, early)

        samples, facts = in_order(log)

        assert len(samples) == 19_999
        assert facts.skipped_lines == 1
        assert facts.notes == ("Dropped 1 row that came more than 64 rows late.",)

    @pytest.mark.parametrize("at", [1_930, 1_950, 1_970, 1_990, 2_010])
    def test_leaves_no_row_behind_it_unlooked_at(self, at: int) -> None:
        """Rows are read in blocks of 1,024; the last 128 before a block's end are held back."""
        log = every_second(0, 2_300)
        written = [*log[:1_600], log[1_601], log[1_600], *log[1_602:at], log[at], *log[at:]]

        samples, facts = in_order(written)

        assert samples == log
        assert facts.notes == (
            "Put 1 row that came late back in order.",
            "Dropped 1 row there twice.",
        )

    @given(st.data())
    @settings(max_examples=30)
    def test_within_the_window_changes_nothing(self, data: st.DataObject) -> None:
        log = [row(at * 0.25, busy=at % 7 / 7, gpu=at % 2) for at in range(150)]
        delay = st.integers(0, WINDOW_ROWS - 1)
        places = [at + data.draw(delay) for at in range(len(log))]
        shuffled = [log[at] for at in sorted(range(len(log)), key=lambda at: places[at])]

        samples, facts = in_order(shuffled)

        assert facts.skipped_lines == 0
        for gpu in (0, 1):
            assert [one for one in samples if one.gpu == gpu] == log[gpu::2]

    @given(st.data())
    @settings(max_examples=15)
    def test_within_the_window_leaves_the_report_as_it_is(self, data: st.DataObject) -> None:
        lines = smi_log([0 if at % 7 > 3 else 96 for at in range(120)]).splitlines()
        delay = st.integers(0, WINDOW_ROWS - 1)
        places = [at + data.draw(delay) for at in range(len(lines) - 1)]
        shuffled = [lines[1 + at] for at in sorted(range(len(places)), key=lambda at: places[at])]

        gpu = only_gpu(analysed(rows(lines[0], *shuffled)))

        assert gpu == only_gpu(analysed(rows(*lines)))


class TestARowThatIsThereTwice:
    def test_counts_once_and_is_counted(self) -> None:
        log = [row(at + 0.5) for at in range(10)]

        samples, facts = in_order([*log[:5], *log[2:]])

        assert samples == log
        assert facts.skipped_lines == 3
        assert "Dropped 3 rows there twice." in facts.notes

    def test_with_another_value_is_dropped_where_the_clock_is_fine_enough(self) -> None:
        samples, facts = in_order([row(1.5), row(2.5, 1.0), row(2.5, 0.0), row(3.5)])

        assert [sample.busy_ratio for sample in samples] == [1.0, 1.0, 1.0]
        assert "Dropped 1 row of a moment that another row has." in facts.notes

    def test_with_its_whole_log_counts_once(self) -> None:
        log = every_second(TEN + 0.1, 10_000)

        samples, facts = in_order([*log, *log])

        assert samples == log
        assert facts.skipped_lines == 10_000


class TestAStampOfWholeSeconds:
    def test_on_rows_that_are_faster_is_spread_over_its_second(self) -> None:
        log = [row(at // 5) for at in range(50)]

        samples, facts = in_order(log)

        assert seconds(samples) == pytest.approx([at / 5 for at in range(50)])
        assert facts.skipped_lines == 0
        assert any("one every 0.2 s" in note for note in facts.notes)

    def test_begins_and_ends_anywhere_within_a_second(self) -> None:
        log = [row(at // 5) for at in range(3, 47)]

        assert seconds(in_order(log)[0]) == pytest.approx([at / 5 for at in range(3, 47)])

    def test_may_have_rows_that_do_not_divide_it(self) -> None:
        log = [row(int(at * 0.4)) for at in range(1_000)]

        samples, _ = in_order(log)

        assert len(samples) == 1_000
        assert all(abs(s - at * 0.4) < 0.41 for at, s in enumerate(seconds(samples)))

    def test_goes_on_where_blocks_meet(self) -> None:
        log = [row(at // 5) for at in range(20_000)]

        assert seconds(in_order(log)[0]) == pytest.approx([at / 5 for at in range(20_000)])

    def test_may_be_one_of_whole_minutes(self) -> None:
        log = [row(TEN + at // 6 * 60) for at in range(60)]

        assert seconds(in_order(log)[0]) == pytest.approx([TEN + at * 10 for at in range(60)])

    def test_is_not_taken_for_one_of_minutes_by_two_moments(self) -> None:
        log = [row(TEN + at // 4 * 60) for at in range(8)]

        assert seconds(in_order(log)[0])[3] < TEN + 1

    @pytest.mark.parametrize("a_second", [1, 2, 7, 15])
    def test_may_be_one_of_minutes_with_rows_every_second(self, a_second: int) -> None:
        a_minute = 60 * a_second
        log = [row(TEN + at // a_minute * 60) for at in range(10 * a_minute)]

        samples, _ = in_order(log)

        assert seconds(samples) == pytest.approx(
            [TEN + at / a_second for at in range(10 * a_minute)]
        )

    @pytest.mark.parametrize("more", [0, 1, 143])
    def test_is_told_with_the_pace_of_most_rows_whatever_the_last_ones_have(
        self, more: int
    ) -> None:
        log = [row(TEN + at // 428 * 60) for at in range(428 * 7 + more)]

        samples, facts = in_order(log)

        assert [note for note in facts.notes if "one every 0.140187 s" in note]
        assert seconds(samples)[-1] == pytest.approx(TEN + (len(log) - 1) * 60 / 428)


class TestALogWithoutARow:
    def test_is_a_sentence(self) -> None:
        with pytest.raises(UnreadableLogError, match="no line of it tells of a GPU at a moment"):
            in_order([])


class TestTimeThatStandsStill:
    @pytest.mark.parametrize("stamp", [TEN, TEN + 0.25])
    @pytest.mark.parametrize("count", [3, 500, 20_000])
    def test_is_a_sentence(self, stamp: float, count: int) -> None:
        with pytest.raises(UnreadableLogError, match=f"time stands still: all {count:,} rows"):
            in_order([row(stamp)] * count)

    def test_is_not_known_from_two_rows(self) -> None:
        assert seconds(in_order([row(TEN)] * 2)[0]) == [TEN, TEN + 0.5]

    def test_of_rows_that_contradict_each_other_keeps_the_first(self) -> None:
        samples, facts = in_order([row(TEN + 0.25, busy=1.0), row(TEN + 0.25, busy=0.5)])

        assert samples == [row(TEN + 0.25, busy=1.0)]
        assert facts.skipped_lines == 1

    def test_and_goes_on_again_is_read_on(self) -> None:
        log = [*every_second(TEN, 100), *[row(TEN + 99)] * 8_000, *every_second(TEN + 100, 100)]

        samples, facts = in_order(log)

        assert seconds(samples) == [TEN + at for at in range(200)]
        assert facts.skipped_lines == 8_000


class TestARowAloneThatIsFarOffInTime:
    @pytest.mark.parametrize("years", [-20, 36])
    @pytest.mark.parametrize("at", [1, 300, 598])
    def test_is_dropped_and_counted(self, years: int, at: int) -> None:
        log = every_second(TEN, 600)
        log[at] = row(TEN + at + years * 365 * 24 * HOUR)

        samples, facts = in_order(log)

        assert seconds(samples) == [TEN + second for second in range(600) if second != at]
        assert facts.skipped_lines == 1
        assert facts.notes == ("Dropped 1 row whose time is far from those of the rows around.",)

    def test_is_dropped_beside_another_one_and_in_every_block(self) -> None:
        log = every_second(TEN, 20_000)
        strays = (700, 703, 1_023, 1_024 + 64, 9_000)
        for at in strays:
            log[at] = row(TEN + at + 90 * 24 * HOUR)

        samples, facts = in_order(log)

        assert len(samples) == 20_000 - len(strays) == len(set(seconds(samples)))
        assert max(seconds(samples)) == TEN + 19_999
        assert facts.skipped_lines == len(strays)

    def test_is_told_from_a_hole_after_which_the_log_goes_on(self) -> None:
        log = [*every_second(TEN, 100), *every_second(TEN + 48 * HOUR, 100)]

        samples, facts = in_order(log)

        assert len(samples) == 200
        assert facts.notes == ()


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
