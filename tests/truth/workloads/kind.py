"""What kinds of workloads there are, and how one is made from its kind and seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gpumon.core.verdict import LikelyCause
from tests.truth.workloads.draws import Draws
from tests.truth.workloads.truth import GpuTruth

MS_PER_HOUR: Final = 3_600_000

Make = Callable[[Draws, int], tuple[GpuTruth, ...]]
"""From the draws and the duration in ms to what happened on each GPU."""


@dataclass(frozen=True)
class Kind:
    """One kind of workload.

    Attributes:
        name: Its key in ``KINDS``.
        models: A sentence: what goes on in it.
        is_visible: Whether its pauses are long enough for a driver's window to
            show them; stalls of some ten ms in each step read as a flat level.
        lost_to: What most of what is lost in it is lost to, as ``likely_causes`` calls it;
            ``None``: hardly anything is lost, or to what no such word is for.
        make: Draws what happened; its docstring has the ranges.
    """

    name: str
    models: str
    is_visible: bool
    lost_to: LikelyCause | None
    make: Make

    @property
    def is_late(self) -> bool:
        """Whether a loader is late in it; in others at most 2 % is starved, at a job's begin."""
        return self.lost_to is LikelyCause.LATE_INPUT


def kind_of(make: Make, lost_to: LikelyCause | None, *, is_visible: bool = True) -> Kind:
    """A kind that is called and described as its function is."""
    sentence = (make.__doc__ or "").strip().split("\n")[0]
    return Kind(make.__name__, sentence, is_visible, lost_to, make)
