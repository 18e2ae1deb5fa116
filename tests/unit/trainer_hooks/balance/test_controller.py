"""The controller finds the best split quickly, then rests until a speed changes."""

from __future__ import annotations

import os
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumon.core.attribution.batch_shares import simple_ratios
from tests.builders.balance import (
    Balanced,
    balance,
    controller_of,
    drawn_machine,
    slow_down,
)
from tests.needs import in_make_truth
from trainer_hooks.balance.controller import RatioController
from trainer_hooks.trainer_bench.simulated_gpus import (
    SimulatedGpu,
    SimulatedMachine,
    article_machine,
)

MAX_CHANGES = 10
OF_THE_BEST = 0.98
FIRST_SEED = 4_000_000
MACHINES = 70 if os.environ.get("GPUMON_WHOLE_TABLE") else 20

seeds = st.integers(0, 10**6)


def affine(*per_sample_ms: float, noise: float = 0.0, seed: int = 0) -> SimulatedMachine:
    """GPUs with 20 ms per step besides their samples."""
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
    def test_row_12_is_balanced_within_2_percent_of_the_best_grid_ratio(self, noise: float) -> None:
        machine = article_machine(noise=noise)
        controller = controller_of(machine, 1388)

        balanced = balance(machine, controller)

        assert balanced.part_of_best >= OF_THE_BEST
        assert len(balanced.changes) <= MAX_CHANGES
        assert simple_ratios(controller.counts) == (3, 2)  # the ratio its author settled on

    def test_row_12_gains_at_least_20_percent_and_is_balanced_again_after_a_slow_down(self) -> None:
        machine = article_machine(noise=0.02)
        controller = controller_of(machine, 1024)
        even = machine.true_speed([512, 512])

        balance(machine, controller)
        assert machine.true_speed(controller.counts) / even >= 1.2

        slow_down(machine, 0, by=1.4)
        balanced = balance(machine, controller)
        assert balanced.part_of_best >= OF_THE_BEST
        assert 1 <= len(balanced.changes) <= MAX_CHANGES


