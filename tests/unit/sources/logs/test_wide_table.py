"""Specification of tables with a column, or a key, for each GPU: corners the samples leave out."""

from __future__ import annotations

import json

import pytest

from gpumon.errors import UnreadableLogError, UsageError
from gpumon.sources.logs.detect import reader_for
from gpumon.sources.logs.log_sample import LogOptions
from gpumon.sources.logs.table.wide_headings import Quantity, meaning_of
from tests.builders_logs import ratios, read_log, rows, seconds_of

RUN = "night - system/gpu.0.gpu"


def events(*rows_of: dict[str, object]) -> str:
    """A W&B run's events file, a row each 2 s."""
    return rows(
        *(json.dumps({**row, "_timestamp": 1_700_000_000.5 + 2 * at, "_wandb": True})
          for at, row in enumerate(rows_of))
    )  # fmt: skip


class TestHeadings:
    @pytest.mark.parametrize(
        ("heading", "gpu"),
        [
            ("system.gpu.11.gpu", 11),
            ("system/gpu.2.gpu", 2),
            ("gpu.2.gpu", 2),
            ("a - b - system/gpu.2.gpu/l:node-3", 2),
            ("metrics-daemon/gpu:3/gpu_utilization (%)/mean", 3),
            ("train/batch/cuda:0 (gpu:5)/gpu_utilization (%)/last", 5),
            ("GPU 4 utilization [%]", 4),
            ("utilization.gpu.1", 1),
            ("gpu0", 0),
            ("cuda:1 load", 1),
            ("util_6", 6),
        ],
    )
    def test_of_utilisation_name_their_gpu(self, heading: str, gpu: int) -> None:
        meaning = meaning_of(heading)

        assert meaning is not None
        assert meaning.gpu is not None
        assert (meaning.quantity, meaning.gpu.number) == (Quantity.UTILIZATION, gpu)

    @pytest.mark.parametrize(
        "heading",
        [
            "system.gpu.process.0.gpu",
            "system.gpu.0.memory",
            f"{RUN}__MIN",
            f"{RUN}__MAX",
            "metrics-daemon/gpu:0/memory_utilization (%)/mean",
            "metrics-daemon/gpu:0/gpu_utilization (%)/max",
            "metrics-daemon/pid:7/gpu:0/gpu_sm_utilization (%)/mean",
            "gpu0_temp",
            "gpu_0_memory_util",
            "gpu0_mem_used",
            "cpu0_util",
            "load_1",
            "load 15",
            "gpu",
            "GPU 0: NVIDIA A40",
            "gpu0_gpu1",
        ],
    )
    def test_of_anything_else_are_left_alone(self, heading: str) -> None:
        assert meaning_of(heading) is None

    def test_tell_instances_apart(self) -> None:
        meaning = meaning_of("metrics-daemon/cuda:0 (gpu:(2, 1))/gpu_utilization (%)/mean")

        assert meaning is not None
        assert meaning.gpu is not None
        assert (meaning.gpu.number, meaning.gpu.mig_index) == (2, 1)


