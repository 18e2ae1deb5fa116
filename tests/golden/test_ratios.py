"""Messages on batches that are split in ratios: refusals, and why a split was changed."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.golden_files import Chapters, golden_story
from trainer_hooks.balance.controller import RatioController
from trainer_hooks.ddp import BatchShare, RatioSampler


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises((IndexError, TypeError, ValueError)) as refused:
        act()
    return f"{refused.type.__name__}: {refused.value}"


def sampler(**words: Any) -> RatioSampler:
    """Of the first of two ranks."""
    own = {"data": range(10), "batch_size": 5, "rank": 0, "world_size": 2}
    return RatioSampler(**{**own, **words})


def begun() -> RatioSampler:
    """A sampler that has yielded a batch."""
    one = sampler()
    next(iter(one))
    return one


@golden_story
def test_words_of_ratios() -> Chapters:
    share = BatchShare(step=0, samples=1, step_samples=2, world_size=2, ends_step=True)
    any_order = SimpleNamespace(in_order=False)
    uneven = RatioController((512, 512), names=("GPU:0", "GPU:1")).advance((512, 512), (0.4, 0.6))
    refused: dict[str, Callable[[], object]] = {
        "a rank without a part": lambda: sampler(ratios=[1, 0]),
        "too small a batch": lambda: sampler(batch_size=1),
        "a rank that does not exist": lambda: sampler(rank=2),
        "a rank without a world size": lambda: sampler(world_size=None),
        "data without a length": lambda: sampler(data=iter([])),
        "a start outside the epoch": lambda: sampler().set_epoch(0, start_step=3),
        "a batch outside the epoch": lambda: sampler().share_of(2),
        "other ratios in an epoch that has begun": lambda: begun().set_ratios([1, 4]),
        "to balance without process groups": lambda: sampler().level(1.0),
        "the shares of another loader": lambda: sampler().shares(SimpleNamespace(batch_sampler=0)),
        "batches in any order": lambda: sampler().shares(any_order),
        "another reduction": lambda: share.weigh(1.0, reduction="none"),  # type: ignore[arg-type]
        "a GPU without a sample": lambda: RatioController((0, 1)),
        "too little memory": lambda: RatioController((100, 100), limits=(90, 90)),
    }
    messages = {title: refusal(act) for title, act in refused.items()}
    assert uneven is not None
    return {**messages, "why a split was changed": uneven.reason}
