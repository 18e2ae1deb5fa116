"""Tests of the GPU of a row: by its name, or by its order in a tick."""

from __future__ import annotations

import pytest

from gpumon.sources.logs.table.gpu_rows import rows_per_tick
from tests.builders.logs import analysed, rows


@pytest.mark.parametrize(
    ("count", "stamps"),
    [
        *[pytest.param(n, [at // n * 1_000 for at in range(8 * n)], id=f"{n}") for n in (2, 16)],
        pytest.param(3, [at // 3 * 1_000 + at % 3 * 7 for at in range(24)], id="close"),
        pytest.param(1, [1_000 * tick for tick in range(64)], id="even"),
        pytest.param(1, [0, 1_000, 2_000, 2_000, 3_000, 4_000, 5_000], id="one twice"),
        pytest.param(1, [0, 0, 1_000, 1_000], id="too few"),
    ],
)
def test_rows_of_a_tick_are_counted(count: int, stamps: list[int]) -> None:
    assert rows_per_tick(stamps)[0] == count


def test_a_gpu_without_a_name_has_none() -> None:
    header = "timestamp, index, name, utilization.gpu [%]"
    times = [f"2026/05/11 14:00:{second:02}.000" for second in range(20)]
    of_two = [f"{at}, {gpu}, 90 %" for at in times for gpu in ("0, Tesla T4", "1, [N/A]")]

    assert [gpu.name for gpu in analysed(rows(header, *of_two)).gpus] == ["Tesla T4", None]
