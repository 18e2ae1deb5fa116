"""A rank's sampler without communication between ranks; needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from trainer_hooks.ddp import BatchShare, RatioSampler, global_mean, global_sum
from trainer_hooks.phases import timed
from trainer_hooks.ring import process_ring
from trainer_hooks.ring.ring_writer import RingWriter


def samplers(samples: int, batch_size: int, ratios: Sequence[float], **arguments: Any) -> list[Any]:
    """One for each rank."""
    world = len(ratios)
    return [
        RatioSampler(range(samples), batch_size, ratios, rank=rank, world_size=world, **arguments)
        for rank in range(world)
    ]


class Loader:
    """Draws batches ahead, like a DataLoader."""

    def __init__(self, batch_sampler: RatioSampler, *, ahead: int = 0) -> None:
        self.batch_sampler = batch_sampler
        self._ahead = ahead

    def __iter__(self) -> Any:
        batches = iter(self.batch_sampler)
        drawn = list(islice(batches, self._ahead))
        while True:
            drawn += islice(batches, 1)
            if not drawn:
                return
            yield drawn.pop(0)


class TestASampler:
    def test_gives_each_rank_its_part_of_every_batch(self) -> None:
        first, second = samplers(7, 5, (3, 2))

        assert list(first) == [[0, 1, 2], [5]]
        assert list(second) == [[3, 4], [6]]

    def test_splits_equally_without_ratios(self) -> None:
        sampler = RatioSampler(range(4), 4, rank=1, world_size=2)

        assert (list(sampler), sampler.ratios) == ([[2, 3]], (1, 1))

    def test_counts_its_batches_and_steps(self) -> None:
        for sampler in samplers(23, 10, (3, 2), micro_batches=2):
            assert (len(sampler), sampler.steps) == (len(list(sampler)), 3)
        for sampler in samplers(23, 10, (3, 2), drop_last=True):
            assert (len(sampler), sampler.steps) == (len(list(sampler)), 2)

    def test_resumes_from_a_checkpoint(self) -> None:
        complete, resumed = (samplers(28, 10, (3, 2), micro_batches=2)[0] for _ in range(2))
        resumed.set_epoch(0, start_step=1)

        assert list(resumed) == list(complete)[2:]
        assert len(resumed) == len(complete) - 2
        assert [share.step for _, share in resumed.shares(Loader(resumed))] == [1, 1, 2, 2]
        resumed.set_epoch(1)
        assert len(resumed) == len(complete)

    @pytest.mark.parametrize("samples", [20, 23])
    def test_has_no_batch_left_after_a_checkpoint_at_the_end_of_an_epoch(
        self, samples: int
    ) -> None:
        """A short last step has fewer micro-batches."""
        for sampler in samplers(samples, 10, (1, 1), micro_batches=4):
            sampler.set_epoch(0, start_step=sampler.steps)

            assert (len(sampler), list(sampler)) == (0, [])

    def test_takes_the_requested_number_of_samples(self) -> None:
        first, second = samplers(7, 5, (3, 2), num_samples=6)

        assert (list(first), list(second)) == ([[0, 1, 2], [5]], [[3, 4], [5, 5]])
        with pytest.raises(ValueError, match="num_samples must be 0 to 7, not 8"):
            samplers(7, 5, (3, 2), num_samples=8)


class TestTheShares:
    def test_come_with_the_batches(self) -> None:
        sampler = samplers(7, 5, (3, 2))[1]

        assert list(sampler.shares(Loader(sampler))) == [
            ([3, 4], BatchShare(step=0, samples=2, step_samples=5, world_size=2, ends_step=True)),
            ([6], BatchShare(step=1, samples=1, step_samples=2, world_size=2, ends_step=True)),
        ]

    def test_belong_to_their_batch_though_a_loader_draws_ahead(self) -> None:
        sampler = samplers(53, 10, (3, 2))[0]
        seen = []
        for rows, share in sampler.shares(timed(Loader(sampler, ahead=3))):
            assert len(rows) == share.samples
            seen.append(share.samples)
            if share.step == 1:
                sampler.set_ratios([1, 4], from_step=5)

        assert seen == [6, 6, 6, 6, 6, 1]

    def test_are_also_available_by_batch_number(self) -> None:
        sampler = samplers(7, 5, (3, 2))[0]
        sampler.set_epoch(0, start_step=1)

        assert [sampler.share_of(at) for at, _ in enumerate(sampler)] == [
            share for _, share in sampler.shares(Loader(sampler))
        ]

    def test_delay_gradients_until_the_last_micro_batch_of_a_step(self) -> None:
        class Model:
            def no_sync(self) -> Any:
                return nullcontext("held back")

        sampler = samplers(7, 5, (3, 2), micro_batches=2)[0]
        held = []
        for batch in range(3):
            with sampler.share_of(batch).accumulating(Model()) as state:
                held.append(state)

        assert held == ["held back", None, None]

    def test_leave_a_model_on_one_device_unchanged(self) -> None:
        share = BatchShare(step=0, samples=1, step_samples=2, world_size=1, ends_step=False)
        model: Any = object()  # it has no ``no_sync`` that could be entered

        with share.accumulating(model) as state:
            assert state is None


class TestChangedRatios:
    def test_between_epochs_start_with_the_next_one(self) -> None:
        sampler, _ = samplers(10, 5, (3, 2))
        list(sampler)
        sampler.set_epoch(1)

        assert sampler.set_ratios([1, 4]) == 0
        assert [len(batch) for batch in sampler] == [1, 1]

    def test_within_an_epoch_start_with_the_given_step(self) -> None:
        ranks = samplers(40, 10, (3, 2))
        taken = []
        for sampler, ahead in zip(ranks, (1, 2), strict=True):
            batches = iter(sampler)
            mine = list(islice(batches, ahead))
            assert sampler.set_ratios([1, 4], from_step=3) == 3
            taken.append(mine + list(batches))

        assert [[len(batch) for batch in mine] for mine in taken] == [[6, 6, 6, 2], [4, 4, 4, 8]]
        assert sorted(at for mine in taken for batch in mine for at in batch) == list(range(40))

    def test_cannot_start_with_a_drawn_step(self) -> None:
        sampler, _ = samplers(40, 10, (3, 2))
        batches = iter(sampler)
        list(islice(batches, 3))

        for step in (None, 2):
            with pytest.raises(ValueError, match="from_step, 3 or more"):
                sampler.set_ratios([1, 4], from_step=step)
        assert len(next(batches)) == 6

    def test_need_no_step_with_a_single_rank(self) -> None:
        (sampler,) = samplers(40, 10, (3,))
        batches = iter(sampler)
        next(batches)

        assert sampler.set_ratios([2]) == 1


class TestMisuse:
    @pytest.mark.parametrize("ratios", [(1, 2, 3), (1, 0), (1, -1), (1, float("nan")), (1, "2")])
    def test_invalid_ratios_are_refused_in_the_constructor_and_later(self, ratios: Any) -> None:
        sampler, _ = samplers(10, 5, (3, 2))

        with pytest.raises(ValueError, match=r"^ratios must"):
            sampler.set_ratios(ratios)
        with pytest.raises(ValueError, match=r"^ratios must"):
            RatioSampler(range(10), 5, ratios, rank=0, world_size=2)
        assert sampler.ratios == (3, 2)

    def test_one_process_for_several_ranks_is_refused(self) -> None:
        with pytest.raises(ValueError, match="the only one: start the script with torchrun"):
            RatioSampler(range(10), 5, [3, 2], rank=0, world_size=1)

    @pytest.mark.parametrize("rank", [-1, 2])
    def test_invalid_rank_is_refused(self, rank: int) -> None:
        with pytest.raises(ValueError, match=f"not {rank}"):
            RatioSampler(range(10), 5, rank=rank, world_size=2)

    @pytest.mark.parametrize("step", [-1, 3])
    def test_invalid_start_step_is_refused(self, step: int) -> None:
        sampler, _ = samplers(10, 5, (3, 2))

        with pytest.raises(ValueError, match=f"start_step .* 0 to 2, .* not {step}"):
            sampler.set_epoch(0, start_step=step)


def test_sums_of_a_single_process_are_its_own() -> None:
    assert (global_sum(3), global_mean(3, 4), global_mean(0.0, 0)) == (3.0, 0.75, None)


@pytest.fixture
def first_gpu(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUMON_GPUS", "1")


@pytest.mark.usefixtures("first_gpu")
class TestReportedShares:
    def second_of_two(self) -> RatioSampler:
        return RatioSampler(range(20), batch_size=5, ratios=[3, 2], rank=1, world_size=2)

    def test_are_the_ranks_part_and_the_number_of_changes(self, writer: RingWriter) -> None:
        sampler, reported = self.second_of_two(), []

        for step, _ in enumerate(sampler.shares(sampler)):
            reported.append((dict(writer.facts.shares), writer.facts.ratio_changes))
            if step == 1:
                sampler.set_ratios([1, 4], from_step=3)

        assert reported == [({"1": 0.4}, 0)] * 3 + [({"1": 0.8}, 1)]

    def test_need_no_ring_in_an_untagged_run(self) -> None:
        sampler = self.second_of_two()

        assert len(list(sampler.shares(sampler))) == 4
        assert process_ring.ring_so_far() is None
