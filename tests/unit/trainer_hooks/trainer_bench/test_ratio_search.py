"""Specification of ``--balance``: the best ratio, in fewer runs than by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gpumon.errors import GpumonError
from trainer_hooks.multi_gpu.balance.simulated_gpus import article_machine
from trainer_hooks.trainer_bench.engine import BatchTooLargeError, BenchStep, Engine
from trainer_hooks.trainer_bench.measuring import Measured, measure
from trainer_hooks.trainer_bench.modes import RUNS_OF_THE_AUTHOR
from trainer_hooks.trainer_bench.progress import NoProgress
from trainer_hooks.trainer_bench.ratio_search import RatioFound, RatioSearch
from trainer_hooks.trainer_bench.simulated_engine import SimulatedEngine

PAIR = ("GPU:0", "GPU:1")
SOLO_SPEEDS = 1345 + 875


def searched(batch: int, engine: Engine | None = None) -> RatioFound:
    trains = engine or SimulatedEngine()

    def train(gpus: Sequence[str], batches: Sequence[int]) -> Measured:
        return measure(trains, gpus, batches, seconds=10, progress=NoProgress())

    return RatioSearch(train, PAIR, batch).search(most_runs=RUNS_OF_THE_AUTHOR - 1)


class TestTheArticlesPair:
    def test_row_3_gains_at_least_17_percent_over_even(self) -> None:
        """1810 -> 2123 in the article."""
        even = article_machine().true_speed([512, 512])

        assert searched(1388).best.samples_a_second / even >= 1.17

    def test_row_4_reaches_95_6_percent_of_the_sum_of_solo_speeds(self) -> None:
        assert searched(1388).best.samples_a_second / SOLO_SPEEDS >= 0.956

    @pytest.mark.parametrize("batch", [512, 1024, 1388, 1500])
    def test_row_12_is_within_2_percent_of_the_best_grid_ratio(self, batch: int) -> None:
        machine = article_machine()
        grid = [
            machine.true_speed([first, batch - first])
            for first in range(1, batch)
            if first <= 1024 and batch - first <= 640
        ]

        found = searched(batch)

        assert machine.true_speed(found.best.batches) >= 0.98 * max(grid)

    @pytest.mark.parametrize("batch", [512, 1024, 1388, 1500])
    def test_takes_fewer_runs_than_its_author_needed(self, batch: int) -> None:
        assert searched(batch).runs < RUNS_OF_THE_AUTHOR == 8

    def test_comes_out_at_the_ratio_its_author_settled_on(self) -> None:
        assert searched(1388).ratios == (3, 2)

    def test_that_does_not_hold_the_batch_is_told_to_take_a_smaller(self) -> None:
        with pytest.raises(GpumonError, match="take a smaller"):
            searched(2000)


class Secretive(SimulatedEngine):
    """As real ones are: it tells neither the busy times nor which GPU ran out of memory."""

    def _step(self, numbers: Sequence[int], batches: Sequence[int]) -> BenchStep:
        try:
            step = super()._step(numbers, batches)
        except BatchTooLargeError:
            raise BatchTooLargeError(None) from None
        return BenchStep(step.samples, step.seconds)


@pytest.mark.parametrize("batch", [512, 1024])
def test_an_engine_that_tells_no_busy_times_will_do(batch: int) -> None:
    machine = article_machine()
    grid = [machine.true_speed([n, batch - n]) for n in range(1, batch) if batch - n <= 640]

    found = searched(batch, Secretive())

    assert machine.true_speed(found.best.batches) >= 0.98 * max(grid)
    assert found.runs < RUNS_OF_THE_AUTHOR
