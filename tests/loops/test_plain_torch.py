"""Specification of the tags in a PyTorch loop of one's own: no order of making things matters."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.loops.builders_loops import Sleeps, finds_wait, stretch
from tests.programs import ran_python
from trainer_hooks import phase, step, timed

pytestmark = pytest.mark.keras_torch

STEPS = 50
# A scheduler is made of its optimizer.
ORDERS = [
    ("optimizer", "scheduler", "timed"),
    ("optimizer", "timed", "scheduler"),
    ("timed", "optimizer", "scheduler"),
]

OPTIMIZER_FIRST = """
import json, sys, torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
loader = torch.utils.data.DataLoader(torch.randn(400, 4), batch_size=8)
assert "trainer_hooks" not in sys.modules
from trainer_hooks import phase, step, timed
for rows in timed(loader):
    with phase("train_step"):
        optimizer.zero_grad()
        model(rows).mean().backward()
        optimizer.step()
        scheduler.step()
    step(samples=len(rows))
from trainer_hooks.ring.process_ring import process_ring
pen = process_ring().writer
print(json.dumps([pen.steps, pen.samples, pen.facts.loader["batch_size"]]))
"""


class Loop:
    """A small training, made in whatever order."""

    def __init__(self, order: tuple[str, ...], waits: Sleeps) -> None:
        import torch

        torch.manual_seed(0)
        self._torch = torch
        self._model = torch.nn.Linear(4, 1)
        self._waits = waits
        for thing in order:
            getattr(self, f"_make_{thing}")()

    def _make_timed(self) -> None:
        self._source = timed(self._batches())

    def _make_optimizer(self) -> None:
        self._optimizer = self._torch.optim.SGD(self._model.parameters(), lr=0.1)

    def _make_scheduler(self) -> None:
        self._scheduler = self._torch.optim.lr_scheduler.StepLR(self._optimizer, 10)

    def _batches(self) -> Iterator[Any]:
        rows = self._torch.Generator().manual_seed(1)
        for _ in range(STEPS):
            self._waits()
            yield self._torch.randn(8, 4, generator=rows)

    def train(self) -> list[float]:
        for rows in self._source:
            with phase("train_step"):
                self._optimizer.zero_grad()
                self._model(rows).square().mean().backward()
                self._optimizer.step()
                self._scheduler.step()
            step(samples=len(rows))
        weights: list[float] = self._model.weight.flatten().tolist()
        return weights


class TestTheOrderOfMakingThings:
    @pytest.mark.measured
    @pytest.mark.parametrize("order", ORDERS, ids="-".join)
    def test_changes_neither_the_count_nor_the_wait_nor_the_result(
        self, order: tuple[str, ...]
    ) -> None:
        waits = Sleeps(0.004)
        with stretch() as found:
            weights = Loop(order, waits).train()

        assert (found[0].after.steps, found[0].after.samples) == (STEPS, STEPS * 8)
        assert finds_wait(found[0], waits.spent_ns, steps=STEPS)
        assert weights == Loop(ORDERS[0], Sleeps()).train()

    def test_includes_the_import(self, tmp_path: Path) -> None:
        environ = {"GPUMON_RUNTIME_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
        done = ran_python("-c", OPTIMIZER_FIRST, environ=environ, timeout_s=120)

        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == [50, 400, 8]


class TestALoader:
    def test_is_itself_under_timed(self) -> None:
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
    def test_with_workers_is_waited_for_only_as_long_as_it_takes(self) -> None:
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


class TestOtherWaits:
    @pytest.mark.measured
    def test_are_what_their_regions_say(self) -> None:
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
