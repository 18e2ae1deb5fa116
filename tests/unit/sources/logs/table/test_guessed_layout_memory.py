"""Specification of memory without a heading: known by what it does, or said to be not read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from gpumon.sources.logs.table.guessed_layout import memory_among
from gpumon.sources.logs.table.headings import Column
from tests.builders_logs import analysed, only_gpu, rows, smi_stamp

USED, TOTAL = Column.MEMORY_USED, Column.MEMORY_TOTAL
AT = {Column.STAMP: 0, Column.UTILIZATION: 1}
Log = Sequence[Sequence[object]]


def found_in(columns: Iterable[Sequence[object]]) -> tuple[dict[Column, int], str]:
    """What the columns after the utilisation are taken for; a row is its cells."""
    body = [
        [smi_stamp(at), f"{busy} %", *(f"{mib} MiB" for mib in mibs)]
        for at, (busy, *mibs) in enumerate(columns)
    ]
    return memory_among(body, AT)


IDLE_AND_HELD: Log = [(0, 61_000, 81_920)] * 30
KNOWN: dict[str, tuple[dict[Column, int], Log]] = {
    "two, of a GPU that is idle": ({USED: 2, TOTAL: 3}, IDLE_AND_HELD),
    "two, of a GPU that trains": (
        {USED: 2, TOTAL: 3}, [*[(97, 61_000, 81_920)] * 20, *[(0, 4, 81_920)] * 10]
    ),
    "two, the other way round": ({TOTAL: 2, USED: 3}, [(0, 81_920, 61_000)] * 30),
    "two, without an answer now and then": (
        {USED: 2, TOTAL: 3}, [*IDLE_AND_HELD, (0, "[N/A]", 81_920)]
    ),
    "three, by the work": (
        {TOTAL: 2, USED: 4},
        [*[(0, 81_920, 81_000, 4)] * 10, *[(97, 81_920, 20_000, 61_004)] * 10],
    ),
    "one that changes": ({USED: 2}, [*[(97, 61_000)] * 20, *[(0, 4)] * 10]),
}  # fmt: skip
UNKNOWN: dict[str, tuple[str, Log]] = {
    "two, of which one may be free of an unused GPU": ("3, 4", [(0, 81_004, 81_920)] * 30),
    "two, of which one is less while it works": (
        "3, 4", [*[(97, 20_000, 81_920)] * 20, *[(0, 81_004, 81_920)] * 10]
    ),
    "two that are the same": ("3, 4", [(0, 5_000, 5_000)] * 30),
    "two, used and free": ("3, 4", [(0, 2, 20_146), (88, 9_000, 11_148)] * 9),
    "three that never change": ("3, 4, 5", [(0, 81_920, 20_000, 61_004)] * 30),
}  # fmt: skip


class TestColumnsOfMib:
    @pytest.mark.parametrize(("positions", "log"), KNOWN.values(), ids=KNOWN)
    def test_are_known(self, positions: dict[Column, int], log: Log) -> None:
        assert found_in(log) == (positions, "")

    @pytest.mark.parametrize(("columns", "log"), UNKNOWN.values(), ids=UNKNOWN)
    def test_are_not_read_where_they_may_be_anything_and_that_is_said(
        self, columns: str, log: Log
    ) -> None:
        said = (
            f" Columns {columns} count MiB, and nothing says which is memory.used: none was read."
        )

        assert found_in(log) == ({}, said)

    def test_are_not_read_where_there_is_one_that_never_changes(self) -> None:
        said = " Column 3 counts MiB, and nothing says that it is memory.used: it was not read."

        assert found_in([(0, 61_000)] * 30) == ({}, said)

    def test_may_be_of_gpus_with_different_memory(self) -> None:
        small = ("0 %", "GPU-1a2b", "900 MiB", "24576 MiB")
        large = ("50 %", "GPU-3c4d", "70000 MiB", "81920 MiB")
        body = [[smi_stamp(at), *(small if at % 2 else large)] for at in range(60)]

        assert memory_among(body, {**AT, Column.UUID: 2})[0] == {USED: 3, TOTAL: 4}

    def test_let_a_gpu_be_found_that_holds_memory_and_does_nothing(self) -> None:
        log = rows(*(f"{smi_stamp(at)}, 0, 0 %, 61000 MiB, 81920 MiB" for at in range(1, 900)))

        held = only_gpu(analysed(log)).held_memory

        assert held is not None
        assert held.peak_bytes == 61_000 << 20
        assert held.longest_ns >= 890 * 10**9