class TestTheTime:
    def test_is_the_clock_where_the_table_has_both(self) -> None:
        log = rows("_runtime,system.gpu.0.gpu,_timestamp", "5,10,1700000000.5", "6,20,1700000001.5")

        samples, facts = read_log(log)

        assert facts.clock.is_wall
        assert samples[0].stamp_ns == 1_700_000_000_500_000_000

    def test_may_count_another_unit(self) -> None:
        samples, _ = read_log(rows("time_ms,gpu0", "0,10", "500,20"))

        assert seconds_of([sample.stamp_ns for sample in samples]) == [0, 0.5]

    @pytest.mark.parametrize(
        ("heading", "unit_s"),
        [
            ("time (min)", 60),
            ("elapsed_hours", 3600),
            ("t_h", 3600),
            ("time [minutes]", 60),
            ("time (milliseconds)", 0.001),
            ("runtime_secs", 1),
        ],
    )
    def test_may_count_any_unit_that_a_long_table_may_count(
        self, heading: str, unit_s: float
    ) -> None:
        samples, _ = read_log(rows(f"{heading},gpu0 [%]", "0,10", "2,20"))
        of_long, _ = read_log(rows(f"{heading},utilization.gpu [%]", "0,10", "2,20"))

        assert seconds_of([sample.stamp_ns for sample in samples]) == [0, 2 * unit_s]
        assert samples == of_long

    def test_may_be_written_with_an_exponent(self) -> None:
        samples, _ = read_log(rows("_timestamp,system.gpu.0.gpu", "1.7e+09,1", "1.700000002e+09,2"))

        assert seconds_of([sample.stamp_ns for sample in samples]) == [0, 2]

    def test_may_be_named_by_the_user(self) -> None:
        log = rows("_timestamp,when,gpu0_util", "1700000000,3,10", "1700000000,5,20")

        samples, _ = read_log(log, LogOptions(columns={"timestamp": "when"}))

        assert seconds_of([sample.stamp_ns for sample in samples]) == [0, 2]

    @pytest.mark.parametrize("time", ["soon", "", "-3", "1e999", "2e9.5", "17e+12x"])
    def test_that_cannot_be_read_is_counted(self, time: str) -> None:
        samples, facts = read_log(rows("time,gpu0,gpu1", "1,10,20", f"{time},10,20", "3,10,20"))

        assert (len(samples), facts.skipped_lines) == (4, 1)


