"""Specification of nvidia-smi's table: every moment of every GPU, and nothing that is none."""

from __future__ import annotations

import pytest

from gpumon.errors import UnreadableLogError
from gpumon.sources.logs.log_sample import LogFacts, LoggedGpu, LogOptions
from tests.builders_logs import analysed, ratios, read_log, rows, seconds_of

DATE = "Sat Jan 24 21:52:14 2026       "
TITLE = "| NVIDIA-SMI 418.87.01    Driver Version: 418.87.01    CUDA Version: 10.1     |"
HEADS = (
    "+-----------------------------------------------------------------------------+",
    TITLE,
    "|-------------------------------+----------------------+----------------------+",
    "| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |",
    "| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |",
    "|===============================+======================+======================|",
)
RULE = "+-------------------------------+----------------------+----------------------+"
PROCESSES = (
    "                                                                               ",
    "+-----------------------------------------------------------------------------+",
    "| Processes:                                                       GPU Memory |",
    "|  GPU       PID   Type   Process name                             Usage      |",
    "|=============================================================================|",
    "|    0     20311      C   python3 | tee 00000000:3B:00.0 | 99%      11988MiB |",
    "+-----------------------------------------------------------------------------+",
)


def name_row(index: int = 0, mode: str = "Off") -> str:
    return (
        f"|   {index}  Tesla V100-PCIE...  {mode}  | 00000000:3B:00.0 Off |                    0 |"
    )


def answer_row(answer: str, memory: str = " 12000MiB / 16130MiB") -> str:
    return f"| N/A   38C    P0   120W / 250W | {memory} |   {answer:>4}      Default |"


def gpu(index: int, answer: str, memory: str = " 12000MiB / 16130MiB") -> tuple[str, ...]:
    return (name_row(index), answer_row(answer, memory), RULE)


def table(*answers: str) -> tuple[str, ...]:
    body = [line for index, answer in enumerate(answers) for line in gpu(index, answer)]
    return (*HEADS, *body, *PROCESSES)


def told(facts: LogFacts, part: str) -> bool:
    return any(part in note for note in facts.notes)


class TestARow:
    def test_has_the_utilisation_the_memory_and_the_gpu(self) -> None:
        (sample,), facts = read_log(rows(DATE, *table("29%")))

        assert (sample.busy_ratio, sample.memory_used_bytes) == (0.29, 12_000 << 20)
        assert facts.gpus == (
            LoggedGpu(index=0, name="Tesla V100-PCIE...", memory_bytes=16_130 << 20),
        )
        assert facts.skipped_lines == 0

    @pytest.mark.parametrize("mode", ["On ", "Off", "N/A", "WDDM", "TCC"])
    def test_is_the_same_on_every_system(self, mode: str) -> None:
        _, facts = read_log(rows(DATE, *HEADS, name_row(0, mode), answer_row("29%"), RULE))

        assert facts.gpus[0].name == "Tesla V100-PCIE..."

    @pytest.mark.parametrize("answer", ["N/A", "ERR!"])
    def test_may_have_no_answer(self, answer: str) -> None:
        samples, facts = read_log(rows(DATE, *table("29%", answer)))

        assert [one.busy_ratio for one in samples] == [0.29, None]
        assert told(facts, "Skipped 1 line without an answer")

    @pytest.mark.parametrize("memory", ["     N/A / N/A", "    Not Supported"])
    def test_may_have_no_memory(self, memory: str) -> None:
        (sample,), _ = read_log(rows(DATE, *HEADS, *gpu(0, "29%", memory)))

        assert (sample.busy_ratio, sample.memory_used_bytes) == (0.29, None)

    @pytest.mark.parametrize("length", [40, 60, 70, -1])
    def test_that_was_cut_off_is_counted(self, length: int) -> None:
        whole, cut = table("29%"), answer_row("97%")[:length]

        samples, facts = read_log(rows(DATE, *whole, DATE, *HEADS, name_row(), cut))

        assert [one.busy_ratio for one in samples] == [0.29]
        assert told(facts, "of a table that was cut off")

    def test_of_a_process_is_never_taken_for_one_of_a_gpu(self) -> None:
        assert ratios(rows(DATE, *table("29%", "30%"))) == [0.29, 0.3]


