"""Tests of the table that nvidia-smi prints in a loop."""

from __future__ import annotations

from gpumon.sources.logs.log_sample import LoggedGpu
from tests.builders.logs import analysed, example, rows, verified

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
MIG_ON = "|                               |                      |              Enabled |"
MIG_DEVICES = (
    "| MIG devices:                     |",
    "|  0    7   0   3  |      3MiB /  4864MiB | 14      0 |  1   0    0    0    0 |",
    "|                  |      0MiB /  8191MiB |           |                       |",
)
V100 = LoggedGpu(index=0, name="Tesla V100-PCIE...", memory_bytes=16_130 << 20)


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


def later(second: int) -> str:
    return DATE.replace(":14 ", f":{second} ")


COMPLETE = (DATE, *table("29%"))
CUT = "of a table that was cut off"
IN_GERMAN, IN_AN_UNKNOWN_LANGUAGE = (
    "Sa 24. Jan 21:52:14 CET 2026",
    "Sa 24. Narvinye 21:52:14 CET 2026",
)

ROWS = {
    "has the utilisation, the memory and the GPU, and is not of a process": example(
        *COMPLETE, busy=[29], used_mib=[12_000], gpus=(V100,)
    ),
    "may have no answer": example(
        DATE, *table("29%", "N/A", "ERR!"),
        busy=[29, None, None], skipped=2, noted="Skipped 1 line without a utilisation",
    ),
    **{
        f"is the same with mode {mode}": example(
            DATE, *HEADS, name_row(0, mode), answer_row("29%"), RULE, gpus=(V100,)
        )
        for mode in ("On ", "WDDM")
    },
    **{
        f"that was cut off after {length} characters is counted": example(
            *COMPLETE, DATE, *HEADS, name_row(), answer_row("97%")[:length],
            busy=[29], skipped=1, noted=CUT,
        )
        for length in (40, 60, 70, -1)
    },
}  # fmt: skip

TABLES = {
    "that was cut off in a row is counted": example(
        *COMPLETE, DATE, *table("97%")[:7], DATE, busy=[29], skipped=1, noted=f"1 line {CUT}"
    ),
    "without its beginning is counted": example(
        *table("97%")[4:], *COMPLETE, *table("97%")[4:],
        busy=[29], skipped=2, noted=f"2 lines {CUT}",
    ),
    "ends at the next date": example(
        *COMPLETE[:10], later(15), *gpu(1, "97%"), busy=[29], skipped=1, noted=f"1 line {CUT}"
    ),
    "between lines of another program is read": example(
        "epoch 1", *COMPLETE, "epoch 2: loss 0.3",
        busy=[29], skipped=2, noted="2 lines with other text than such a log has; first at line 1",
    ),
    "with a damaged row does not mark the GPU above it as partitioned": example(
        DATE, *HEADS, *gpu(0, "29%"), name_row(1), "| ?", MIG_ON, RULE,
        busy=[29], gpus=(V100,), skipped=1,
    ),
    "has the memory of instances and no utilisation": example(
        *COMPLETE[:10], *MIG_DEVICES[:2], busy=[29, None], used_mib=[12_000, 3], skipped=0,
        gpus=(V100, LoggedGpu(index=0, mig_index=3, memory_bytes=4_864 << 20)),
    ),
    "without an answer is refused": example(DATE, *table("N/A"), refused="without a utilisation"),
    "of instances without a time is refused": example(
        DATE, TITLE, RULE, *HEADS, name_row(), answer_row("N/A"), MIG_ON, RULE,
        refused="no line has both a GPU and a time",
    ),
}  # fmt: skip

CLOCKS = {
    "is the date of nvidia-smi and not one above it": example(
        "Sat Jan 24 09:52:10 PM UTC 2026", *COMPLETE, busy=[29], began="2026-01-24T21:52:14.000"
    ),
    "is read in German": example(
        IN_GERMAN, *table("29%"), IN_GERMAN.replace(":14", ":19"), *table("30%"), at_s=[0, 5],
    ),
    "in an unknown language is counted": example(
        IN_AN_UNKNOWN_LANGUAGE, *table("29%"), IN_AN_UNKNOWN_LANGUAGE, *table("30%"), at_s=[0, 1],
        skipped=2, noted="2 lines with other text than such a log has; first at line 1",
    ),
    **{
        f"is the date above the table: {first}": example(
            first, *table("29%"), second, *table("30%"), at_s=[0, 2], is_wall=True
        )
        for first, second in (
            ("Sat Jan 24 23:59:59 2026", "Sun Jan 25 00:00:01 2026"),
            ("Sat Jan 24 11:59:59 PM UTC 2026", "Sun Jan 25 12:00:01 AM UTC 2026"),
            ("2026-01-24T23:59:59+01:00", "2026-01-25T00:00:01+01:00"),
            ("1769295599", "1769295601"),
        )
    },
}  # fmt: skip


class TestARow:
    test_is_read_as_expected = verified(ROWS)


class TestATable:
    test_is_read_as_expected = verified(TABLES)

    def test_names_partitioned_gpus_in_a_note(self) -> None:
        heads = (*HEADS, name_row())
        report = analysed(rows(DATE, *heads, answer_row("N/A"), MIG_ON, RULE, *MIG_DEVICES))

        assert [one.totals.observed_ns for one in report.gpus] == [0, 0]
        assert any("GPU 0" in note and "MIG" in note for note in report.notes)


class TestTheDate:
    test_is_read_as_expected = verified(CLOCKS)
