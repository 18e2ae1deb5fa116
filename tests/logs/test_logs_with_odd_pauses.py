"""Specification of reports on logs whose pauses are none, one, alike to the digit, or many."""

from __future__ import annotations

import tracemalloc

from gpumon.core.accounting.ledger import GpuLedger
from gpumon.core.settings.input_model import PRIOR
from gpumon.core.verdict import LikelyCause, VerdictName
from tests.builders.logs import analysed, only_gpu, smi_log
from tests.builders.time import every

ALIKE = ([97] * 5 + [0] * 3) * 40 + [97]
HEAD = "timestamp, index, utilization.gpu [%], memory.used [MiB]\n"


def with_memory(rows: list[object], memory: list[str]) -> str:
    stamps = (f"2026/03/02 09:{at // 60:02}:{at % 60:02}.000" for at in range(len(rows)))
    lines = zip(stamps, rows, memory, strict=True)
    return HEAD + "".join(f"{at}, 0, {percent} %, {used}\n" for at, percent, used in lines)


def test_pauses_alike_to_the_digit_may_be_anything() -> None:
    gpu = only_gpu(analysed(smi_log(ALIKE)))

    assert gpu.verdict.name is VerdictName.PARTIAL
    assert gpu.verdict.input_probability == PRIOR
    assert (gpu.verdict.likely_causes or ())[:2] == (LikelyCause.OPEN, LikelyCause.LATE_INPUT)


def test_memory_that_only_some_rows_have_changes_nothing() -> None:
    some = ["[N/A]" if at % 3 else "9000 MiB" for at in range(len(ALIKE))]

    with_some, with_all = (
        only_gpu(analysed(with_memory([*ALIKE], memory)))
        for memory in (some, ["9000 MiB"] * len(ALIKE))
    )

    assert with_some.verdict == with_all.verdict
    assert with_some.totals == with_all.totals


def test_however_many_there_are_no_more_is_remembered() -> None:
    ledger = GpuLedger()

    def settle(cycles: int) -> int:
        start_s = ledger.last_end_ns / 1e9 if ledger.last_end_ns > 0 else 0.0
        ledger.observe(every(1.0, [1.0, 1.0, 0.0] * cycles, start_s))
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        settle(3_000)  # intervals are merged from the thousandth on
        before = settle(1_000)
        after = settle(20_000)
    finally:
        tracemalloc.stop()

    assert ledger.snapshot().pauses.count > 23_000
    assert after < before + 100_000  # a single pointer for each would be 160,000
