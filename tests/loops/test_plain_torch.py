"""The tags in a custom PyTorch loop."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.loops.builders_loops import Sleeps, finds_wait, stretch
from trainer_hooks import phase, step, timed

pytestmark = pytest.mark.keras_torch

STEPS = 50


def train(source: Any) -> list[float]:
    """The weights after a pass over batches."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for rows in source:
        with phase("train_step"):
            optimizer.zero_grad()
            model(rows).square().mean().backward()
            optimizer.step()
        step(samples=len(rows))
    weights: list[float] = model.weight.flatten().tolist()
    return weights


def batches(waits: Sleeps) -> Iterator[Any]:
    import torch

    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        waits()
        yield torch.randn(8, 4, generator=generator)


class TestALoop:
    @pytest.mark.measured
    def test_has_its_steps_and_waits_recorded_and_its_result_unchanged(self) -> None:
        waits = Sleeps(0.004)
        with stretch() as found:
            weights = train(timed(batches(waits)))

        assert (found[0].after.steps, found[0].after.samples) == (STEPS, STEPS * 8)
        assert finds_wait(found[0], waits.spent_ns, steps=STEPS)
        assert weights == train(batches(Sleeps()))


class TestALoader:
    def test_keeps_its_attributes_under_timed(self) -> None:
        import torch

        rows = torch.utils.data.TensorDataset(torch.arange(12.0))
        loader = timed(torch.utils.data.DataLoader(rows, batch_size=4, shuffle=True))

        assert len(loader) == 3
        assert loader.dataset is rows
        assert isinstance(loader.sampler, torch.utils.data.RandomSampler)
        assert sum(len(batch[0]) for _ in range(2) for batch in loader) == 24
        with pytest.raises(AttributeError):
            _ = loader.no_such_thing

    @pytest.mark.measured
    def test_workers_leave_only_the_remaining_waits(self) -> None:
        import torch

        class Rows(torch.utils.data.Dataset):  # type: ignore[misc]
            def __len__(self) -> int:
                return 12

            def __getitem__(self, index: int) -> Any:
                time.sleep(0.01)
                return torch.zeros(3)

        waits = Sleeps()

        class Loader(torch.utils.data.DataLoader):  # type: ignore[misc]
            def __iter__(self) -> Iterator[Any]:
                with waits.around():
                    batches = super().__iter__()
                for _ in range(len(self)):
                    with waits.around():
                        batch = next(batches)
                    yield batch
                with waits.around():
                    del batches  # the worker is waited for

        with stretch() as found:
            for _ in timed(Loader(Rows(), num_workers=1, prefetch_factor=4)):
                with phase("train_step"):
                    time.sleep(0.02)
                step()

        facts = found[0].after.facts.loader
        assert (facts["kind"], facts["workers"], facts["prefetch"]) == ("DataLoader", 1, 4)
        assert found[0].after.steps == 12
        assert finds_wait(found[0], waits.spent_ns, steps=12)


class TestRegions:
    @pytest.mark.measured
    def test_have_their_own_time_without_the_regions_inside(self) -> None:
        saves, validates, fetches = Sleeps(0.2), Sleeps(0.05), Sleeps(0.01)
        with stretch() as found:
            for number in range(20):
                with phase("train_step"):
                    step()
                if number % 10 == 9:
                    with phase("checkpoint"), saves.around():
                        pass
                    with phase("validation"), validates.around(), phase("input_wait"):
                        fetches()

        seen = found[0]
        assert seen.share("checkpoint") == pytest.approx(saves.spent_ns / seen.wall_ns, abs=0.02)
        validated_ns = validates.spent_ns - fetches.spent_ns
        assert seen.share("validation") == pytest.approx(validated_ns / seen.wall_ns, abs=0.02)
        assert finds_wait(seen, fetches.spent_ns, steps=2)
        assert ("input_wait", 1) in seen.after.phases()
