"""Training runs whose results one process computes, too, and which trainer runs which of them."""

from __future__ import annotations

import os
from dataclasses import dataclass

RATIOS = {2: (3, 2), 3: (5, 3, 1)}
"""Of a job, by the number of its ranks."""


@dataclass(frozen=True, kw_only=True)
class Course:
    """A training run. With 53 samples the last batch of all ranks is a short one.

    Attributes:
        batch: Samples of a batch, on average over the ranks.
        ratios: Of three ranks; two use the first two. Default: ``RATIOS``.
        epochs: At least 20 steps in total.
        accumulated: Batches per rank and optimizer step.
        loss: "mean" or "sum" over samples, or "labels": a mean over labels, whose number varies by
            sample, as in language models.
        is_weighted: False: each rank's own mean, as if all had as many samples.
        start_step: The first step of the first epoch.
        resumed_at: The step after which it is stopped, and continued with reversed ratios.
        new_ratios: From after the fourth step on; the first rank's loader draws ahead.
        is_balanced: The second rank is slow, and the ratios are balanced during training.
        norm: "own" batch norm for each rank, or "synced".
    """

    samples: int = 53
    batch: int = 4
    ratios: tuple[int, int, int] | None = None
    epochs: int = 4
    shuffle: bool = True
    drop_last: bool = False
    accumulated: int = 1
    loss: str = "mean"
    is_weighted: bool = True
    start_step: int = 0
    resumed_at: int | None = None
    new_ratios: tuple[int, int, int] | None = None
    is_balanced: bool = False
    norm: str = ""

    def ratios_of(self, world: int) -> tuple[int, ...]:
        return RATIOS[world] if self.ratios is None else self.ratios[:world]


HARDEST = "accumulated, and resumed on other ratios"
LAST_OF_ONE = "a last batch of one sample"
TINY = "batches without a sample of a rank"
IN_MID_RUN = "other ratios in mid-run"
UNWEIGHTED = "unweighted losses"
OWN_NORM, SYNCED_NORM = "batch norm of each rank", "synced batch norm"
BALANCED = "balanced"

COURSES = {
    "in order": Course(shuffle=False),
    HARDEST: Course(accumulated=3, epochs=10, resumed_at=5),
    "whole batches only": Course(drop_last=True, accumulated=3, epochs=10),
    "labels that count": Course(loss="labels", accumulated=3, epochs=10),
    "labels that count, in one batch": Course(loss="labels"),
    "accumulated": Course(accumulated=3, epochs=10),
    BALANCED: Course(samples=480, batch=24, is_balanced=True, ratios=(1, 1, 1), epochs=2),
    LAST_OF_ONE: Course(samples=49, ratios=(4, 3, 2)),
    "without a last batch": Course(drop_last=True, epochs=5),
    "from a third step on": Course(start_step=2, epochs=5),
    TINY: Course(batch=1, accumulated=4, ratios=(10, 1, 1)),
    "sums": Course(loss="sum", accumulated=2, samples=49, epochs=7),
    IN_MID_RUN: Course(samples=118, epochs=2, new_ratios=(1, 5, 2)),
    UNWEIGHTED: Course(is_weighted=False),
    OWN_NORM: Course(norm="own", samples=49, ratios=(2, 3, 4)),
    SYNCED_NORM: Course(norm="synced", drop_last=True, epochs=5),
}
COURSES_OF = {
    "ddp": [
        "in order", "labels that count, in one batch", "accumulated", LAST_OF_ONE,
        "without a last batch", "from a third step on", TINY, "sums", IN_MID_RUN, UNWEIGHTED,
        OWN_NORM, BALANCED,
    ],
    "fsdp2": ["accumulated"],
    "lightning": ["in order", HARDEST, BALANCED],
    "accelerate": ["in order", HARDEST],
    "trainer": ["in order", HARDEST, "whole batches only", "labels that count"],
}  # fmt: skip
EXACT = [name for name in COURSES if name not in (UNWEIGHTED, OWN_NORM)]
"""Those whose result is that of one process."""


def courses_of(trainer: str, world: int) -> list[str]:
    """What the ranks of a job learn; three ranks of a trainer in CI only the hardest."""
    every = COURSES_OF[trainer]
    if world == 2:
        return every
    every = [name for name in every if name != BALANCED]  # simulates two GPUs
    if trainer == "ddp" or os.environ.get("GPUMON_WHOLE_TABLE"):
        return every
    return [name for name in every if name == HARDEST]
