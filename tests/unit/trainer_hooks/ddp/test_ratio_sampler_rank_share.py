"""Specification of what a rank tells gpumon of its share: the part in force, as it is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer_hooks.ddp import RatioSampler
from trainer_hooks.ring import process_ring


@pytest.fixture(autouse=True)
def own_ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUMON_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("GPUMON_GPUS", "1")
    monkeypatch.setattr(process_ring._Slot, "ring", None)


def second_of_two() -> RatioSampler:
    return RatioSampler(range(20), batch_size=5, ratios=[3, 2], rank=1, world_size=2)


class TestARankThatTagsItsPhases:
    def test_tells_its_part_of_each_batch_and_counts_what_changes(self) -> None:
        writer = process_ring.process_ring().writer
        assert writer is not None
        sampler, told = second_of_two(), []

        for step, _ in enumerate(sampler.shares(sampler)):
            told.append((dict(writer.facts.shares), writer.facts.ratio_changes))
            if step == 1:
                sampler.set_ratios([1, 4], from_step=3)

        assert told == [({"1": 0.4}, 0)] * 3 + [({"1": 0.8}, 1)]


class TestARankThatDoesNot:
    def test_makes_no_ring_for_it(self) -> None:
        sampler = second_of_two()

        assert len(list(sampler.shares(sampler))) == 4
        assert process_ring.ring_so_far() is None