class TestUnknownMachines:
    """Seeds from four million on were not used while the controller was made."""

    @pytest.mark.parametrize("gpus", [2, 3, 4])
    def test_row_12_are_balanced_within_2_percent_and_again_after_a_slow_down(
        self, gpus: int
    ) -> None:
        outcomes = balanced_twice(gpus, noise=0.0)

        assert min(outcome.part_of_best for outcome in outcomes) >= OF_THE_BEST
        assert max(len(outcome.changes) for outcome in outcomes) <= MAX_CHANGES

    @in_make_truth
    @pytest.mark.parametrize("gpus", [2, 3, 4])
    def test_row_12_with_up_to_4_percent_noise_99_of_100_are(self, gpus: int) -> None:
        """Four noisy GPUs that all work in waves may hide the one split that fits their waves."""
        outcomes = balanced_twice(gpus, noise=None)

        parts = sorted(outcome.part_of_best for outcome in outcomes)
        assert parts[len(parts) // 100] >= OF_THE_BEST
        assert parts[0] >= 0.95
        assert max(len(outcome.changes) for outcome in outcomes) <= MAX_CHANGES


def balanced_twice(gpus: int, *, noise: float | None) -> list[Balanced]:
    """Machines that are each balanced, and again after one of their GPUs has slowed down."""
    outcomes = []
    for seed in range(FIRST_SEED, FIRST_SEED + MACHINES):
        machine, total = drawn_machine(seed, gpus=gpus, noise=noise)
        controller = controller_of(machine, total)
        outcomes.append(balance(machine, controller, intervals=40))
        random = Random(seed)
        slow_down(machine, random.randrange(gpus), by=random.choice((1.25, 1.5, 2.0)))
        outcomes.append(balance(machine, controller, intervals=40))
    return outcomes


class TestConstantSpeeds:
    @given(seeds, st.integers(2, 5))
    @settings(max_examples=30, deadline=None)
    def test_without_noise_lead_to_no_change_after_a_while(self, seed: int, gpus: int) -> None:
        machine, total = drawn_machine(seed, gpus=gpus, noise=0.0)
        controller = controller_of(machine, total)

        first = balance(machine, controller, intervals=40)
        later = balance(machine, controller, intervals=20)

        assert len(first.changes) <= MAX_CHANGES
        assert later.changes == ()
        splits = [change.new for change in first.changes]
        assert len(set(splits[:-1])) == len(splits[:-1]), "only the last may be tried twice"

    @given(seeds, st.integers(2, 4))
    @settings(max_examples=30, deadline=None)
    def test_keep_every_split_complete_within_memory_and_damped(self, seed: int, gpus: int) -> None:
        machine, total = drawn_machine(seed, gpus=gpus)
        controller = controller_of(machine, total)

        for change in balance(machine, controller, intervals=25).changes:
            assert sum(change.new) == total
            for old, new, gpu in zip(change.old, change.new, machine.gpus, strict=True):
                assert 1 <= new <= gpu.holds
                assert old // 2 <= new <= 2 * old + 1 or "tried" in change.reason

    @pytest.mark.parametrize("seed", range(2))
    def test_noise_does_not_flap_the_split(self, seed: int) -> None:
        machine = affine(1.0, 1.0, 1.0, noise=0.04, seed=seed)
        controller = controller_of(machine, 300)

        assert len(balance(machine, controller, intervals=300).changes) <= 2


class TestAnInterval:
    def test_odd_measurement_changes_the_split_when_repeated(self) -> None:
        controller = RatioController((50, 50))
        usual, odd = (0.1, 0.1), (0.1, 0.3)

        changes = [controller.advance((50, 50), times) for times in [usual] * 5 + [odd, usual, odd]]
        assert changes == [None] * 8
        change = controller.advance((50, 50), odd)
        assert change is not None
        assert change.new[0] > 50 > change.new[1]

    def test_equal_slowdown_changes_nothing(self) -> None:
        controller = RatioController((50, 50))

        changes = [
            controller.advance((50, 50), (0.1 * slower, 0.1 * slower))
            for slower in (1.0, 1.0, 1.5, 1.5, 1.5)
        ]

        assert changes == [None] * 5

    def test_after_a_slow_drift_is_followed(self) -> None:
        machine = affine(1.0, 1.0)
        controller = controller_of(machine, 200)
        balance(machine, controller, intervals=5)

        for percent in range(1, 21):
            slow_down(machine, 1, by=1 + percent / 100)
            balance(machine, controller, intervals=4)

        assert balance(machine, controller).part_of_best >= OF_THE_BEST

    def test_after_a_slow_drift_of_all_outdates_the_times_of_other_splits(self) -> None:
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

    def test_other_batch_size_needs_no_new_curves(self) -> None:
        machine = affine(1.0, 3.0)
        balance(machine, controller := controller_of(machine, 400), intervals=10)

        first = controller.advance((100, 100), machine.train((100, 100)).busy_seconds or ())

        assert first is not None
        assert machine.true_speed(first.new) >= 0.98 * machine.true_speed((150, 50))

    @pytest.mark.parametrize(
        ("counts", "busy_seconds"),
        [((0, 100), (0.1, 0.1)), ((50, 50), (0.0, 0.1)), ((50, 50), (float("nan"), 0.1)),
         ((50, 50), (float("inf"), 0.1)), ((100,), (0.1,)), ((50, 50), (0.1,))],
    )  # fmt: skip
    def test_invalid_measurement_is_refused_and_changes_nothing(
        self, counts: tuple[int, ...], busy_seconds: tuple[float, ...]
    ) -> None:
        controller = RatioController((50, 50))

        with pytest.raises(ValueError, match="GPU"):
            controller.advance(counts, busy_seconds)

        assert controller.counts == (50, 50)
        assert controller.advance((50, 50), (0.1, 0.1)) is None


class TestAChange:
    def test_has_the_splits_the_reason_and_the_expected_gain(self) -> None:
        controller = RatioController((512, 512), names=("GPU:0", "GPU:1"))

        change = controller.advance((512, 512), (0.4, 0.6))

        assert change is not None
        assert change.old == (512, 512)
        assert change.new == controller.counts
        assert change.reason.startswith("GPU:1 is slowest: the fastest GPU takes 33.3%")
        assert change.expected_gain == pytest.approx(0.25, abs=0.01)


class TestMemoryLimits:
    def test_apply_from_the_first_split_on(self) -> None:
        assert RatioController((694, 694), limits=(None, 640)).counts == (748, 640)


@pytest.mark.parametrize("counts", [(), (0, 1), (-1, 3)])
def test_a_controller_needs_a_sample_for_each_gpu(counts: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="a sample"):
        RatioController(counts)
