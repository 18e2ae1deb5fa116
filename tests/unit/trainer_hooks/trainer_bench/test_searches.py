"""``--balance`` finds the best ratio, ``--find-batch`` the largest batch, in few runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.errors import GpumonError, UsageError
from trainer_hooks.trainer_bench.measuring import (
    BenchStep,
    Engine,
    Feed,
    GpuOutOfMemoryError,
    Measured,
)
from trainer_hooks.trainer_bench.modes import (
    MOST_ON_CPU,
    RUNS_OF_THE_AUTHOR,
    Session,
    best_ratio,
    largest_batches,
)
from trainer_hooks.trainer_bench.searches import BatchFound, RatioSearch, find_batch
from trainer_hooks.trainer_bench.simulated_gpus import SimulatedEngine, article_machine

PAIR = ("GPU:0", "GPU:1")
SOLO_SPEEDS = 1345 + 875


def searched(batch: int, engine: Engine | None = None) -> RatioSearch:
    session = Session(engine or SimulatedEngine(), PAIR, (batch,), seconds=10, is_quiet=True)
    return RatioSearch(session.measure, PAIR, batch).search(most_runs=RUNS_OF_THE_AUTHOR - 1)


class WithoutBusyTimes(SimulatedEngine):
    """Like a real engine, it knows neither busy times nor which GPU ran out of memory."""

    def train(
        self, gpus: Sequence[str], batches: Sequence[int], feed: Feed | None = None
    ) -> Generator[BenchStep, None, None]:
        try:
            for step in super().train(gpus, batches, feed):
                yield BenchStep(step.samples, step.seconds)
        except GpuOutOfMemoryError:
            raise GpuOutOfMemoryError(None, gpus, batches) from None


class TestTheArticlesPair:
    def test_row_3_gains_at_least_17_percent_over_even(self) -> None:
        """1810 -> 2123 in the article."""
        even = article_machine().true_speed([512, 512])

        assert searched(1388).best.samples_per_second / even >= 1.17

    def test_row_4_reaches_95_6_percent_of_the_sum_of_solo_speeds(self) -> None:
        assert searched(1388).best.samples_per_second / SOLO_SPEEDS >= 0.956

    @pytest.mark.parametrize(
        ("batch", "kind"),
        [
            *((batch, SimulatedEngine) for batch in (512, 1024, 1388, 1500)),
            *((batch, WithoutBusyTimes) for batch in (512, 1024)),
        ],
    )
    def test_row_12_is_within_2_percent_of_the_best_grid_ratio_in_fewer_runs_than_by_hand(
        self, batch: int, kind: type[SimulatedEngine]
    ) -> None:
        machine = article_machine()
        grid = [
            machine.true_speed([first, batch - first])
            for first in range(1, batch)
            if first <= 1024 and batch - first <= 640
        ]

        found = searched(batch, kind())

        assert machine.true_speed(found.best.batches) >= 0.98 * max(grid)
        assert found.runs < RUNS_OF_THE_AUTHOR == 8

    def test_without_memory_for_the_batch_is_refused(self) -> None:
        with pytest.raises(GpumonError, match="smaller one"):
            searched(2000)


def test_gpus_without_memory_for_their_parts_are_refused() -> None:
    def train(gpus: Sequence[str], batches: Sequence[int]) -> Measured:
        if max(batches) > 60:
            raise GpuOutOfMemoryError(0, gpus, batches)
        return Measured(tuple(gpus), tuple(batches), sum(batches), 1.0, 1, (1.0,) * len(gpus))

    with pytest.raises(GpumonError, match="smaller batch"):
        RatioSearch(train, PAIR, 200).search(most_runs=7)


def test_a_gpu_without_memory_for_one_sample_never_trains_on_none() -> None:
    """Its memory is in use."""

    def train(gpus: Sequence[str], batches: Sequence[int]) -> Measured:
        assert min(batches) > 0
        raise GpuOutOfMemoryError(None, gpus, batches)

    with pytest.raises(GpumonError, match="GPU alone"):
        RatioSearch(train, PAIR, 2).search(most_runs=7)


def test_a_batch_of_one_sample_per_gpu_is_the_smallest() -> None:
    def session(*batches: int) -> Session:
        return Session(SimulatedEngine(), PAIR, batches, seconds=1, is_quiet=True)

    assert best_ratio(session(1, 1)).fields["batches"] == [1, 1]
    with pytest.raises(UsageError, match="--batches 1 "):
        best_ratio(session(1))


@pytest.mark.parametrize(("half_takes_s", "is_believed"), [(1.015, True), (1.025, False)])
def test_a_gpu_that_is_clearly_slower_with_half_its_batch_keeps_only_that_point(
    half_takes_s: float, *, is_believed: bool
) -> None:
    """2 % is noise; more means that the GPU was disturbed or slowed down."""
    together: list[tuple[int, ...]] = []

    def train(gpus: Sequence[str], batches: Sequence[int]) -> Measured:
        step_s = 1.0
        if len(gpus) > 1:
            together.append(tuple(batches))
        elif gpus[0] == PAIR[1] and batches[0] == 50:
            step_s = half_takes_s
        elif gpus[0] == PAIR[0]:
            step_s = 0.01 * batches[0]
        busy = (step_s,) * len(gpus)
        return Measured(tuple(gpus), tuple(batches), sum(batches), step_s, 1, busy)

    RatioSearch(train, PAIR, 200).search(most_runs=5)

    assert (together[0][1] > 90) is is_believed


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
