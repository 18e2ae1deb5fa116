"""Trains with the ranks of several jobs and with one process, and writes the results.

    python -m tests.loops.ddp_ranks FOLDER gloo 2 3

torch is imported once and the ranks are forked before anything is computed, because a process that
has computed gradients or used CUDA cannot be forked.
"""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from tests.imported_later import ImportedLater
from tests.loops.ddp_lessons import LESSONS, NORMS, SYNCED_NORMS, Rank, learned_alone
from trainer_hooks.ddp import RatioSampler, global_mean, global_sum

ddp_training: Any = ImportedLater("examples.ddp_training")

PATIENCE_S = 100.0


def lessons_of(backend: str) -> dict[str, Any]:
    """Batch norm is synced on GPUs only."""
    return LESSONS | NORMS | (SYNCED_NORMS if backend == "nccl" else {})


def refusal(call: Callable[[], object]) -> str:
    try:
        call()
    except ValueError as error:
        return str(error)
    return "it was not refused"


def refusals(rank: int) -> dict[str, str]:
    """The refusals of this rank where the ranks disagree."""
    world = distributed.get_world_size()
    sampler = RatioSampler(range(60), 12)
    equal = [1] * world
    recorded = {
        "seeds": refusal(lambda: RatioSampler(range(60), 12, shuffle=True, seed=rank)),
        "lengths": refusal(lambda: RatioSampler(range(60 + rank), 12)),
        "start": refusal(lambda: RatioSampler(range(60), 12, [1] * world if rank else [1, 0, 1])),
        "ratios": refusal(lambda: sampler.set_ratios([1 + rank] + [1] * (world - 1))),
        "zero": refusal(lambda: sampler.set_ratios(equal if rank != 1 else [0] * world)),
        "step": refusal(lambda: sampler.set_ratios(equal, from_step=rank)),
        "group": refusal(lambda: RatioSampler(range(9), 9, rank=0, world_size=1,
                                              group=distributed.group.WORLD)),
    }  # fmt: skip
    sampler.set_epoch(rank)
    recorded["epoch"] = refusal(lambda: sampler.set_ratios(equal))
    recorded["ratios afterwards"] = str(sampler.ratios)
    return recorded


def balancing(rank: int) -> dict[str, Any]:
    """Ranks as slow as their number, whose loaders draw differently far ahead."""
    world = distributed.get_world_size()
    sampler = RatioSampler(range(1200), 120)
    drawn = iter(sampler)
    ahead = [next(drawn) for _ in range(1 + rank)]
    unknown = sampler.level(0.0 if rank == 0 else 1.0)
    levelled = sampler.level(0.1 * (1 + rank))
    again = sampler.level(0.1 + 0.001 * rank)
    sizes = [len(batch) for batch in [*ahead, *drawn]]
    return {
        "unknown": unknown, "levelled": levelled, "again": again, "sizes": sizes,
        "changes": [at for at, (one, other) in enumerate(pairwise(sizes), 1) if one != other],
        "world": world,
    }  # fmt: skip


def example(folder: Path) -> Any:
    """The output of the example, whose first rank is twice as fast as the second."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        options = f"--spans {folder}/spans.jsonl --sample-ms 1 2 --epochs 3 --level"
        ddp_training.main(options.split())
    return json.loads(printed.getvalue() or "null")


def work(folder: Path, backend: str, rank: int, world: int) -> None:
    """Everything that one rank of a job does."""
    torch.set_num_threads(1)
    device = f"cuda:{rank}" if backend == "nccl" else "cpu"
    if backend == "nccl":
        torch.cuda.set_device(rank)
    distributed.init_process_group(
        backend, init_method=f"file://{folder}/meeting-of-{world}", rank=rank, world_size=world,
        timeout=timedelta(seconds=60),
    )  # fmt: skip
    report: dict[str, Any] = {}
    for name, lesson in lessons_of(backend).items():
        one = Rank(lesson, rank, world, device)
        report[name] = {
            "weights": one.learn(), "samples": one.samples, "changed_from": one.changed_from,
        }  # fmt: skip
    report["refusals"] = refusals(rank)
    report["levelling"] = balancing(rank)
    report["mean"] = global_mean(torch.tensor(10.0 * rank), 1 + rank)
    report["no mean"] = global_mean(0.0, 0)
    report["sum"] = global_sum(1 + rank)
    report["example"] = example(folder) if world == 2 and backend == "gloo" else None
    (folder / f"{world}-{rank}.json").write_text(json.dumps(report))
    distributed.destroy_process_group()


def main(folder: Path, backend: str, rank_counts: list[int]) -> int:
    device = "cuda:0" if backend == "nccl" else "cpu"

    def alone() -> object:
        return {name: learned_alone(lesson, device) for name, lesson in lessons_of(backend).items()}

    return run_ranks(partial(work, folder, backend), rank_counts, folder, alone, PATIENCE_S)


def run_ranks(
    work: Callable[[int, int], None],
    rank_counts: list[int],
    folder: Path,
    alone: Callable[[], object],
    patience_s: float,
) -> int:
    """Fork a process per rank; meanwhile write what one process learns to ``alone.json``.

    Returns:
        0 where every rank ended normally.
    """
    context = multiprocessing.get_context("fork")
    ranks = [
        context.Process(target=work, args=(rank, world))
        for world in rank_counts
        for rank in range(world)
    ]
    for process in ranks:
        process.start()
    (folder / "alone.json").write_text(json.dumps(alone()))
    give_up_s = time.monotonic() + patience_s
    for process in ranks:
        process.join(max(0.1, give_up_s - time.monotonic()))
    for process in ranks:
        process.kill()
    return int(any(process.exitcode for process in ranks))


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    raise SystemExit(main(Path(sys.argv[1]), sys.argv[2], [int(world) for world in sys.argv[3:]]))