class TestATable:
    @pytest.mark.parametrize("kept", [2, 4, 6, 7])
    def test_that_was_cut_off_is_counted(self, kept: int) -> None:
        samples, facts = read_log(rows(DATE, *table("29%"), DATE, *table("97%")[:kept]))

        assert [one.busy_ratio for one in samples] == [0.29]
        assert told(facts, "Skipped 1 line of a table that was cut off")

    def test_without_its_beginning_is_counted(self) -> None:
        headless = table("97%")[4:]

        samples, facts = read_log(rows(*headless, DATE, *table("29%"), *headless))

        assert [one.busy_ratio for one in samples] == [0.29]
        assert told(facts, "Skipped 2 lines of a table that was cut off")

    def test_is_over_where_the_next_date_stands(self) -> None:
        cut_off, headless = table("29%")[:9], gpu(1, "97%")

        samples, facts = read_log(rows(DATE, *cut_off, DATE.replace(":14 ", ":15 "), *headless))

        assert [one.busy_ratio for one in samples] == [0.29]
        assert told(facts, "Skipped 1 line of a table that was cut off")

    def test_between_lines_of_another_program_is_read(self) -> None:
        samples, facts = read_log(rows("epoch 1", DATE, *table("29%"), "epoch 2: loss 0.3"))

        assert [one.busy_ratio for one in samples] == [0.29]
        assert told(facts, "Skipped 2 lines that are no part of such a log; first at line 1")

    def test_says_which_gpus_are_cut_into_instances(self) -> None:
        report = analysed(
            rows(DATE, *HEADS, name_row(), answer_row("N/A"),
                 "|                               |                      |              Enabled |",
                 RULE, "| MIG devices:                     |",
                 "|  0    7   0   3  |      3MiB /  4864MiB | 14      0 |  1   0    0    0    0 |",
                 "|                  |      0MiB /  8191MiB |           |                       |")
        )  # fmt: skip

        assert [one.totals.observed_ns for one in report.gpus] == [0, 0]
        assert any("GPU 0 is cut into MIG instances" in note for note in report.notes)

    def test_takes_no_gpu_for_cut_because_of_a_row_after_one_that_cannot_be_read(self) -> None:
        on = "|                               |                      |              Enabled |"

        _, facts = read_log(rows(DATE, *HEADS, *gpu(0, "29%"), name_row(1), "| ?", on, RULE))

        assert not facts.gpus[0].mig_enabled
        assert facts.skipped_lines == 1

    def test_has_the_memory_of_instances_and_no_utilisation(self) -> None:
        samples, facts = read_log(
            rows(DATE, *table("29%")[:9], "| MIG devices:                     |",
                 "|  0    7   0   3  |      3MiB /  4864MiB | 14      0 |  1   0    0    0    0 |")
        )  # fmt: skip

        assert samples[1].busy_ratio is None
        assert samples[1].memory_used_bytes == 3 << 20
        assert facts.gpus[1] == LoggedGpu(index=0, mig_index=3, memory_bytes=4_864 << 20)


class TestATitleThatIsThereTwice:
    def test_leaves_the_table_its_date(self) -> None:
        heads = (HEADS[0], TITLE, *HEADS[1:])
        second = DATE.replace(":14 ", ":19 ")

        samples, facts = read_log(
            rows(DATE, *heads, *gpu(0, "29%"), second, *heads, *gpu(0, "31%"))
        )

        assert seconds_of([sample.stamp_ns for sample in samples]) == [0, 5]
        assert facts.skipped_lines == 2

    def test_above_gpus_that_are_cut_into_instances_is_no_reason_to_fail(self) -> None:
        on = "|                               |                      |              Enabled |"
        cut = (name_row(), answer_row("N/A"), on)

        (gpu,) = analysed(rows(DATE, TITLE, TITLE, *cut)).gpus

        assert gpu.mig_enabled


