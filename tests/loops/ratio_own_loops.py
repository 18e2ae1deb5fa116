"""Ranks that train in loops of their own, by DDP or FSDP2, and what they do together."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from tests.imported_later import ImportedLater
from tests.loops.ratio_courses import Course
from tests.loops.ratio_reference import (
    SEED,
    Job,
    Learned,
    data,
    loss_of,
    network,
    optimizer_of,
    rate_of,
    refusal,
    sum_over_labels,
    weights_of,
)
from trainer_hooks import timed
from trainer_hooks.ddp import BatchShare, RatioBalancer, RatioSampler, global_mean, global_sum

ddp_training: Any = ImportedLater("examples.ddp_training")


def by_ddp(course: Course, job: Job) -> Learned:
    model = network(course, job.rank).to(job.device)
    if course.norm == "synced":
        model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)
    device_ids = [job.rank] if job.device.startswith("cuda") else None
    return _in_own_loop(course, job, DistributedDataParallel(model, device_ids=device_ids))


def by_fsdp2(course: Course, job: Job) -> Learned:
    """As docs/multi-gpu.md has it."""
    model = fully_shard(network(), mesh=init_device_mesh("cpu", (job.world,)))
    return _in_own_loop(course, job, model)


def _in_own_loop(course: Course, job: Job, model: Any) -> Learned:
    samples = data(course.samples)
    sampler = RatioSampler(
        samples, course.batch * job.world * course.accumulated, job.ratios, shuffle=course.shuffle,
        seed=SEED, drop_last=course.drop_last, micro_batches=course.accumulated,
    )  # fmt: skip
    workers = 2 if course.new_ratios and job.rank == 0 else 0
    loader = DataLoader(
        samples, batch_sampler=sampler, num_workers=workers, persistent_workers=workers > 0
    )
    is_sharded = not isinstance(model, DistributedDataParallel)
    optimizer = optimizer_of(model, rate=rate_of(course, job.world))
    balancer = RatioBalancer(every=4, warm_up=1)
    if course.is_balanced:
        balancer.watch(sampler, model)
    learned = Learned([], 0)
    for epoch in range(course.epochs):
        sampler.set_epoch(epoch, start_step=0 if epoch else course.start_step)
        for (rows, labels), share in sampler.shares(timed(loader)):
            learned.samples.append(share.samples)
            if is_sharded:
                model.set_requires_gradient_sync(share.ends_step)
            with contextlib.nullcontext() if is_sharded else share.accumulating(model):
                scores = model(rows.to(job.device))
                _weighted_loss(scores, labels.to(job.device), share, course).backward()
            if share.ends_step:
                optimizer.step()
                optimizer.zero_grad()
                learned.steps += 1
            if course.new_ratios and (epoch, share.step) == (0, 3):
                learned.changed_from.append(sampler.set_ratios(course.new_ratios[: job.world]))
    if is_sharded:
        gathered = [one.full_tensor().double().flatten() for one in model.parameters()]
        learned.weights = list(torch.cat(gathered).tolist())
    else:
        learned.weights = weights_of(model.module)
    learned.changes = balancer.changes
    return learned


def _weighted_loss(scores: Any, labels: Any, share: BatchShare, course: Course) -> Any:
    if course.loss == "labels":
        own = (labels != -100).sum() if share.samples else 0
        return share.weigh(sum_over_labels(scores, labels), reduction="sum") / global_sum(own)
    loss = loss_of(scores, labels, course)
    if course.loss == "sum":
        return share.weigh(loss, reduction="sum")
    return share.weigh(loss) if course.is_weighted else loss


def disagreements(rank: int, world: int) -> dict[str, str]:
    """The refusals of this rank where the ranks disagree."""
    sampler = RatioSampler(range(60), 12)
    equal = [1] * world
    recorded = {
        "seeds": refusal(lambda: RatioSampler(range(60), 12, shuffle=True, seed=rank)),
        "lengths": refusal(lambda: RatioSampler(range(60 + rank), 12)),
        "start": refusal(lambda: RatioSampler(range(60), 12, equal if rank else [1, 0, 1])),
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
    sampler = RatioSampler(range(1200), 120)
    drawn = iter(sampler)
    ahead = [next(drawn) for _ in range(1 + rank)]
    return {
        "unknown": sampler.level(0.0 if rank == 0 else 1.0),
        "balanced": sampler.level(0.1 * (1 + rank)),
        "again": sampler.level(0.1 + 0.001 * rank),
        "sizes": [len(batch) for batch in [*ahead, *drawn]],
    }


def sums(rank: int) -> dict[str, float | None]:
    return {
        "mean": global_mean(torch.tensor(10.0 * rank), 1 + rank),
        "no mean": global_mean(0.0, 0),
        "sum": global_sum(1 + rank),
    }


def example(folder: Path) -> Any:
    """The output of the example, whose first rank is twice as fast as the second."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        options = f"--spans {folder}/spans.jsonl --sample-ms 1 2 --epochs 3 --level"
        ddp_training.main(options.split())
    return json.loads(printed.getvalue() or "null")
