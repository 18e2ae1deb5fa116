"""Starts the ranks of jobs, which train by each trainer in turn.

    python -m tests.loops.ratio_ranks FOLDER gloo 2 3

What a rank learned, and what it was refused, is written to ``FOLDER/WORLD-RANK.json``; what one
process learns to ``alone.json``. With ``nccl`` the ranks use GPUs, and no trainer. The frameworks
are imported once and the ranks are forked before anything is computed, because a process that has
computed gradients or used CUDA cannot be forked.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import multiprocessing
import os
import sys
import time
import warnings
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

from tests.imported_later import ImportedLater
from tests.loops.ratio_courses import COURSES, SYNCED_NORM, courses_of
from tests.loops.ratio_own_loops import balancing, by_ddp, by_fsdp2, disagreements, example, sums
from tests.loops.ratio_reference import Job, Learned, learned_alone, weights_of
from trainer_hooks.ddp import BatchShare, RatioSampler

trainers: Any = ImportedLater("tests.loops.ratio_trainers")
refusals: Any = ImportedLater("tests.loops.ratio_refusals")

PATIENCE_S = 200.0
EXAMPLES = ("unequal_lightning", "unequal_accelerate", "unequal_trainer")


def work(folder: Path, backend: str, rank: int, world: int) -> None:
    """Everything that one rank does."""
    torch.set_num_threads(1)
    own = {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0, "WORLD_SIZE": world}
    job = {"LOCAL_WORLD_SIZE": world, "MASTER_ADDR": "localhost", "MASTER_PORT": 1}
    as_torchrun = {"TORCHELASTIC_RUN_ID": "ranks", "ACCELERATE_USE_CPU": "true"}
    os.environ.update({name: str(one) for name, one in {**own, **job, **as_torchrun}.items()})
    if backend == "nccl":
        torch.cuda.set_device(rank)
    distributed.init_process_group(
        backend, init_method=f"file://{folder}/meeting-of-{world}", rank=rank, world_size=world,
        timeout=timedelta(seconds=60),
    )  # fmt: skip
    device = f"cuda:{rank}" if backend == "nccl" else "cpu"

    def learn(trainer: str, name: str) -> Learned:
        course = COURSES[name]
        into = folder / f"{world}-{trainer}-{name}"
        made = {"ddp": by_ddp, "fsdp2": by_fsdp2}.get(trainer) or getattr(trainers, f"by_{trainer}")
        learned: Learned = made(course, Job(course.ratios_of(world), rank, into, device))
        return learned

    by = ("ddp",) if backend == "nccl" else ("ddp", "fsdp2", "lightning", "accelerate", "trainer")
    report: dict[str, Any] = {
        f"{trainer}: {name}": vars(learn(trainer, name))
        for trainer in by
        for name in courses_of(trainer, world)
    }
    report |= {"disagreements": disagreements(rank, world), "balancing": balancing(rank)}
    report["sums"] = sums(rank)
    if backend == "nccl":
        report[f"ddp: {SYNCED_NORM}"] = vars(learn("ddp", SYNCED_NORM))
    elif world == 2:
        for name, refused in refusals.REFUSALS.items():
            report[f"{name}: refusals"] = refused(Job((3, 2), rank, folder / f"refused-{name}"))
        report["example"] = example(folder)
        report |= {name: trainer_example(name) for name in EXAMPLES}
    (folder / f"{world}-{rank}.json").write_text(json.dumps(report))
    distributed.destroy_process_group()


def trainer_example(name: str) -> dict[str, Any]:
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


def main(folder: Path, backend: str, rank_counts: list[int]) -> int:
    """Fork a process per rank; return 0 where all ended normally."""
    if backend == "gloo":
        _ = refusals.REFUSALS, trainers.by_trainer  # imported once, before the fork
    context = multiprocessing.get_context("fork")
    ranks = [
        context.Process(target=work, args=(folder, backend, rank, world))
        for world in rank_counts
        for rank in range(world)
    ]
    for process in ranks:
        process.start()
    device = "cuda:0" if backend == "nccl" else "cpu"
    alone = {
        world: {name: learned_alone(course, world, device) for name, course in COURSES.items()}
        for world in rank_counts
    }
    (folder / "alone.json").write_text(json.dumps(alone))
    give_up_s = time.monotonic() + PATIENCE_S
    for process in ranks:
        process.join(max(0.1, give_up_s - time.monotonic()))
    for process in ranks:
        process.kill()
    return int(any(process.exitcode for process in ranks))


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    raise SystemExit(main(Path(sys.argv[1]), sys.argv[2], [int(world) for world in sys.argv[3:]]))
