"""What tags prove on simulated loops: the truth is within the reported range."""

from __future__ import annotations

import os

import pytest

from tests.needs import in_make_truth
from tests.truth.loops.__main__ import (
    PAGE,
    SECONDS,
    UNSEEN_FROM,
    named_measured,
    named_table,
)
from tests.truth.loops.catalog import JOBS, LOOPS, drawn
from tests.truth.loops.measured import Measured, loop_measured

DRAWN = range(UNSEEN_FROM, UNSEEN_FROM + (80 if os.environ.get("GPUMON_WHOLE_TABLE") else 20))
UNSURE = (
    "the same where no rank counts its samples",
    "2 ranks, rank 1 loads for 150 ms, rank 0 computes for 200 ms, no samples counted",
)
"""Nothing shows whether their ranks do the same work, so the range begins at 0."""
UNSEEN = "4 ranks, rank 1 computes twice as long, waits read as busy"
"""Nothing shows who waits."""


@pytest.fixture(scope="module")
def measured() -> dict[str, Measured]:
    return named_measured()


@pytest.fixture(scope="module")
def of_drawn() -> dict[int, Measured]:
    return {seed: loop_measured(drawn(seed), SECONDS, seed) for seed in DRAWN}


class TestALoopOfTheCatalog:
    def test_loses_what_is_reported(self, measured: dict[str, Measured]) -> None:
        assert {
            (name, figure.name)
            for name in {*LOOPS, *JOBS} - {UNSEEN}
            for figure in measured[name].figures
            if not figure.is_true
        } == set()

    def test_has_a_range_from_0_where_the_work_of_its_ranks_is_unknown(
        self, measured: dict[str, Measured]
    ) -> None:
        assert {figure.low for name in UNSURE for figure in measured[name].figures} == {0}

    def test_has_no_range_where_it_is_synchronous(self, measured: dict[str, Measured]) -> None:
        for name in (name for name, loop in LOOPS.items() if loop.is_synchronous):
            assert all(one.low == one.best == one.high for one in measured[name].figures), name

    def test_is_on_the_page(self, measured: dict[str, Measured]) -> None:
        page = PAGE.read_text(encoding="utf-8")

        assert named_table(measured) in page, "run: python -m tests.truth.loops"
        assert "as far as utilisation can tell" in measured[UNSEEN].sentence


class TestADrawnLoop:
    def test_loses_what_is_reported(self, of_drawn: dict[int, Measured]) -> None:
        assert {
            (seed, figure.name)
            for seed, one in of_drawn.items()
            if one.is_in_use
            for figure in one.figures
            if not figure.is_true
        } == set()

    @in_make_truth
    def test_has_a_narrow_range_or_a_close_estimate_in_nine_of_ten(
        self, of_drawn: dict[int, Measured]
    ) -> None:
        figures = [
            figure
            for seed, one in of_drawn.items()
            if one.is_in_use and drawn(seed).grain_ms <= 200
            for figure in one.figures
        ]

        assert sum(figure.is_close for figure in figures) >= 0.9 * len(figures)

    def test_has_a_best_estimate_within_its_range(self, of_drawn: dict[int, Measured]) -> None:
        figures = [figure for one in of_drawn.values() for figure in one.figures]

        assert all(one.low <= one.best + 1e-9 <= one.high + 2e-9 for one in figures)

    def test_has_no_range_where_it_is_synchronous(self, of_drawn: dict[int, Measured]) -> None:
        assert [
            (seed, figure)
            for seed, one in of_drawn.items()
            if drawn(seed).is_synchronous and drawn(seed).grain_ms <= 200
            for figure in one.figures
            if figure.low != figure.high
        ] == []

    def test_is_reported_as_not_in_use_if_its_gpu_hardly_works(
        self, of_drawn: dict[int, Measured]
    ) -> None:
        hardly = [one.sentence for one in of_drawn.values() if not one.is_in_use]

        assert all("too little to count as in use" in sentence for sentence in hardly)
