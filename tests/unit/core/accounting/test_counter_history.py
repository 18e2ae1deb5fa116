"""Specification of how counters grew: every stretch of time in a few hundred cells, whole sums."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.accounting.counter_history import MOST_NOTES, Cells, CounterHistory

MONTH_NS = 30 * 86_400


def every_tick(count: int, *, busy: Sequence[int] = (1,)) -> CounterHistory:
    """One note a nanosecond; the counter grows by these amounts in turn."""
    history, counter = CounterHistory(0, [0]), 0
    for at in range(count):
        counter += busy[at % len(busy)]
        history.note(at + 1, [counter])
    return history


def cells_of(history: CounterHistory, start_ns: int, end_ns: int) -> Cells:
    cells = history.cells(start_ns, end_ns)
    assert cells is not None
    return cells


@pytest.fixture(scope="module")
def month() -> CounterHistory:
    return every_tick(MONTH_NS // 10, busy=(10,))


class TestAShortHistory:
    def test_has_a_cell_for_each_note(self) -> None:
        cells = cells_of(every_tick(6, busy=(0, 5)), 0, 6)

        assert cells == Cells(0, 6, 1, ((0, 5, 0, 5, 0, 5),))

    def test_tells_of_a_part_of_it_alone(self) -> None:
        assert cells_of(every_tick(6, busy=(0, 5)), 1, 4) == Cells(1, 4, 1, ((5, 0, 5),))

    def test_tells_of_no_time_beyond_its_notes(self) -> None:
        history = every_tick(6)

        assert cells_of(history, -10, 99) == cells_of(history, 0, 6)
        assert (history.cells(7, 9), history.cells(-9, 0), history.cells(3, 3)) == (None,) * 3

    def test_grows_evenly_between_two_notes(self) -> None:
        history = CounterHistory(0, [0, 0])
        history.note(100, [10, 1])

        assert cells_of(history, 50, 80) == Cells(50, 80, 30, ((3,), (0,)))

    def test_may_be_noted_twice_at_one_instant(self) -> None:
        history = CounterHistory(0, [0])
        for at_ns, counter in ((5, 4), (5, 6), (10, 6)):
            history.note(at_ns, [counter])

        assert sum(cells_of(history, 0, 10).grown[0]) == 6


class TestALongHistory:
    @pytest.mark.parametrize("last_ns", [600, 3_000, 40_000, MONTH_NS // 10])
    def test_has_a_few_hundred_cells_for_any_stretch_up_to_now(
        self, month: CounterHistory, last_ns: int
    ) -> None:
        end_ns = MONTH_NS // 10
        cells = cells_of(month, end_ns - last_ns, end_ns)

        assert MOST_NOTES // 4 <= len(cells.grown[0]) <= MOST_NOTES
        assert (cells.start_ns, cells.end_ns) == (end_ns - last_ns, end_ns)
        assert sum(cells.grown[0]) == 10 * last_ns

    def test_is_as_fine_of_late_as_it_was_noted(self, month: CounterHistory) -> None:
        end_ns = MONTH_NS // 10

        assert cells_of(month, end_ns - 100, end_ns).cell_ns == 1


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 90)), min_size=1, max_size=1_500),
    st.integers(0, 9_000),
)
def test_what_cells_hold_adds_up_to_what_the_counter_grew_by(
    steps: list[tuple[int, int]], start_ns: int
) -> None:
    history, at_ns, counter = CounterHistory(-1, [0]), 0, 0
    for passed_ns, grown in steps:
        at_ns, counter = at_ns + passed_ns, counter + grown
        history.note(at_ns, [counter])

    whole, late = history.cells(-1, at_ns), history.cells(start_ns, at_ns)

    assert whole is not None
    assert sum(whole.grown[0]) == counter
    if late is not None:
        assert sum(late.grown[0]) <= counter
        assert min(late.grown[0]) >= 0
        assert len(late.grown[0]) <= MOST_NOTES + 1
