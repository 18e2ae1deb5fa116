"""The simulated GPUs have the speeds and memory of the article."""

from __future__ import annotations

import pytest

from trainer_hooks.trainer_bench.measuring import GpuOutOfMemoryError
from trainer_hooks.trainer_bench.simulated_gpus import (
    SimulatedGpu,
    SimulatedMachine,
    article_machine,
)

AFFINE = ((0, 0.05), (100, 0.15))


class TestTheArticlesMachine:
    @pytest.mark.parametrize(
        ("gpu", "batch", "samples_per_second"),
        [(0, 64, 684), (0, 256, 1129), (0, 512, 1260), (0, 1024, 1345), (1, 512, 875)],
    )
    def test_is_as_fast_alone(self, gpu: int, batch: int, samples_per_second: int) -> None:
        assert article_machine().true_speed([batch], [gpu]) == pytest.approx(samples_per_second)

    @pytest.mark.parametrize(
        ("batches", "samples_per_second"),
        [((512, 512), 1810), ((512, 355), 2030), ((820, 568), 2123)],
    )
    def test_is_as_fast_together_within_3_percent(
        self, batches: tuple[int, int], samples_per_second: int
    ) -> None:
        assert article_machine().true_speed(batches) == pytest.approx(samples_per_second, rel=0.03)

    def test_has_the_memory_of_the_articles(self) -> None:
        machine = article_machine()

        machine.train([1024], [0])
        machine.train([820, 568])
        with pytest.raises(GpuOutOfMemoryError) as caught:
            machine.train([1024, 710])

        assert caught.value.gpu == 1
        assert "710 samples" in str(caught.value)
        assert machine.step == 2


class TestASimulatedGpu:
    def test_partial_wave_takes_as_long_as_a_complete_one(self) -> None:
        gpu = SimulatedGpu(name="a", points=AFFINE, wave=32)

        assert gpu.seconds_of(33) == gpu.seconds_of(64) > gpu.seconds_of(32)

    def test_is_slower_from_its_step_on(self) -> None:
        gpu = SimulatedGpu(name="a", points=AFFINE, slower_from_step=2, slower_by=1.5)
        machine = SimulatedMachine((gpu,))

        seconds = [machine.train([100]).seconds for _ in range(4)]

        assert seconds == pytest.approx([0.15, 0.15, 0.225, 0.225])


def test_several_gpus_wait_for_the_slowest_and_then_for_each_other() -> None:
    fast, slow = (SimulatedGpu(name="a", points=((0, 0.0), (100, s))) for s in (0.1, 0.2))
    machine = SimulatedMachine((fast, slow), sync_seconds=0.01, update_seconds=0.5)

    step = machine.train([100, 100])

    assert step.busy_seconds == pytest.approx((0.1, 0.2))
    assert step.seconds == pytest.approx(0.21)
    assert machine.true_speed([100, 100]) == pytest.approx(200 / 0.21)
