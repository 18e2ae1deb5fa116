"""Specification of the controller: soon at the best split, then quiet until a speed changes."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.core.attribution.batch_shares import simple_ratios
from tests.builders_gpus import (
    Levelled,
    controller_of,
    drawn_machine,
    level,
    slow_down,
)
from trainer_hooks.multi_gpu.balance.controller import RatioController
from trainer_hooks.multi_gpu.balance.simulated_gpus import (
    SimulatedGpu,
    SimulatedMachine,
    article_machine,
)

MOST_CHANGES = 10
OF_THE_BEST = 0.98
FIRST_SEED = 4_000_000

seeds = st.integers(0, 10**6)


def affine(*per_sample_ms: float, noise: float = 0.0, seed: int = 0) -> SimulatedMachine:
    """GPUs with 20 ms beside their samples."""
    return SimulatedMachine(
        tuple(
            SimulatedGpu(name="a", points=((0, 0.02), (100, 0.02 + ms / 10)), noise=noise)
            for ms in per_sample_ms
        ),
        seed=seed,
    )


class TestTheArticlesPair:
    """Row 12 of the acceptance table: automatic ratios."""

    @pytest.mark.parametrize("noise", [0.0, 0.02])
    def test_row_12_is_levelled_within_2_percent_of_the_best_grid_ratio(self, noise: float) -> None:
        machine = article_machine(noise=noise)
        controller = controller_of(machine, 1388)

        levelled = level(machine, controller)

        assert levelled.part_of_best >= OF_THE_BEST
        assert len(levelled.changes) <= MOST_CHANGES

    def test_row_12_comes_out_at_the_ratio_its_author_settled_on(self) -> None:
        machine = article_machine()
        controller = controller_of(machine, 1388)

        level(machine, controller)

        assert simple_ratios(controller.counts) == (3, 2)

    def test_row_12_gains_at_least_20_percent_over_even(self) -> None:
        machine = article_machine()
        controller = controller_of(machine, 1024)
        even = machine.true_speed([512, 512])

        level(machine, controller)

        assert machine.true_speed(controller.counts) / even >= 1.2

    def test_row_12_is_levelled_again_after_one_slows_down(self) -> None:
        machine = article_machine(noise=0.02)
        controller = controller_of(machine, 1024)
        level(machine, controller)

        slow_down(machine, 0, by=1.4)
        levelled = level(machine, controller)

        assert levelled.part_of_best >= OF_THE_BEST
        assert 1 <= len(levelled.changes) <= MOST_CHANGES


class TestMachinesNotSeenBefore:
    """Seeds from four million on were not looked at while the controller was made."""

    @pytest.mark.parametrize("gpus", [2, 3, 4])
    def test_row_12_are_levelled_within_2_percent_and_again_after_a_slow_down(
        self, gpus: int
    ) -> None:
        outcomes = levelled_and_again(gpus, noise=0.0)

        assert len(outcomes) == 140
        assert min(outcome.part_of_best for outcome in outcomes) >= OF_THE_BEST
        assert max(len(outcome.changes) for outcome in outcomes) <= MOST_CHANGES

    @pytest.mark.parametrize("gpus", [2, 3, 4])
    def test_row_12_with_up_to_4_percent_of_noise_a_step_99_of_100_are(self, gpus: int) -> None:
        """Four noisy GPUs that all work in waves may hide the one split that fits their waves."""
        outcomes = levelled_and_again(gpus, noise=None)

        parts = sorted(outcome.part_of_best for outcome in outcomes)
        assert parts[len(parts) // 100] >= OF_THE_BEST
        assert parts[0] >= 0.95
        assert max(len(outcome.changes) for outcome in outcomes) <= MOST_CHANGES


def levelled_and_again(gpus: int, *, noise: float | None) -> list[Levelled]:
    """Of 70 machines, each levelled, and again after one of its GPUs has slowed down."""
    outcomes = []
    for seed in range(FIRST_SEED, FIRST_SEED + 70):
        machine, total = drawn_machine(seed, gpus=gpus, noise=noise)
        controller = controller_of(machine, total)
        outcomes.append(level(machine, controller, intervals=40))
        random = Random(seed)
        slow_down(machine, random.randrange(gpus), by=random.choice((1.25, 1.5, 2.0)))
        outcomes.append(level(machine, controller, intervals=40))
    return outcomes


class TestASteadyWorld:
    @given(seeds, st.integers(2, 5))
    @settings(max_examples=30, deadline=None)
    def test_without_noise_sees_no_change_after_a_while(self, seed: int, gpus: int) -> None:
        machine, total = drawn_machine(seed, gpus=gpus, noise=0.0)
        controller = controller_of(machine, total)

        begun = level(machine, controller, intervals=40)
        later = level(machine, controller, intervals=20)

        assert len(begun.changes) <= MOST_CHANGES
        assert later.changes == ()

    @given(seeds)
    @settings(max_examples=30, deadline=None)
    def test_never_sees_a_split_tried_twice_but_to_stay_with_it(self, seed: int) -> None:
        machine, total = drawn_machine(seed, gpus=2, noise=0.0)
        controller = controller_of(machine, total)

        splits = [change.new for change in level(machine, controller).changes]

        assert len(set(splits[:-1])) == len(splits[:-1])

    @given(seeds, st.integers(2, 4))
    @settings(max_examples=30, deadline=None)
    def test_keeps_every_split_whole_within_memory_and_damped(self, seed: int, gpus: int) -> None:
        machine, total = drawn_machine(seed, gpus=gpus)
        controller = controller_of(machine, total)

        for change in level(machine, controller, intervals=25).changes:
            assert sum(change.new) == total
            for old, new, gpu in zip(change.old, change.new, machine.gpus, strict=True):
                assert 1 <= new <= gpu.holds
                assert old // 2 <= new <= 2 * old + 1 or "tried" in change.reason

    @pytest.mark.parametrize("seed", range(5))
    def test_with_noise_does_not_flap(self, seed: int) -> None:
        machine = affine(1.0, 1.0, 1.0, noise=0.04, seed=seed)
        controller = controller_of(machine, 300)

        assert len(level(machine, controller, intervals=300).changes) <= 2

    def test_of_equal_gpus_is_left_alone(self) -> None:
        machine = affine(1.0, 1.0)

        assert level(machine, controller_of(machine, 200)).changes == ()


class TestAnInterval:
    def test_that_is_odd_once_changes_nothing(self) -> None:
        controller = RatioController((50, 50))
        for _ in range(5):
            assert controller.advance((50, 50), (0.1, 0.1)) is None

        assert controller.advance((50, 50), (0.1, 0.3)) is None
        assert controller.advance((50, 50), (0.1, 0.1)) is None

    def test_that_is_odd_twice_does(self) -> None:
        controller = RatioController((50, 50))
        for _ in range(5):
            controller.advance((50, 50), (0.1, 0.1))

        controller.advance((50, 50), (0.1, 0.3))
        change = controller.advance((50, 50), (0.1, 0.3))

        assert change is not None
        assert change.new[0] > 50 > change.new[1]

    def test_in_which_all_are_slower_alike_changes_nothing(self) -> None:
        controller = RatioController((50, 50))

        changes = [
            controller.advance((50, 50), (0.1 * slower, 0.1 * slower))
            for slower in (1.0, 1.0, 1.5, 1.5, 1.5)
        ]

        assert changes == [None] * 5

    def test_after_a_slow_creep_is_followed(self) -> None:
        machine = affine(1.0, 1.0)
        controller = controller_of(machine, 200)
        level(machine, controller, intervals=5)

        for percent in range(1, 21):
            slow_down(machine, 1, by=1 + percent / 100)
            level(machine, controller, intervals=4)

        assert level(machine, controller).part_of_best >= OF_THE_BEST

    def test_after_a_slow_creep_of_all_has_forgotten_what_other_splits_took_before(self) -> None:
        controller = RatioController((512, 512))
        controller.advance((512, 512), (0.39, 0.57))
        for _ in range(8):
            controller.advance((608, 416), (0.47, 0.471))
        known = [curve.points for curve in controller.speeds.curves]

        for interval in range(100):
            slower = 1.0005**interval  # none of them is odd, and the split stays the best
            assert controller.advance((608, 416), (0.47 * slower, 0.471 * slower)) is None

        assert [len(points) for points in known] == [2, 2]
        assert [
            [point.samples for point in curve.points] for curve in controller.speeds.curves
        ] == [[608], [416]]

    def test_of_another_batch_size_needs_no_new_curves(self) -> None:
        machine = affine(1.0, 3.0)
        level(machine, controller := controller_of(machine, 400), intervals=10)

        first = controller.advance((100, 100), machine.train((100, 100)).busy_seconds)

        assert first is not None
        assert machine.true_speed(first.new) >= 0.98 * machine.true_speed((150, 50))

    @pytest.mark.parametrize(
        ("counts", "busy_seconds"),
        [((0, 100), (0.1, 0.1)), ((50, 50), (0.0, 0.1)), ((50, 50), (float("nan"), 0.1)),
         ((50, 50), (float("inf"), 0.1)), ((100,), (0.1,)), ((50, 50), (0.1,))],
    )  # fmt: skip
    def test_that_says_nothing_is_refused_and_forgotten(
        self, counts: tuple[int, ...], busy_seconds: tuple[float, ...]
    ) -> None:
        controller = RatioController((50, 50))

        with pytest.raises(ValueError, match="GPU"):
            controller.advance(counts, busy_seconds)

        assert controller.counts == (50, 50)
        assert controller.advance((50, 50), (0.1, 0.1)) is None


class TestAChange:
    def test_says_what_why_and_what_it_promises(self) -> None:
        controller = RatioController((512, 512), names=("GPU:0", "GPU:1"))

        change = controller.advance((512, 512), (0.4, 0.6))

        assert change is not None
        assert change.old == (512, 512)
        assert change.new == controller.counts
        assert change.reason.startswith("GPU:1 is last, 33.3%")
        assert change.expected_gain == pytest.approx(0.25, abs=0.01)


class TestMemory:
    def test_is_respected_from_the_first_split_on(self) -> None:
        assert RatioController((694, 694), limits=(None, 640)).counts == (748, 640)


@pytest.mark.parametrize("counts", [(), (0, 1), (-1, 3)])
def test_a_controller_needs_a_sample_for_each_gpu(counts: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="a sample"):
        RatioController(counts)
