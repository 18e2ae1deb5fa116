"""Specification of telling GPUs apart: by a name they have, or by their order in a tick."""

from __future__ import annotations

from itertools import chain

import pytest

from gpumon.sources.logs.table.gpu_rows import rows_per_tick
from tests.builders.logs import analysed, rows


class TestRowsOfATick:
    @pytest.mark.parametrize("count", [2, 4, 8, 16])
    def test_are_counted_where_they_share_a_stamp(self, count: int) -> None:
        stamps = chain.from_iterable([tick * 1_000] * count for tick in range(8))

        assert rows_per_tick(list(stamps)) == (count, 1_000)

    @pytest.mark.parametrize(
        ("count", "stamps"),
        [
            pytest.param(3, [at // 3 * 1_000 + at % 3 * 7 for at in range(24)], id="lie close"),
            pytest.param(1, [1_000 * tick for tick in range(64)], id="lie evenly"),
            pytest.param(1, [0, 1_000, 2_000, 2_000, 3_000, 4_000, 5_000], id="one came twice"),
            pytest.param(1, [0, 0, 1_000, 1_000], id="are too few"),
        ],
    )
    def test_are_counted_where_they(self, count: int, stamps: list[int]) -> None:
        assert rows_per_tick(stamps)[0] == count


class TestAGpu:
    def test_has_no_name_where_its_board_gave_none(self) -> None:
        header = "timestamp, index, name, utilization.gpu [%]"
        moments = [f"2026/05/11 14:00:{second:02}.000" for second in range(20)]
        of_two = [f"{at}, {gpu}, 90 %" for at in moments for gpu in ("0, Tesla T4", "1, [N/A]")]

        assert [gpu.name for gpu in analysed(rows(header, *of_two)).gpus] == ["Tesla T4", None]
