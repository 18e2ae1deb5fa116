"""The search for the largest batch, also where memory is unlimited."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_hooks.trainer_bench.batch_search import BatchFound, find_batch
from trainer_hooks.trainer_bench.modes import MOST_ON_CPU, largest_batches


def holding(most: int) -> Callable[[int], float | None]:
    return lambda batch: 100.0 if batch <= most else None


def found_in(room: int, **options: Any) -> BatchFound:
    """The result for a memory that holds at least one sample."""
    found = find_batch(holding(room), **options)
    assert found is not None
    return found


class TestTheLargestBatch:
    @given(st.integers(1, 100_000), st.integers(1, 4096), st.floats(0, 0.9))
    def test_fits_and_nothing_clearly_larger_does(
        self, most: int, first: int, margin: float
    ) -> None:
        found = found_in(most, first=first, margin=margin)

        assert found.fits <= most <= found.fits * (1 + 1 / 32) + 1
        assert 1 <= found.advised <= found.fits

    @given(st.integers(1, 1 << 20))
    def test_is_advised_after_few_tries_and_was_tried_last(self, most: int) -> None:
        found = found_in(most)

        assert found.tries[-1] == (found.advised, 100.0)
        assert len(found.tries) <= 25

    def test_is_advised_with_a_margin_and_as_a_multiple_of_eight(self) -> None:
        found = found_in(1000, margin=0.1)

        assert found.advised <= 0.9 * found.fits
        assert found.advised % 8 == 0

    @pytest.mark.parametrize(("margin", "lost"), [(0.05, 20), (0.0, 5)])
    def test_is_smaller_where_memory_shrinks_during_the_search(
        self, margin: float, lost: int
    ) -> None:
        """An out-of-memory error may leave memory occupied."""
        room = [1000]
        tries: list[int] = []

        def leaking(batch: int) -> float | None:
            tries.append(batch)
            assert len(tries) < 50
            if batch <= room[0]:
                return 100.0
            room[0] -= lost
            return None

        found = find_batch(leaking, margin=margin)

        assert found is not None
        assert found.advised <= room[0]

    def test_is_none_where_not_even_one_sample_fits(self) -> None:
        assert find_batch(holding(0)) is None


@dataclass
class Endless:
    """A session whose device holds any batch."""

    gpus: tuple[str, ...]
    batches: tuple[int, ...] = ()
    tried: list[int] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)
    samples_per_second: float = 100.0

    def measure_aloud(self, _: Any, batches: list[int]) -> Endless:
        self.tried += batches
        return self

    def print(self, line: str) -> None:
        self.printed.append(line)

    def notice_of(self, batch: int) -> None:
        pass


class TestOnACpu:
    def test_the_search_has_an_upper_limit(self) -> None:
        session: Any = Endless(("CPU:1",))

        outcome = largest_batches(session, margin=0.05)

        assert max(session.tried) == MOST_ON_CPU
        assert re.fullmatch(f"CPU:1: {MOST_ON_CPU} fit, the most .*; 3888 .*", session.printed[-2])
        assert outcome.fields["gpus"][0]["fits"] == MOST_ON_CPU
