"""``--balance`` finds the best ratio, in fewer runs than by hand."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import pytest

from gpumon.errors import GpumonError, UsageError
from trainer_hooks.trainer_bench.measuring import (
    BenchStep,
    Engine,
    Feed,
    GpuOutOfMemoryError,
    Measured,
)
from trainer_hooks.trainer_bench.modes import RUNS_OF_THE_AUTHOR, Session, best_ratio
from trainer_hooks.trainer_bench.ratio_search import RatioSearch
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
