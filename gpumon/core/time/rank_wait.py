"""That a GPU waits for another rank of its job, whatever it reads meanwhile."""

from __future__ import annotations

from typing import Final, NamedTuple

SUSPENDED: Final = "suspended"
"""The cause where the rank that is waited for is stopped, or frozen."""
ITS_STEP: Final = "train_step"
"""The cause where its step takes longer than those of the others."""


class RankWait(NamedTuple):
    """Whom the others of a job wait for, as of late.

    Attributes:
        run: Its run, by the label.
        rank: Its rank.
        cause: The ``IdleCause`` that makes it late, by its value; ``SUSPENDED`` or ``ITS_STEP``.
    """

    run: str
    rank: int
    cause: str
