"""Specification of what a balancer of ranks refuses: no torch is needed for that."""

from __future__ import annotations

from typing import Any

import pytest

from trainer_hooks.ddp import RatioBalancer


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"every": 0}, "every must be 1 or more steps, got 0"),
        ({"every": 2.5}, "every must be 1 or more steps, got 2.5"),
        ({"warm_up": -1}, "warm_up must be 0 or more steps, got -1"),
        ({"within": 1.0}, "within must be a part, 0 or more and below 1, got 1.0"),
    ],
)
def test_wrong_settings_are_refused(words: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        RatioBalancer(**words)


def test_anything_but_a_ratio_sampler_is_refused_with_where_it_levels() -> None:
    loader: Any = []

    with pytest.raises(
        TypeError, match=r"loop of your own or by RatioStrategy.*, and list is none"
    ):
        RatioBalancer().watch(loader, loader)
