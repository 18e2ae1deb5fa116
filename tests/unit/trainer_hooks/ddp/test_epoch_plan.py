"""The samples of each rank: every sample once, in batches of all ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.attribution.batch_shares import split_counts
from trainer_hooks.ddp.epoch_plan import EpochPlan, EpochShape


@st.composite
def shapes(draw: st.DrawFn) -> EpochShape:
    world_size = draw(st.integers(1, 4))
    micro_batches = draw(st.integers(1, 3))
    batch_size = draw(st.integers(world_size * micro_batches, 30))
    drop_last = draw(st.booleans())
    return EpochShape(
        samples=draw(st.integers(batch_size if drop_last else 1, 100)),
        batch_size=batch_size,
        world_size=world_size,
        micro_batches=micro_batches,
        drop_last=drop_last,
    )


@st.composite
def plans(draw: st.DrawFn) -> tuple[EpochShape, EpochPlan]:
    """With up to two changes of the ratios."""
    shape = draw(shapes())
    ratios = st.tuples(*[st.integers(1, 9)] * shape.world_size)
    plan = EpochPlan(shape, draw(ratios))
    for step in sorted(draw(st.lists(st.integers(0, shape.step_count), max_size=2))):
        plan.change(step, draw(ratios))
    return shape, plan


def batches_of_ranks(shape: EpochShape) -> Iterator[tuple[int, int]]:
    """Each rank's batches, as their number and its own."""
    return product(range(shape.batch_count), range(shape.world_size))


def samples_of(plan: EpochPlan, batches: Iterable[int], rank: int = 0) -> list[int]:
    """How many samples are in each of these batches."""
    return [plan.share(batch, rank).samples for batch in batches]


class TestAnEpoch:
    @given(plans())
    def test_has_every_sample_once_in_one_batch_of_all_ranks_per_step(
        self, shaped: tuple[EpochShape, EpochPlan]
    ) -> None:
        shape, plan = shaped
        taken: dict[int, list[int]] = {step: [] for step in range(shape.step_count)}
        weights = [0.0] * shape.step_count
        for at in batches_of_ranks(shape):
            share, positions = plan.share(*at), plan.positions(*at)
            taken[share.step] += list(positions)[: share.samples]  # with a weight
            weights[share.step] += share.weight / shape.world_size
            begin = share.step * shape.batch_size
            assert len(positions) == (share.samples or 2)
            assert all(begin <= one < begin + share.step_samples for one in positions)

        end = min(shape.samples, shape.step_count * shape.batch_size)
        assert [sorted(samples) for samples in taken.values()] == [
            list(range(end))[at : at + shape.batch_size] for at in range(0, end, shape.batch_size)
        ]
        assert weights == pytest.approx([1.0] * shape.step_count)

    @given(plans())
    def test_lets_all_ranks_step_after_the_same_batches(
        self, shaped: tuple[EpochShape, EpochPlan]
    ) -> None:
        shape, plan = shaped
        ends = [
            [plan.share(batch, rank).ends_step for batch in range(shape.batch_count)]
            for rank in range(shape.world_size)
        ]

        assert all(mine == ends[0] for mine in ends)
        assert sum(ends[0]) == shape.step_count
        assert ends[0][-1]


class TestAStep:
    def test_fewer_samples_than_ranks_leave_the_slowest_without_weight(self) -> None:
        plan = EpochPlan(EpochShape(samples=11, batch_size=9, world_size=3), (4, 3, 2))

        shares = [plan.share(1, rank) for rank in range(3)]
        assert [share.samples for share in shares] == list(split_counts(2, (4, 3, 2)))
        assert [share.weight for share in shares] == [1.5, 1.5, 0]
        assert list(plan.positions(1, 2)) == [9, 10]

    def test_one_sample_is_computed_by_ranks_without_samples_too(self) -> None:
        plan = EpochPlan(EpochShape(samples=10, batch_size=9, world_size=2), (2, 1))

        assert [list(plan.positions(1, rank)) for rank in (0, 1)] == [[9], [9, 9]]

    def test_needs_no_more_memory_at_the_end(self) -> None:
        shape = EpochShape(samples=167, batch_size=100, world_size=2, micro_batches=4)
        plan = EpochPlan(shape, (3, 2))

        assert samples_of(plan, range(7)) == [15, 15, 15, 15, 14, 13, 13]
        assert samples_of(plan, range(4, 7), rank=1) == [9, 9, 9]

    @pytest.mark.parametrize(
        ("samples", "pieces"), [(101, 1), (125, 1), (126, 2), (175, 3), (176, 4)]
    )
    def test_short_epoch_has_as_many_batches_as_without_ratios(
        self, samples: int, pieces: int
    ) -> None:
        """Schedules of learning rates, and trainers, count the batches of an equal split."""
        shape = EpochShape(samples=samples, batch_size=100, world_size=2, micro_batches=4)

        assert (shape.pieces_of(0), shape.pieces_of(1), shape.batch_count) == (
            4,
            pieces,
            4 + pieces,
        )


class TestChangedRatios:
    def test_apply_from_their_step_on_and_replace_later_ones(self) -> None:
        plan = EpochPlan(EpochShape(samples=40, batch_size=10, world_size=2), (1, 1))
        plan.change(2, (4, 1))
        assert samples_of(plan, range(4)) == [5, 5, 8, 8]

        plan.change(1, (3, 2))
        assert samples_of(plan, range(4)) == [5, 6, 6, 6]

    def test_can_start_with_the_first_undrawn_step(self) -> None:
        shape = EpochShape(samples=28, batch_size=10, world_size=2, micro_batches=2)
        plan = EpochPlan(shape, (1, 1))
        steps = []
        for drawn in range(shape.batch_count + 1):
            plan.next_batch = drawn
            steps.append(plan.undrawn_step)

        assert steps == [0, 1, 1, 2, 2, 3, 3]


class TestMisuse:
    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            ({"batch_size": 2}, "2 are too few for 3 ranks$"),
            ({"batch_size": 5, "micro_batches": 2}, "5 are too few for 3 ranks and 2 micro"),
            ({"batch_size": "ten"}, "batch_size must be a whole number, not 'ten'"),
            ({"micro_batches": 1.5}, "micro_batches must be a whole number, not 1.5"),
            ({"micro_batches": 0}, "micro_batches must be at least 1, not 0"),
            ({"samples": 0}, "there are 0 samples$"),
            ({"samples": 8, "drop_last": True}, "8 samples: fewer than a batch of 9, with drop"),
        ],
    )
    def test_invalid_shape_is_refused(self, arguments: dict[str, Any], reason: str) -> None:
        with pytest.raises(ValueError, match=reason):
            EpochShape(**{"samples": 90, "batch_size": 9, "world_size": 3, **arguments})
