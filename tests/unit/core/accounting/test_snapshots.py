"""Specification of snapshots by time: how counters grew, and values packed into bytes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.accounting.snapshots import MAX_CELLS, Cells, CounterHistory, Packer
from gpumon.pipeline.history import snapshot_of
from tests.builders.state import S, healthy_gpu, monitor_state, starved_gpu

LONG_NS = 40_000


def every_tick(count: int, *, busy: Sequence[int] = (1,)) -> CounterHistory:
    """One snapshot a nanosecond; the counter grows by these amounts in turn."""
    history, counter = CounterHistory(0, [0]), 0
    for at in range(count):
        counter += busy[at % len(busy)]
        history.add(at + 1, [counter])
    return history


def cells_of(history: CounterHistory, start_ns: int, end_ns: int) -> Cells:
    cells = history.cells(start_ns, end_ns)
    assert cells is not None
    return cells


@pytest.fixture(scope="module")
def long_history() -> CounterHistory:
    return every_tick(LONG_NS, busy=(10,))


class TestAShortHistory:
    def test_has_a_cell_for_each_snapshot(self) -> None:
        cells = cells_of(every_tick(6, busy=(0, 5)), 0, 6)

        assert cells == Cells(0, 6, 1, ((0, 5, 0, 5, 0, 5),))

    def test_knows_no_time_beyond_its_snapshots(self) -> None:
        history = every_tick(6)

        assert cells_of(history, -10, 99) == cells_of(history, 0, 6)
        assert (history.cells(7, 9), history.cells(-9, 0), history.cells(3, 3)) == (None,) * 3

    def test_grows_evenly_between_two_snapshots(self) -> None:
        history = CounterHistory(0, [0, 0])
        history.add(100, [10, 1])

        assert cells_of(history, 50, 80) == Cells(50, 80, 30, ((3,), (0,)))


class TestALongHistory:
    @pytest.mark.parametrize("last_ns", [600, 3_000, LONG_NS])
    def test_has_a_few_hundred_cells_for_any_stretch_up_to_now(
        self, long_history: CounterHistory, last_ns: int
    ) -> None:
        cells = cells_of(long_history, LONG_NS - last_ns, LONG_NS)

        assert MAX_CELLS // 4 <= len(cells.grown[0]) <= MAX_CELLS
        assert (cells.start_ns, cells.end_ns) == (LONG_NS - last_ns, LONG_NS)
        assert sum(cells.grown[0]) == 10 * last_ns


class TestAPackedValue:
    def test_is_unpacked_as_an_equal_one(self) -> None:
        packer = Packer()
        values = [snapshot_of(monitor_state(taken_at_ns=at_ns)) for at_ns in (S, 2 * S)]

        packed = [packer.pack(value) for value in values]

        assert [packer.unpack(data) for data in packed] == values

    def test_needs_little_space_after_similar_ones(self) -> None:
        packer = Packer()
        gpus = (starved_gpu(), healthy_gpu()) * 4
        first = packer.pack(snapshot_of(monitor_state(gpus=gpus)))

        later = packer.pack(snapshot_of(monitor_state(gpus=gpus, taken_at_ns=7 * S)))

        assert packer.unpack(first).at_ns != packer.unpack(later).at_ns == 7 * S
        assert sys.getsizeof(later) < 1_000


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
        history.add(at_ns, [counter])

    whole, late = history.cells(-1, at_ns), history.cells(start_ns, at_ns)

    assert whole is not None
    assert sum(whole.grown[0]) == counter
    if late is not None:
        assert sum(late.grown[0]) <= counter
        assert min(late.grown[0]) >= 0
        assert len(late.grown[0]) <= MAX_CELLS + 1
