"""What tags prove on loops that no one modelled: within the range that is reported, or exact."""

from __future__ import annotations

import os

import pytest

from tests.needs import in_make_truth
from tests.truth.loops.__main__ import PAGE
from tests.truth.loops.catalog import JOBS, LOOPS, drawn
from tests.truth.loops.measured import Measured, loop_measured
from tests.truth.loops.table import named_measured, named_table

DRAWN_SECONDS = 60.0
DRAWN = 80 if os.environ.get("GPUMON_WHOLE_TABLE") else 30
UNSURE = {
    "the same where no rank counts its samples",
    "2 ranks, rank 1 loads for 150 ms, rank 0 computes for 200 ms, no samples counted",
}
"""Whether those ranks do the same work is not known, so the range begins at 0."""
UNSEEN = "4 ranks, rank 1 computes twice as long, waits read as busy"
"""Nothing shows who waits there, and the report says that it cannot say."""


@pytest.fixture(scope="module")
def measured() -> dict[str, Measured]:
    return named_measured()


@pytest.fixture(scope="module")
def of_drawn() -> dict[int, Measured]:
    return {
        seed: loop_measured(drawn(seed), DRAWN_SECONDS, seed)
        for seed in range(1_000, 1_000 + DRAWN)
    }


class TestALoopOfTheCatalog:
    @pytest.mark.parametrize("name", sorted({*LOOPS, *JOBS} - {UNSEEN}))
    def test_loses_what_is_reported(self, measured: dict[str, Measured], name: str) -> None:
        wrong = [figure for figure in measured[name].figures if not figure.is_true]

        assert wrong == []

    @pytest.mark.parametrize("name", sorted(UNSURE))
    def test_has_a_range_from_0_where_the_work_of_its_ranks_is_not_known(
        self, measured: dict[str, Measured], name: str
    ) -> None:
        assert all(figure.low == 0 for figure in measured[name].figures)

    @pytest.mark.parametrize("name", [name for name, one in LOOPS.items() if one.is_synchronous])
    def test_has_no_range_where_it_is_synchronous(
        self, measured: dict[str, Measured], name: str
    ) -> None:
        assert all(figure.low == figure.best == figure.high for figure in measured[name].figures)

    def test_is_reported_in_the_words_of_the_page(self, measured: dict[str, Measured]) -> None:
        assert named_table(measured) in PAGE.read_text(encoding="utf-8"), "run its __main__"

    def test_is_called_healthy_only_as_far_as_utilisation_can_show_where_no_one_can_see_it_wait(
        self, measured: dict[str, Measured]
    ) -> None:
        assert "as far as utilisation can tell" in measured[UNSEEN].sentence


class TestADrawnLoop:
    def test_loses_what_is_reported(self, of_drawn: dict[int, Measured]) -> None:
        wrong = {
            (seed, figure.name)
            for seed, one in of_drawn.items()
            if one.is_in_use
            for figure in one.figures
            if not figure.is_true
        }

        assert wrong == set()

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
        ranges = [
            (seed, figure)
            for seed, one in of_drawn.items()
            if drawn(seed).is_synchronous and drawn(seed).grain_ms <= 200
            for figure in one.figures
            if figure.low != figure.high
        ]

        assert ranges == []

    def test_that_hardly_uses_its_gpu_is_named_so(self, of_drawn: dict[int, Measured]) -> None:
        hardly = [one.sentence for one in of_drawn.values() if not one.is_in_use]

        assert all("too little to count as in use" in sentence for sentence in hardly)
