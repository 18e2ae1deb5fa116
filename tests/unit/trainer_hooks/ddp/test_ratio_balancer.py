"""What the DDP ``RatioBalancer`` refuses; needs no torch."""

from __future__ import annotations

from typing import Any

import pytest

from trainer_hooks.ddp import RatioBalancer


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"every": 0}, "every must be a whole number of steps, 1 or more, not 0"),
        ({"every": 2.5}, "every must be .* not 2.5"),
        ({"warm_up": -1}, "warm_up must be .* 0 or more, not -1"),
        ({"within": 1.0}, "within must be 0 or more and below 1, not 1.0"),
    ],
)
def test_wrong_settings_are_refused(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        RatioBalancer(**arguments)


def test_only_a_ratio_sampler_can_be_watched() -> None:
    loader: Any = []

    with pytest.raises(TypeError, match=r"your own loop or by RatioStrategy.*, not list"):
        RatioBalancer().watch(loader, loader)