class TestACsv:
    def test_of_one_column_that_only_this_table_has_is_enough(self) -> None:
        assert ratios(rows(f'"Step","{RUN}"', '"0","96.5"', '"1","0"')) == [0.965, 0.0]

    def test_may_begin_with_lines_of_others(self) -> None:
        assert ratios(rows("# made by hand", "", "time;gpu0;gpu1", "1;10;20")) == [0.1, 0.2]

    def test_may_repeat_its_header(self) -> None:
        header = "time,gpu0,gpu1"

        samples, facts = read_log(rows(header, "1,10,20", header, "2,30,40"))

        assert (len(samples), facts.skipped_lines) == (4, 0)

    def test_counts_rows_of_another_width(self) -> None:
        samples, facts = read_log(rows("time,gpu0,gpu1", "1,10,20", "2,10", "3,10,20,30"))

        assert (len(samples), facts.skipped_lines) == (2, 2)

    def test_takes_a_blank_cell_of_one_gpu_for_no_answer(self) -> None:
        samples, facts = read_log(rows("time,gpu0,gpu1", "1,10,20", "2,,30"))

        assert [sample.busy_ratio for sample in samples] == [0.1, 0.2, None, 0.3]
        assert facts.skipped_lines == 1

    def test_takes_a_blank_cell_of_another_run_for_nothing(self) -> None:
        other = RUN.replace("night", "day")
        log = rows(f"Relative Time (Wall),{RUN},{other}", "1,10,", "2,,30")

        samples, facts = read_log(log)

        assert [sample.busy_ratio for sample in samples] == [0.1, 0.3]
        assert facts.skipped_lines == 0

    def test_prefers_the_column_that_says_utilisation(self) -> None:
        assert ratios(rows("time,gpu0,gpu0_util,gpu1_util", "1,61,10,20")) == [0.1, 0.2]

    def test_may_be_settled_by_the_users_column(self) -> None:
        log = rows("time,gpu0_util,gpu1_util", "1,10,20")

        assert ratios(log, LogOptions(columns={"utilization.gpu": 2})) == [0.2]
        assert ratios(log, LogOptions(columns={"utilization.gpu": "gpu0_util"})) == [0.1]

    def test_without_the_users_column_is_refused(self) -> None:
        options = LogOptions(columns={"utilization.gpu": "gpu7_util"})

        with pytest.raises(UsageError, match=r"utilization\.gpu=gpu7_util: gpu.csv has no such"):
            read_log(rows("time,gpu0_util,gpu1_util", "1,10,20"), options)

    def test_whose_header_comes_in_pieces_is_read(self) -> None:
        header = ",".join(["time", *(f"gpu{n}_util" for n in range(900))]) + "\n"
        row = ",".join(["1", *["50"] * 900]) + "\n"
        pieces = [header[:5_000], header[5_000:], row[:1_000], row[1_000:]]

        reader = reader_for(iter(pieces), name="x", options=LogOptions())

        assert [sample.busy_ratio for sample in reader.samples()] == [0.5] * 900

    def test_is_not_what_names_a_gpu_in_each_row(self) -> None:
        samples, facts = read_log(rows("time,device,util", "1,gpu0,10", "1,gpu1,20", "2,gpu0,30"))

        assert len(facts.gpus) == 2
        assert [sample.busy_ratio for sample in samples] == [0.1, 0.2, 0.3]

    def test_may_have_decimal_commas(self) -> None:
        samples, facts = read_log(rows("time;gpu0 [%];gpu1 [%]", "1;45,5;30", "2;45,5 %;30"))

        assert [sample.busy_ratio for sample in samples] == [0.455, 0.3, 0.455, 0.3]
        assert facts.skipped_lines == 0

    @pytest.mark.parametrize("used", ["1024,5", "1,024.5", "1024.5 MiB", "1.0245e3"])
    def test_may_have_memory_in_any_form_that_a_long_table_may_have(self, used: str) -> None:
        samples, _ = read_log(rows("time;gpu0 [%];gpu0_mem_mib;gpu1 [%]", f"1;45;{used};30"))

        assert [sample.memory_used_bytes for sample in samples] == [2049 << 19, None]

    @pytest.mark.parametrize("cell", ["[N/A]", "[Not Supported]", "-", "N/A", "ERR!", "None"])
    def test_says_of_a_cell_without_an_answer_that_it_has_none(self, cell: str) -> None:
        samples, facts = read_log(rows("time,gpu0 [%],gpu1 [%]", f"1,{cell},20"))

        assert [sample.busy_ratio for sample in samples] == [None, 0.2]
        assert any("without an answer of the GPU" in note for note in facts.notes)

    def test_with_a_mean_rounded_over_100_is_full(self) -> None:
        assert ratios(rows("time,gpu0 (%),gpu1 (%)", "1,100.00000000000001,101")) == [1.0, None]

    def test_without_any_value_is_refused(self) -> None:
        with pytest.raises(UnreadableLogError, match="no line with a utilisation"):
            read_log(rows("time,gpu0,gpu1", "1,N/A,N/A"))


