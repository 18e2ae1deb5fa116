"""Specification of nvidia-smi's CSV: whatever was queried, and whatever happened to the file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.errors import GpumonError, UnreadableLogError
from gpumon.sources.logs.log_sample import LoggedGpu, LogOptions
from tests.builders_logs import HEADER, ratios, read_log, rows, seconds_of, smi_log, smi_stamp


class TestEveryChoiceOfColumns:
    def test_gives_the_same_samples(self) -> None:
        with_units = smi_log([45, 0, 100])
        without_units = rows(
            "utilization.gpu [%], timestamp", *(f"{p}, {smi_stamp(s)}" for s, p in
                                                [(1, 45), (2, 0), (3, 100)])
        )  # fmt: skip

        assert ratios(with_units) == ratios(without_units) == [0.45, 0.0, 1.0]
        assert [s.stamp_ns for s in read_log(with_units)[0]] == [
            s.stamp_ns for s in read_log(without_units)[0]
        ]

    @pytest.mark.parametrize("separator", [", ", ",", ";", "\t"])
    def test_may_be_separated_otherwise(self, separator: str) -> None:
        assert ratios(smi_log([45, 0]).replace(", ", separator)) == [0.45, 0.0]

    def test_may_be_quoted(self) -> None:
        log = rows("timestamp,name,utilization.gpu [%]", f'"{smi_stamp(1)}","A40, passive","7 %"')

        samples, facts = read_log(log)

        assert samples[0].busy_ratio == 0.07
        assert facts.gpus[0].name == "A40, passive"

    def test_may_be_named_by_the_user(self) -> None:
        log = rows("when,a,b", f"{smi_stamp(1)},3,45")
        options = LogOptions(columns={"timestamp": 0, "utilization.gpu": 2})

        assert ratios(log, options) == [0.45]

    def test_named_by_the_user_against_the_header_is_said_once(self) -> None:
        header = "timestamp, index, utilization.gpu [%]"
        log = rows(header, f"{smi_stamp(1)}, 0, 45", header, f"{smi_stamp(2)}, 0, 45")

        samples, facts = read_log(log, LogOptions(columns={"utilization.gpu": 1}))

        assert [sample.busy_ratio for sample in samples] == [0.0, 0.0]
        assert [note for note in facts.notes if "as told" in note] == [
            'The header calls column 2 "index"; taken as utilization.gpu as told.'
        ]

    def test_may_count_from_0_to_1_and_says_so(self) -> None:
        samples, facts = read_log(rows("time,util", "0,0.25", "1,0.97"))

        assert [sample.busy_ratio for sample in samples] == [0.25, 0.97]
        assert any("between 0 and 1" in note for note in facts.notes)


class TestSeveralGpus:
    def test_are_told_apart_by_their_index(self) -> None:
        log = rows(HEADER, *(
            f"{smi_stamp(second)}, {gpu}, A40, {10 * gpu + second} %, 1 MiB"
            for second in (1, 2) for gpu in (0, 1)
        ))  # fmt: skip

        samples, facts = read_log(log)

        assert [(s.gpu, s.busy_ratio) for s in samples] == [
            (0, 0.01),
            (1, 0.11),
            (0, 0.02),
            (1, 0.12),
        ]
        assert facts.gpus == (LoggedGpu(0, None, "A40"), LoggedGpu(1, None, "A40"))

    def test_are_told_apart_by_uuid_or_bus_id(self) -> None:
        for name, ids in (("uuid", ("GPU-aa", "GPU-bb")), ("pci.bus_id", ("0:1.0", "0:2.0"))):
            log = rows(f"{name}, utilization.gpu [%]", *(f"{i}, 5 %" for i in ids))

            assert [sample.gpu for sample in read_log(log)[0]] == [0, 1]

    def test_are_told_apart_by_their_index_without_a_header(self) -> None:
        log = rows(*(f"{smi_stamp(second)}, {gpu}, {(50, 98)[gpu]}"
                     for second in range(4) for gpu in (0, 1)))  # fmt: skip

        samples, facts = read_log(log)

        assert [gpu.index for gpu in facts.gpus] == [0, 1]
        assert {(s.gpu, s.busy_ratio) for s in samples} == {(0, 0.5), (1, 0.98)}
        assert any("column 3 as utilization.gpu" in note for note in facts.notes)

    def test_are_the_same_with_or_without_a_blank_at_the_line_end(self) -> None:
        log = "utilization.gpu [%], uuid\n5 %, GPU-aa\n6 %,GPU-aa \n7 %, GPU-aa"

        assert {sample.gpu for sample in read_log(log)[0]} == {0}

    def test_are_told_apart_by_their_order_where_nothing_names_them(self) -> None:
        log = rows("timestamp, utilization.gpu [%]", *(
            f"{smi_stamp(second + gpu * 0.003)}, {percent} %"
            for second in range(1, 6) for gpu, percent in enumerate((10, 20))
        ))  # fmt: skip

        samples, facts = read_log(log)

        assert [(s.gpu, s.busy_ratio) for s in samples[:4]] == [(0, 0.1), (1, 0.2)] * 2
        assert len(facts.gpus) == 2

    def test_without_an_answer_about_their_name_are_told_apart_by_the_next_best(self) -> None:
        log = rows("uuid, index, utilization.gpu [%]", "[N/A], 0, 1 %", "[N/A], 1, 2 %")

        assert [sample.gpu for sample in read_log(log)[0]] == [0, 1]


class TestALogWithoutStamps:
    def test_has_one_row_a_second_and_says_so(self) -> None:
        samples, facts = read_log(rows("utilization.gpu [%]", "1 %", "2 %", "3 %"))

        assert seconds_of([s.stamp_ns for s in samples]) == [0.0, 1.0, 2.0]
        assert not facts.clock.is_wall
        assert any("1 s a row (assumed" in note for note in facts.notes)

    def test_has_the_period_the_user_says(self) -> None:
        samples, facts = read_log("5\n6\n", LogOptions(period_ns=250_000_000))

        assert seconds_of([s.stamp_ns for s in samples]) == [0.0, 0.25]
        assert facts.period_ns == 250_000_000

    def test_counts_the_rows_of_each_gpu(self) -> None:
        log = rows("index, utilization.gpu [%]", "0, 1 %", "1, 2 %", "0, 3 %", "1, 4 %")

        samples, _ = read_log(log)

        assert [(s.gpu, s.stamp_ns // 10**9) for s in samples] == [(0, 1), (1, 1), (0, 2), (1, 2)]


class TestADamagedLine:
    def test_is_skipped_and_counted_with_its_reason(self) -> None:
        log = smi_log([45, 250, -3, "nan", 7]) + rows("garbage", "a, b, c, d, e")

        samples, facts = read_log(log)

        assert [s.busy_ratio for s in samples] == [0.45, None, None, None, 0.07]
        assert facts.skipped_lines == 5
        assert any("3 lines with a utilisation no GPU can have" in note for note in facts.notes)

    def test_without_an_answer_still_marks_its_moment(self) -> None:
        log = smi_log([45]) + rows(f"{smi_stamp(2)}, 0, NVIDIA A40, [N/A], [N/A]")

        samples, facts = read_log(log)

        assert samples[1].busy_ratio is None
        assert seconds_of([s.stamp_ns for s in samples]) == [0.0, 1.0]
        assert facts.skipped_lines == 1

    def test_that_was_cut_off_is_not_half_a_value(self) -> None:
        log = "timestamp, utilization.gpu [%]\n" + f"{smi_stamp(1)}, 19 %\n{smi_stamp(2)}, 1"

        assert ratios(log) == [0.19, None]

    def test_that_is_blank_is_no_line_at_all(self) -> None:
        assert read_log(smi_log([45]) + "\n\n  \n")[1].skipped_lines == 0

    def test_whose_time_cannot_be_read_belongs_to_no_moment(self) -> None:
        samples, facts = read_log(smi_log([45]) + rows("noon, 0, NVIDIA A40, 50 %, 1 MiB"))

        assert len(samples) == 1
        assert facts.skipped_lines == 1


class TestARepeatedHeader:
    def test_is_no_row(self) -> None:
        once = smi_log([1, 2, 3])
        again = once.replace("\n", f"\n{HEADER}\n", 2)

        assert read_log(again)[0] == read_log(once)[0]
        assert read_log(again)[1].skipped_lines == 0

    def test_may_move_the_columns(self) -> None:
        log = smi_log([45]) + rows(
            "index, utilization.gpu [%], timestamp", f"0, 55 %, {smi_stamp(2)}"
        )

        samples, facts = read_log(log)

        assert [(s.gpu, s.busy_ratio) for s in samples] == [(0, 0.45), (0, 0.55)]
        assert len(facts.gpus) == 1

    def test_that_names_no_gpu_any_more_goes_on_with_the_only_one(self) -> None:
        log = rows("time,util,index", "1,45,0", "time,util", "2,36", "3,37")

        samples, facts = read_log(log)

        assert [(s.gpu, s.busy_ratio) for s in samples] == [(0, 0.45), (0, 0.36), (0, 0.37)]
        assert facts.skipped_lines == 0

    def test_that_names_no_gpu_any_more_tells_nothing_of_several(self) -> None:
        log = rows("time,util,index", "1,45,0", "1,45,1", "time,util", "2,1", "3,45")

        samples, facts = read_log(log)

        assert len(samples) == 2
        assert "2 lines of no GPU that can be told from the others" in " ".join(facts.notes)

    def test_without_utilisation_ends_the_usable_part(self) -> None:
        log = rows("time,util", "1,45", "time,memory.used [MiB]", "2,36", "time,util", "3,55")

        samples, facts = read_log(log)

        assert [sample.busy_ratio for sample in samples] == [0.45, 0.55]
        assert facts.skipped_lines == 2


class TestALogThatCannotBeUnderstood:
    def test_has_no_utilisation_column_and_says_which_it_has(self) -> None:
        with pytest.raises(
            UnreadableLogError, match=r"line 1: no utilisation column among: timestamp, index"
        ):
            ratios(rows("timestamp, index", f"{smi_stamp(1)}, 0"))

    def test_has_nothing_but_a_header(self) -> None:
        with pytest.raises(UnreadableLogError, match="no line under it has as many"):
            ratios(rows(HEADER))

    def test_has_no_usable_line_and_says_why(self) -> None:
        with pytest.raises(UnreadableLogError, match=r"without an answer of the GPU.*line 2"):
            ratios(rows("timestamp, utilization.gpu [%]", f"{smi_stamp(1)}, [N/A]"))

    def test_has_times_of_no_known_form(self) -> None:
        with pytest.raises(UnreadableLogError, match=r"'half past ten' has no form"):
            ratios(rows("time,util", "half past ten,45"))

    def test_has_only_blank_lines(self) -> None:
        with pytest.raises(UnreadableLogError, match="no line with anything"):
            ratios("\n \n\n")


class TestAnyText:
    @given(st.text(max_size=200))
    def test_is_read_or_refused_with_a_sentence(self, text: str) -> None:
        try:
            samples, _ = read_log(text)
        except GpumonError:
            return

        assert any(sample.busy_ratio is not None for sample in samples)

    @given(
        st.lists(
            st.text(st.sampled_from('0123456789,;%."[]N/A: \tGPU-utiltime'), max_size=30),
            max_size=12,
        )
    )
    def test_under_a_header_is_read_or_refused_with_a_sentence(self, lines: list[str]) -> None:
        try:
            samples, facts = read_log(rows("timestamp, utilization.gpu [%]", *lines))
        except UnreadableLogError:
            return

        assert all(s.busy_ratio is None or 0.0 <= s.busy_ratio <= 1.0 for s in samples)
        assert facts.skipped_lines <= len(lines) + 1