class TestTheClock:
    @pytest.mark.parametrize(
        ("first", "second"),
        [
            ("Sat Jan 24 23:59:59 2026", "Sun Jan 25 00:00:01 2026"),
            ("Sat Jan 24 11:59:59 PM UTC 2026", "Sun Jan 25 12:00:01 AM UTC 2026"),
            ("Sat 24 Jan 23:59:59 CET 2026", "Sun 25 Jan 00:00:01 CET 2026"),
            ("Sat 24 Jan 2026 11:59:59 PM CET", "Sun 25 Jan 2026 12:00:01 AM CET"),
            ("Sat, 24 Jan 2026 23:59:59 +0100", "Sun, 25 Jan 2026 00:00:01 +0100"),
            ("2026-01-24T23:59:59+01:00", "2026-01-25T00:00:01+01:00"),
            ("2026-01-24 23:59:59.250", "2026-01-25 00:00:01.250"),
            ("1769295599", "1769295601"),
        ],
    )
    def test_is_the_date_above_the_table(self, first: str, second: str) -> None:
        samples, facts = read_log(rows(first, *table("29%"), second, *table("30%")))

        assert seconds_of([one.stamp_ns for one in samples]) == [0, 2]
        assert facts.clock.is_wall
        assert facts.skipped_lines == 0

    def test_is_nvidia_smis_own_where_date_was_called_before_it(self) -> None:
        log = rows("Sat Jan 24 09:52:10 PM UTC 2026", DATE, *table("29%"))

        (sample,), facts = read_log(log)

        assert facts.clock.iso(sample.stamp_ns) == "2026-01-24T21:52:14.000"

    def test_is_never_another_ones_than_in_the_first_table(self) -> None:
        other = "Sat Jan 24 09:52:19 PM UTC 2026"

        samples, facts = read_log(rows(DATE, *table("29%"), other, *table("30%")))

        assert [one.busy_ratio for one in samples] == [0.29]
        assert told(facts, "Skipped 1 line with a time that cannot be read")

    def test_is_a_second_a_table_where_there_is_no_date(self) -> None:
        samples, facts = read_log(rows(*table("29%", "1%"), *table("30%", "2%")))

        assert seconds_of([one.stamp_ns for one in samples]) == [0, 0, 1, 1]
        assert told(facts, "1 s a table (assumed")

    def test_is_the_period_that_the_user_told_where_there_is_no_date(self) -> None:
        log = rows(*table("29%"), *table("30%"))

        samples, _ = read_log(log, LogOptions(period_ns=60 * 10**9))

        assert seconds_of([one.stamp_ns for one in samples]) == [0, 60]

    @pytest.mark.parametrize(
        "date", ["Sa 24. Jan 21:52:14 CET 2026", "sam. 24 janv. 2026 21:52:14 CET"]
    )
    def test_is_not_read_in_other_languages_and_that_is_counted(self, date: str) -> None:
        samples, facts = read_log(rows(date, *table("29%"), date, *table("30%")))

        assert seconds_of([one.stamp_ns for one in samples]) == [0, 1]
        assert told(facts, "Skipped 2 lines with a time that cannot be read; first at line 1")

    def test_spreads_tables_of_the_same_second_over_it(self) -> None:
        samples, _ = read_log(rows(DATE, *table("29%"), DATE, *table("30%")))

        assert seconds_of([one.stamp_ns for one in samples]) == [0, 0.5]


class TestALogOfNoUse:
    def test_is_refused_with_its_reasons(self) -> None:
        with pytest.raises(UnreadableLogError, match="without an answer"):
            read_log(rows(DATE, *table("N/A")))

    def test_is_one_with_gpus_cut_into_instances_and_no_moment(self) -> None:
        on = "|                               |                      |              Enabled |"
        undated = (*HEADS, name_row(), answer_row("N/A"), on, RULE)

        with pytest.raises(UnreadableLogError, match="no line of it tells of a GPU at a moment"):
            read_log(rows(DATE, TITLE, RULE, *undated))
