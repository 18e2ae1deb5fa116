"""Specification of memory without a heading: known by what it does, or said to be not read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from gpumon.sources.logs.table.guessed_layout import memory_among
from gpumon.sources.logs.table.headings import Column
from tests.builders_logs import analysed, only_gpu, rows, smi_stamp

USED, TOTAL = Column.MEMORY_USED, Column.MEMORY_TOTAL
AT = {Column.STAMP: 0, Column.UTILIZATION: 1}


def found_in(columns: Iterable[Sequence[object]]) -> tuple[dict[Column, int], str]:
    """What the columns after the utilisation are taken for; a row is its cells."""
    body = [
        [smi_stamp(at), f"{busy} %", *(f"{mib} MiB" for mib in mibs)]
        for at, (busy, *mibs) in enumerate(columns)
    ]
    return memory_among(body, AT)


IDLE_AND_HELD = [(0, 61_000, 81_920)] * 30
TRAINS_THEN_ENDS = [*[(97, 61_000, 81_920)] * 20, *[(0, 4, 81_920)] * 10]


class TestTwoColumnsOfMib:
    @pytest.mark.parametrize("log", [IDLE_AND_HELD, TRAINS_THEN_ENDS], ids=["held", "trains"])
    def test_are_the_memory_in_use_and_all_memory(self, log: list[tuple[int, ...]]) -> None:
        assert found_in(log) == ({USED: 2, TOTAL: 3}, "")

    def test_may_stand_the_other_way_round(self) -> None:
        assert found_in([(0, 81_920, 61_000)] * 30)[0] == {TOTAL: 2, USED: 3}

    def test_let_a_gpu_be_found_that_holds_memory_and_does_nothing(self) -> None:
        log = rows(*(f"{smi_stamp(at)}, 0, 0 %, 61000 MiB, 81920 MiB" for at in range(1, 900)))

        held = only_gpu(analysed(log)).held_memory

        assert held is not None
        assert held.peak_bytes == 61_000 << 20
        assert held.longest_ns >= 890 * 10**9

    def test_may_be_of_gpus_with_different_memory(self) -> None:
        body = [
            [smi_stamp(at), "0 %", "GPU-1a2b", "900 MiB", "24576 MiB"] if at % 2
            else [smi_stamp(at), "50 %", "GPU-3c4d", "70000 MiB", "81920 MiB"]
            for at in range(60)
        ]  # fmt: skip

        assert memory_among(body, {**AT, Column.UUID: 2})[0] == {USED: 3, TOTAL: 4}

    def test_may_lack_an_answer_here_and_there(self) -> None:
        log = [*IDLE_AND_HELD, (0, "[N/A]", 81_920)]

        assert found_in(log)[0] == {USED: 2, TOTAL: 3}

    @pytest.mark.parametrize(
        "log",
        [
            pytest.param([(0, 81_004, 81_920)] * 30, id="what is free of an unused GPU"),
            pytest.param(
                [*[(97, 20_000, 81_920)] * 20, *[(0, 81_004, 81_920)] * 10],
                id="less while it works",
            ),
            pytest.param([(0, 5_000, 5_000)] * 30, id="the same"),
            pytest.param([(0, 2, 20_146), (88, 9_000, 11_148)] * 9, id="used and free"),
        ],
    )
    def test_that_may_be_anything_else_are_not_read_and_that_is_said(
        self, log: list[tuple[int, ...]]
    ) -> None:
        assert found_in(log) == (
            {}, " Columns 3, 4 count MiB, and nothing says which is memory.used: none was read."
        )  # fmt: skip


class TestThreeColumnsOfMib:
    def test_are_told_by_the_work(self) -> None:
        log = [*[(0, 81_920, 81_000, 4)] * 10, *[(97, 81_920, 20_000, 61_004)] * 10]

        assert found_in(log)[0] == {TOTAL: 2, USED: 4}

    def test_are_not_where_nothing_ever_changes(self) -> None:
        found, remark = found_in([(0, 81_920, 20_000, 61_004)] * 30)

        assert not found
        assert "Columns 3, 4, 5 count MiB" in remark


class TestOneColumnOfMib:
    def test_is_the_memory_in_use_where_it_changes(self) -> None:
        assert found_in([*[(97, 61_000)] * 20, *[(0, 4)] * 10]) == ({USED: 2}, "")

    def test_is_not_read_where_it_never_does(self) -> None:
        assert found_in([(0, 61_000)] * 30) == (
            {}, " Column 3 counts MiB, and nothing says that it is memory.used: it was not read."
        )  # fmt: skip
