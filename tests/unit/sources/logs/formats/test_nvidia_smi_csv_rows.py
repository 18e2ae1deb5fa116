"""Specification of CSV rows: quotes, separators, units and damage, whatever wrote them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpumon.errors import UnreadableLogError, UsageError
from gpumon.sources.logs.formats.nvidia_smi_csv import NvidiaSmiCsvLog
from gpumon.sources.logs.log_sample import LogOptions
from gpumon.sources.logs.log_text import MAX_PIECE
from tests.builders_logs import HEADER, ratios, read_log, rows, seconds_of, smi_log, smi_stamp

GIB = 1 << 30


def stamps_s(text: str) -> list[float]:
    return seconds_of([sample.stamp_ns for sample in read_log(text)[0]])


def notes(text: str, options: LogOptions | None = None) -> str:
    return " ".join(read_log(text, options or LogOptions())[1].notes)


class TestALineEndWithinQuotes:
    def test_is_a_part_of_its_cell(self) -> None:
        log = rows(
            "timestamp,name,utilization.gpu [%],processes",
            f'{smi_stamp(1)},"NVIDIA\nA40",7 %,"python\nbash"',
            f"{smi_stamp(2)},A40,8 %,",
            f"{smi_stamp(3)},A40,[N/A],",
        )

        samples, facts = read_log(log)

        assert [sample.busy_ratio for sample in samples] == [0.07, 0.08, None]
        assert facts.skipped_lines == 1
        assert any("first at line 6" in note for note in facts.notes)

    def test_in_a_header_is_a_part_of_its_heading(self) -> None:
        log = rows('time,"GPU\nutil"', "1,5", "2,6")

        assert ratios(log) == [0.05, 0.06]

    def test_that_is_never_closed_costs_one_line(self) -> None:
        killed = f'{smi_stamp(3)},"NVIDIA A'
        log = rows(
            "timestamp,name,utilization.gpu [%]",
            *(f'{smi_stamp(at)},"NVIDIA A40",{at} %' for at in (1, 2)),
            killed,
            *(f'{smi_stamp(at)},"NVIDIA A40",{at % 100} %' for at in range(4, 200)),
        )

        samples, facts = read_log(log)

        assert len(samples) == 198
        assert facts.skipped_lines == 1
        assert any("quote that is never closed; first at line 4" in note for note in facts.notes)

    def test_that_is_never_closed_at_the_end_costs_one_line(self) -> None:
        log = smi_log([1, 2, 3]) + f'{smi_stamp(4)}, 0, "NVIDIA A'

        samples, facts = read_log(log)

        assert [sample.busy_ratio for sample in samples] == [0.01, 0.02, 0.03]
        assert facts.skipped_lines == 1


class TestALineWithoutAnEnd:
    def test_is_counted_once_and_skipped(self) -> None:
        log = smi_log([1, 2]) + "x," * MAX_PIECE + "\n" + rows(f"{smi_stamp(3)}, 0, A40, 3 %, 1")
        pieces = [log_line[at : at + MAX_PIECE] for log_line in log.splitlines(keepends=True)
                  for at in range(0, len(log_line), MAX_PIECE)]  # fmt: skip

        reader = NvidiaSmiCsvLog(iter(pieces), name="gpu.csv", options=LogOptions())

        assert [sample.busy_ratio for sample in reader.samples()] == [0.01, 0.02, 0.03]
        assert reader.facts().skipped_lines == 1

    def test_alone_is_a_sentence(self) -> None:
        def endless() -> Iterator[str]:
            for _ in range(400):
                yield "7" * MAX_PIECE

        reader = NvidiaSmiCsvLog(endless(), name="gpu.csv", options=LogOptions())

        with pytest.raises(UnreadableLogError):
            list(reader.samples())


class TestADecimalComma:
    @pytest.mark.parametrize("separator", [";", "\t"])
    def test_is_read_where_something_else_separates_cells(self, separator: str) -> None:
        log = rows("time;util", "0,5;12,5", "1,5;0,0", "2,5;100,0").replace(";", separator)

        assert ratios(log) == [0.125, 0.0, 1.0]
        assert stamps_s(log) == [0.0, 1.0, 2.0]

    def test_without_a_header_does_not_separate(self) -> None:
        log = rows(*(f"2025-06-13 00:00:{at:02d},250;{at},5 %" for at in range(20)))

        assert ratios(log)[:3] == [0.005, 0.015, 0.025]

    def test_is_read_within_quotes(self) -> None:
        assert ratios(rows("time,util", '"1,5","12,5"', '"2,5","99,5 %"')) == [0.125, 0.995]

    def test_is_read_in_a_stamp(self) -> None:
        log = rows("timestamp;util", "1718238472,25;5", "1718238473,5;6")

        assert stamps_s(log) == [0.0, 1.25]


class TestBlanksBetweenCells:
    def test_separate_where_nothing_else_does(self) -> None:
        log = rows(*(f"{1718238472 + at} {at} %" for at in range(5)))

        assert ratios(log) == [0.0, 0.01, 0.02, 0.03, 0.04]
        assert stamps_s(log) == [0.0, 1.0, 2.0, 3.0, 4.0]

    def test_separate_a_date_from_its_time(self) -> None:
        log = rows(*(f"2025-06-13 00:27:{at:02d}.5 {40 + at}" for at in range(5)))

        assert ratios(log) == [0.4, 0.41, 0.42, 0.43, 0.44]
        assert stamps_s(log) == [0.0, 1.0, 2.0, 3.0, 4.0]


class TestADateAndATimeInTwoColumns:
    def test_are_one_stamp(self) -> None:
        log = rows("Date,Time,GPU Util %", "2025-06-13,23:59:59,5", "2025-06-14,00:00:00,6")

        samples, facts = read_log(log)

        assert stamps_s(log) == [0.0, 1.0]
        assert facts.clock.iso(samples[0].stamp_ns) == "2025-06-13T23:59:59.000"

    def test_are_one_stamp_without_a_header(self) -> None:
        log = rows(*(f"2025/06/13, 00:00:{at:02d}, {at} %" for at in range(20)))

        assert stamps_s(log) == [float(at) for at in range(20)]
        assert "column 1 as date, column 2 as timestamp" in notes(log)


class TestUnitsInAnyMix:
    def test_are_read_row_by_row(self) -> None:
        log = rows("time,util,temp", "1,5 %,30", "2,6,30", "3,7%,30 C")

        assert ratios(log) == [0.05, 0.06, 0.07]

    @pytest.mark.parametrize(
        "cell",
        ["[N/A]", "[Not Supported]", "[Unknown Error]", "ERR!", "Field not found", "N/A", "",
         "[GPU is lost]", "Unknown Error", "null"],
    )  # fmt: skip
    def test_where_the_gpu_gave_no_answer_are_not_observed(self, cell: str) -> None:
        samples, facts = read_log(smi_log([5, 6]).replace("6 %", cell))

        assert [sample.busy_ratio for sample in samples] == [0.05, None]
        assert "without an answer of the GPU" in " ".join(facts.notes)

    @pytest.mark.parametrize(
        "line",
        [
            "Unable to determine the device handle for GPU 0000:3B:00.0: Unknown Error",
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make "
            "sure that the latest NVIDIA driver is installed and running.",
            "Failed to initialize NVML: Driver/library version mismatch",
            "No devices were found",
        ],
    )
    def test_with_errors_of_nvidia_smi_between_are_counted_with_that_reason(
        self, line: str
    ) -> None:
        samples, facts = read_log(smi_log([5, 6]) + rows("", line))

        assert len(samples) == 2
        assert facts.skipped_lines == 1
        assert "could not ask the GPU" in " ".join(facts.notes)

    def test_with_nothing_but_errors_of_nvidia_smi_says_so(self) -> None:
        with pytest.raises(UnreadableLogError, match=r"nvidia-smi could not ask the GPU.*NVML"):
            ratios(rows("Failed to initialize NVML: Unknown Error", "") * 3)


class TestMemory:
    @pytest.mark.parametrize(
        ("heading", "cell", "used_bytes"),
        [
            ("memory.used [MiB]", "1830 MiB", 1830 << 20),
            ("memory.used [MiB]", "1830", 1830 << 20),
            ("gpu_memory_used_gb", "1.5", 3 * GIB // 2),
            ("memory_used_bytes", "4096", 4096),
            ("mem_used", "2 GB", 2 * GIB),
            ("memory.used [MiB]", "[N/A]", None),
            ("Memory Usage (MB)", '"1,830"', 1830 << 20),
        ],
    )
    def test_in_use_is_told_with_its_row(
        self, heading: str, cell: str, used_bytes: int | None
    ) -> None:
        samples, _ = read_log(rows(f"time,util,{heading}", f"1,5,{cell}", f"2,6,{cell}"))

        assert [sample.memory_used_bytes for sample in samples] == [used_bytes, used_bytes]

    def test_of_the_gpu_is_told_once(self) -> None:
        log = rows(
            "index, utilization.gpu [%], memory.used [MiB], memory.total [MiB]",
            "0, 5 %, 1 MiB, 32768 MiB",
        )

        assert read_log(log)[1].gpus[0].memory_bytes == 32 * GIB


class TestTheNameOfAColumn:
    @pytest.mark.parametrize(
        "heading",
        ["GPU Util %", "gpu_util(%)", "Utilization", "sm", "load", "nvidia.gpu.util", "gpu [%]",
         "GPU Load (%)", "gpu%", "GPU usage"],
    )  # fmt: skip
    def test_may_be_any_sensible_one(self, heading: str) -> None:
        assert ratios(rows(f"time,{heading}", "1,5", "2,60")) == [0.05, 0.6]

    def test_that_is_surer_goes_before_the_others(self) -> None:
        header = "time,load,utilization.memory [%],utilization.gpu [%],utilization.encoder [%]"

        assert ratios(rows(header, "1,2,3,4,5")) == [0.04]

    def test_that_comes_twice_is_ambiguous_and_says_what_settles_it(self) -> None:
        log = rows("time,GPU util,gpu_load", "1,5,6")

        with pytest.raises(
            UnreadableLogError,
            match=r'line 1: the utilisation could be any of the columns 2 "GPU util", '
            r'3 "gpu_load"; say which: --column utilization\.gpu=2',
        ):
            ratios(log)
        assert ratios(log, LogOptions(columns={"utilization.gpu": 2})) == [0.06]

    @pytest.mark.parametrize("said", ["beta", "Beta [%]", " beta"])
    def test_may_be_said_by_the_user(self, said: str) -> None:
        log = rows("time,alpha,Beta [%]", "1,5,6")

        assert ratios(log, LogOptions(columns={"utilization.gpu": said})) == [0.06]

    def test_said_by_the_user_must_be_there(self) -> None:
        with pytest.raises(UsageError, match="no such column; it has time, util"):
            ratios(rows("time,util", "1,5"), LogOptions(columns={"utilization.gpu": "gamma"}))

    def test_said_by_the_user_needs_a_header(self) -> None:
        with pytest.raises(UsageError, match="the log has no header"):
            ratios(rows("1,5", "2,6"), LogOptions(columns={"utilization.gpu": "gamma"}))


class TestALogOfSomethingElse:
    @pytest.mark.parametrize(
        "log",
        [
            rows("epoch,loss", *(f"{at},{0.9**at:.4f}" for at in range(20))),
            rows("step,loss,accuracy", *(f"{at},{0.9**at:.4f},0.5" for at in range(20))),
            rows("epoch;loss;val_loss", *(f"{at};0,7;0,8" for at in range(20))),
            rows("time,cpu,ram", "1,50,60", "2,50,60"),
            rows("timestamp, memory.used [MiB]", f"{smi_stamp(1)}, 20 MiB"),
            rows("MemTotal:       65714164 kB", "MemFree:        51298384 kB", "Buffers: 7 kB") * 9,
            rows("Epoch 1/10", "100/100 - 3s - loss: 0.6931", "Epoch 2/10") * 9,
            rows("a,b,c", "x,y,z"),
        ],
        ids=["loss", "accuracy", "commas", "cpu", "memory", "meminfo", "keras", "words"],
    )
    def test_is_refused_and_never_guessed(self, log: str) -> None:
        with pytest.raises(UnreadableLogError, match="utilisation"):
            ratios(log)

    def test_is_not_a_lone_column_of_numbers(self) -> None:
        assert ratios("5\n60\n7\n") == [0.05, 0.6, 0.07]


class TestManyGpus:
    def test_up_to_a_thousand_are_told_apart(self) -> None:
        log = rows(
            "timestamp, index, utilization.gpu [%]",
            *(f"{smi_stamp(at)}, {gpu}, {gpu % 100} %" for at in range(4) for gpu in range(1_000)),
        )

        samples, facts = read_log(log)

        assert len(facts.gpus) == 1_000
        assert len(samples) == 4_000
        assert facts.notes == ()

    def test_of_which_there_are_too_many_are_refused(self) -> None:
        log = rows("index, utilization.gpu [%]", *(f"{at}, 5 %" for at in range(2_000)))

        with pytest.raises(UnreadableLogError, match=r"more than 1,024 .*GPUs.*line 1026"):
            ratios(log)


class TestRowsThatNameNoGpu:
    def test_are_taken_for_gpus_in_their_order_and_that_is_said(self) -> None:
        log = rows("timestamp, utilization.gpu [%]", *(
            f"{smi_stamp(at)}, {gpu} %" for at in range(20) for gpu in (1, 2)
        ))  # fmt: skip

        assert "the 2 rows of a moment were taken for 2 GPUs" in notes(log)


class TestTheHeader:
    def test_in_front_of_which_something_was_printed_is_found(self) -> None:
        assert ratios("starting logger\n\n" + HEADER + "\n" + smi_log([5]).split("\n", 1)[1]) == [
            0.05
        ]


class TestRowsThatEndAsOthersDid:
    def test_mean_something_else_under_another_header(self) -> None:
        log = rows(
            "timestamp, utilization.gpu [%], temperature.gpu",
            *(f"{smi_stamp(at)}, 5, 60" for at in range(4)),
            "timestamp, temperature.gpu, utilization.gpu [%]",
            *(f"{smi_stamp(at)}, 5, 60" for at in range(4, 8)),
        )

        assert ratios(log) == [0.05] * 4 + [0.6] * 4

    def test_speak_of_nothing_under_a_header_without_utilisation(self) -> None:
        log = rows(
            "timestamp, utilization.gpu [%]",
            *(f"{smi_stamp(at)}, 5" for at in range(4)),
            "timestamp, temperature.gpu",
            *(f"{smi_stamp(at)}, 5" for at in range(4, 8)),
        )

        samples, facts = read_log(log)

        assert len(samples) == 4
        assert facts.skipped_lines == 5

    def test_are_the_next_gpus_where_no_column_names_them(self) -> None:
        log = rows(
            "timestamp, utilization.gpu [%]",
            *(f"{smi_stamp(at)}, 5" for at in range(9) for _ in range(2)),
        )

        assert [sample.gpu for sample in read_log(log)[0]][:4] == [0, 1, 0, 1]


class TestAHeadingThatNobodyKnows:
    ROWS = tuple(
        f"{1_772_442_000 + tick},{card},{90 + card}" for tick in range(5) for card in (0, 1)
    )

    def test_is_the_time_where_moments_follow_each_other_under_it(self) -> None:
        samples, facts = read_log(rows("Zeit,index,util", *self.ROWS))

        assert seconds_of([sample.stamp_ns for sample in samples][::2]) == [0, 1, 2, 3, 4]
        assert 'Column 1, "Zeit", was taken as timestamp' in facts.notes[0]

    def test_is_the_index_where_it_counts_the_gpus_of_every_moment(self) -> None:
        _, facts = read_log(rows("time,card,util", *self.ROWS))

        assert [gpu.index for gpu in facts.gpus] == [0, 1]
        assert 'Column 2, "card", was taken as index' in facts.notes[0]

    def test_is_no_time_where_the_same_number_or_any_is_under_it(self) -> None:
        sizes = ("12582912000", "9663676416", "12582912000", "2147483648")

        for column in (sizes, sizes[:1] * 4):
            _, facts = read_log(rows("vram_b,util", *(f"{size},94" for size in column)))

            assert not facts.clock.is_wall
