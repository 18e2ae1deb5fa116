"""Starts the ranks of a job of two and of one of three, which train by each trainer in turn.

    python -m tests.loops.ratio_ranks FOLDER 2 3

What a rank learned, and what it was refused, is written to ``FOLDER/WORLD-RANK.json``. The
trainers are imported once, and the ranks forked before anything is computed.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import sys
import warnings
from datetime import timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

from tests.loops.ddp_ranks import run_ranks
from tests.loops.ratio_refusals import REFUSALS
from tests.loops.ratio_trainings import (
    COURSES,
    LESSONS,
    RATIOS,
    TRAINERS,
    PhaseMode,
    learned_alone,
    levelled_by_ddp,
    levelled_by_lightning,
    weights_of,
)
from trainer_hooks.ddp import BatchShare, RatioSampler

PATIENCE_S = 150.0
HARDEST = "accumulated, and resumed on other ratios"
EXAMPLES = ("unequal_lightning", "unequal_accelerate", "unequal_trainer")


def lessons_of(world: int) -> list[tuple[str, str]]:
    """What the ranks of a job learn: three ranks only the hardest of each trainer's in CI."""
    is_whole = world == 2 or bool(os.environ.get("GPUMON_WHOLE_TABLE"))
    return [lesson for lesson in LESSONS if is_whole or lesson[1] == HARDEST]


def example(name: str) -> dict[str, Any]:
    """What a rank learns by an example, and the samples that it computes in each batch."""
    samples: list[int] = []
    begin_batch = RatioSampler.begin_batch

    def noted(sampler: RatioSampler, batch: int) -> BatchShare:
        share = begin_batch(sampler, batch)
        samples.append(share.samples)
        return share

    with pytest.MonkeyPatch.context() as patched, contextlib.redirect_stdout(io.StringIO()):
        patched.setattr(RatioSampler, "begin_batch", noted)
        model = import_module(f"examples.{name}").main()
    return {"weights": weights_of(model), "samples": samples}


def work(folder: Path, rank: int, world: int) -> None:
    """Everything that one rank does."""
    torch.set_num_threads(1)
    named = {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0, "WORLD_SIZE": world}
    more = {"LOCAL_WORLD_SIZE": world, "MASTER_ADDR": "localhost", "MASTER_PORT": 1}
    as_torchrun = {"TORCHELASTIC_RUN_ID": "ranks", "ACCELERATE_USE_CPU": "true"}
    os.environ.update(
        {name: str(value) for name, value in {**named, **more, **as_torchrun}.items()}
    )
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting-of-{world}", rank=rank, world_size=world,
        timeout=timedelta(seconds=60),
    )  # fmt: skip
    report: dict[str, Any] = {}
    for trainer, name in lessons_of(world):
        place = PhaseMode(RATIOS[world], folder / f"{world}-{trainer}-{name}")
        weights, steps = TRAINERS[trainer](COURSES[name], place)
        report[f"{trainer}: {name}"] = {"weights": weights, "steps": steps}
    if world == 2:
        place = PhaseMode(RATIOS[world], folder / "levelled")
        report["lightning: levelled"] = levelled_by_lightning(rank, place)
        report["ddp: levelled"] = levelled_by_ddp(rank, place)
        for name, refused in REFUSALS.items():
            place = PhaseMode(RATIOS[world], folder / f"refused-{name}")
            report[f"{name}: refusals"] = refused(rank, place)
        report |= {f"example: {name}": example(name) for name in EXAMPLES}
    (folder / f"{world}-{rank}.json").write_text(json.dumps(report))
    distributed.destroy_process_group()


def main(folder: Path, rank_counts: list[int]) -> int:
    def alone() -> object:
        return {
            world: {name: learned_alone(course, world) for name, course in COURSES.items()}
            for world in rank_counts
        }

    return run_ranks(partial(work, folder), rank_counts, folder, alone, PATIENCE_S)


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    raise SystemExit(main(Path(sys.argv[1]), [int(world) for world in sys.argv[2:]]))