class TestJsonObjects:
    def test_may_gain_and_lose_gpus(self) -> None:
        log = events(
            {"system.gpu.0.gpu": 10.0},
            {"system.gpu.0.gpu": 20.0, "system.gpu.1.gpu": 30.0},
            {"system.gpu.1.gpu": 40.0},
        )

        samples, facts = read_log(log)

        assert [(one.gpu, one.busy_ratio) for one in samples] == [(0, 0.1), (0, 0.2), (1, 0.3), (1, 0.4)]  # noqa: E501  # fmt: skip
        assert facts.skipped_lines == 0

    def test_say_how_much_memory_there_is(self) -> None:
        gpu = "metrics-daemon/gpu:0/"
        log = json.dumps(
            {gpu + "gpu_utilization (%)/mean": 5.0, gpu + "memory_total (MiB)/mean": 9}
        )

        (known,) = read_log(rows(log))[1].gpus

        assert known.memory_bytes == 9 << 20

    def test_under_the_users_key_are_shares_where_none_of_them_exceeds_one(self) -> None:
        options = LogOptions(columns={"utilization.gpu": "mine"})
        told: list[dict[str, object]] = [{RUN: 5, "mine": share} for share in (0, 1, 0.5)]

        assert ratios(events(*told), options) == [0.0, 1.0, 0.5]

    def test_of_more_gpus_than_there_are_say_so(self) -> None:
        many: dict[str, object] = {f"run{at} - system/gpu.0.gpu": 5 for at in range(1_030)}

        samples, facts = read_log(events(many))

        assert len(samples) == len(facts.gpus) == 1_024
        assert any("More than 1,024 GPUs" in note for note in facts.notes)

    def test_of_a_process_are_not_of_the_gpu(self) -> None:
        log = events({"system.gpu.process.0.gpu": 5.0, "system.gpu.0.gpu": 50.0})

        assert ratios(log) == [0.5]

    def test_with_not_a_number_have_no_answer(self) -> None:
        log = events({"system.gpu.0.gpu": 10.0}, {"system.gpu.0.gpu": float("nan")})

        samples, facts = read_log(log)

        assert [sample.busy_ratio for sample in samples] == [0.1, None]
        assert facts.skipped_lines == 1

    def test_of_the_outer_collection_of_nvitop_are_read_where_one_runs_inside_another(self) -> None:
        metrics = {
            "train/epoch/gpu:0/gpu_utilization (%)/mean": 20.0,
            "train/gpu:0/gpu_utilization (%)/mean": 10.0,
            "train/epoch/timestamp": 5.0,
            "train/timestamp": 1_700_000_000.0,
        }

        samples, facts = read_log(rows(json.dumps(metrics)))

        assert [sample.busy_ratio for sample in samples] == [0.1]
        assert facts.clock.is_wall


class TestALongFileOfJsonObjects:
    """More of them than the first 512, from which the unit is told."""

    def test_is_read_in_the_order_of_its_lines(self) -> None:
        rows_of: list[dict[str, object]] = [{"system.gpu.0.gpu": at % 101} for at in range(600)]

        samples, _ = read_log(events(*rows_of))

        assert seconds_of([sample.stamp_ns for sample in samples]) == [2 * at for at in range(600)]
        assert [sample.busy_ratio for sample in samples] == [at % 101 / 100 for at in range(600)]

    def test_names_the_line_beyond_them_that_cannot_be_used(self) -> None:
        rows_of: list[dict[str, object]] = [{"system.gpu.0.gpu": 50.0} for _ in range(600)]
        rows_of[549] = {"system.gpu.0.gpu": 5_000.0}

        _, facts = read_log(events(*rows_of))

        assert facts.skipped_lines == 1
        assert any("first at line 550." in note for note in facts.notes)


class TestTimesOfATableOfAnybody:
    @pytest.mark.parametrize(
        ("heading", "stamps", "clock"),
        [
            ("time", ["23.05.2026 14:02:03", "23.05.2026 14:02:04"], True),
            ("time", ["06/13/2025 11:59:59 PM", "06/14/2025 12:00:00 AM"], True),
            ("elapsed", ["23:59:59", "24:00:00"], False),
            ("time", ["23:59:59", "00:00:00"], False),
        ],
    )
    def test_may_have_any_shape_that_those_of_a_long_table_may_have(
        self, heading: str, stamps: list[str], clock: bool
    ) -> None:
        log = rows(f"{heading};gpu 0 [%];gpu 1 [%]", *(f"{stamp};97;98" for stamp in stamps))

        samples, facts = read_log(log)

        assert samples[2].stamp_ns - samples[0].stamp_ns == 10**9
        assert facts.clock.is_wall is clock

    def test_tell_days_from_months_by_later_rows_or_say_what_was_assumed(self) -> None:
        stamps = [f"{day:02d}/06/2025 10:00:00" for day in (11, 12, 13)]

        sure = read_log(rows("time,gpu0,gpu1", *(f"{stamp},97,98" for stamp in stamps)))[1]
        unsure = read_log(rows("time,gpu0,gpu1", f"{stamps[0]},97,98"))[1]

        assert not any("begin with day or month" in note for note in sure.notes)
        assert any("begin with day or month" in note for note in unsure.notes)
