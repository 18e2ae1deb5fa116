"""What a controller may be set to, and what it says when it changes a split."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """How eager a controller is.

    Attributes:
        dead_band: A split whose step is known to be within this part of the best is left alone.
        least_gain: A move that promises less speed, as a part, is not made.
        most_moves: Splits that are tried before the best of them stays.
        clear_change: A GPU's time has changed when it is off by this part twice.
        most_growth: How many times a GPU's samples may be multiplied or divided by in one move.
    """

    dead_band: float = 0.0125
    least_gain: float = 0.005
    most_moves: int = 9
    clear_change: float = 0.03
    most_growth: float = 2.0


@dataclass(frozen=True, slots=True)
class SplitChange:
    """An event: the batch is split otherwise from now on.

    Attributes:
        old: Samples for each GPU until now.
        new: ... and from now on.
        reason: A sentence's worth of why.
        expected_gain: Speed, as a part of the old one, that the curves promise; below 0
            where a memory limit forces the change, ``None`` where nothing is known.
    """

    old: tuple[int, ...]
    new: tuple[int, ...]
    reason: str
    expected_gain: float | None
