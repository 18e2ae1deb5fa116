"""Specification of energy as a counter: it never goes back, and shows no energy no one measured."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.clock import NS_PER_S
from gpumon.sources.nvml.fields.reader import EnergyCounter
from tests.builders.nvml import Refusals

EVERY_S = 5


def joules_after(*millijoules: int | None, every_s: int = EVERY_S) -> list[float | None]:
    """What is handed out for those readings of a board's counter."""
    counter = EnergyCounter(Refusals())
    return [
        counter.update(reading, (number + 1) * every_s * NS_PER_S)
        for number, reading in enumerate(millijoules)
    ]


class TestTheCounter:
    @pytest.mark.parametrize(
        ("millijoules", "joules"),
        [
            pytest.param([5_000_000, 5_002_500, 5_002_500], [5_000.0, 5_002.5, 5_002.5],
                         id="begins with what the board used before, and follows the board's own"),
            pytest.param([9_000_000, 9_500_000, 20, 1_020], [9_000.0, 9_500.0, 9_500.0, 9_501.0],
                         id="goes on from where it was when the board's own restarts"),
            pytest.param([9_000_000, 8_999_990, 8_999_995], [9_000.0, 9_000.0, 9_000.005],
                         id="adds nothing where the board's own went back a little"),
            pytest.param([1_000, None, None, 900_000], [1.0, None, None, 900.0],
                         id="counts all that was used while it could not be read"),
            pytest.param([None, None], [None, None], id="is no answer where the board gives none"),
        ],
    )  # fmt: skip
    def test_shows(self, millijoules: list[int | None], joules: list[float | None]) -> None:
        assert joules_after(*millijoules) == joules

    def test_adds_nothing_of_more_than_can_have_been_used_since(self, refused: Refusals) -> None:
        counter = EnergyCounter(refused)
        counter.update(0, 1 * NS_PER_S)

        assert counter.update(10**12, 6 * NS_PER_S) == 0.0
        assert counter.update(10**12 + 500, 11 * NS_PER_S) == 0.5
        assert refused.count == 1


steps = st.lists(
    st.tuples(
        st.integers(0, 700_000),  # millijoules used since the moment before ...
        st.integers(0, 700_000),  # ... and after a reset in between, if there was one
        st.booleans(),  # whether there was
        st.booleans(),  # whether the board answers
    ),
    min_size=1,
    max_size=60,
)


class TestLaws:
    @given(st.lists(st.one_of(st.none(), st.integers(-5, (1 << 64) - 1)), max_size=60))
    def test_it_never_falls_whatever_the_board_says(self, readings: list[int | None]) -> None:
        reported = [joules for joules in joules_after(*readings) if joules is not None]

        assert all(early <= late for early, late in pairwise(reported))

    @given(steps)
    def test_it_shows_all_between_readings_without_a_reset_and_never_more_than_was_used(
        self, steps: list[tuple[int, int, bool, bool]]
    ) -> None:
        refused = Refusals()
        counter, now_ns, joules = EnergyCounter(refused), 0, None
        on_board = used_in_all = certain = since_reading = 0
        was_reset = False
        for before, after, resets, answers in steps:
            now_ns += EVERY_S * NS_PER_S
            used = before + after if resets else before
            used_in_all, since_reading = used_in_all + used, since_reading + used
            on_board = after if resets else on_board + before
            was_reset |= resets
            if answers:
                certain += 0 if was_reset else since_reading
                joules = counter.update(on_board, now_ns)
                was_reset, since_reading = False, 0

        if joules is not None:
            assert certain <= round(joules * 1000) <= used_in_all
        assert refused.count == 0
