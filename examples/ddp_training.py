r"""Train with PyTorch DDP on unequal GPUs, with a share of each batch per rank.

    torchrun --standalone --nproc-per-node 2 examples/ddp_training.py \
        --spans /tmp/busy.jsonl --sample-ms 1 2 --ratios 1 1 --level

Each rank simulates a GPU that sleeps that many milliseconds per sample, so that any machine shows
which rank waits. With ``--level`` the ratios are adjusted after each epoch to the time that each
rank computed.
"""

import os
import time

import torch
from torch import distributed
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import phase, step, timed
from trainer_hooks.ddp import RatioSampler, global_mean
from trainer_hooks.examples.busy_spans import BusySpans
from trainer_hooks.examples.example_run import non_negative, positive, print_json, spans_parser

FEATURES, CLASSES, SAMPLES = 16, 4, 480


class SlowGpu(torch.nn.Module):
    """Returns the rows after some milliseconds each, and records when it was busy."""

    def __init__(self, sample_ms, spans):
        super().__init__()
        self._sample_seconds, self._spans = sample_ms / 1000, spans

    def forward(self, rows):
        self._spans.measure(lambda: time.sleep(self._sample_seconds * len(rows)))
        return rows


def rows_and_classes():
    """Random data, linearly separable."""
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(SAMPLES, FEATURES, generator=generator)
    scores = rows @ torch.randn(FEATURES, CLASSES, generator=generator)
    return TensorDataset(rows, scores.argmax(1))


def train(sampler, data, gpu, spans, args):
    """Train; return the mean loss over all ranks and the ratios of each epoch."""
    torch.manual_seed(1)
    loader = DataLoader(data, batch_sampler=sampler)
    layers = torch.nn.Linear(FEATURES, 32), torch.nn.ReLU(), torch.nn.Linear(32, CLASSES)
    model = DistributedDataParallel(torch.nn.Sequential(gpu, *layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses, ratios = [], []
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        busy_before_ns, total, count = spans.busy_ns, 0.0, 0
        for (rows, labels), share in sampler.shares(timed(loader)):
            with phase("train_step"):
                with share.accumulating(model):
                    loss = cross_entropy(model(rows), labels)
                    share.weigh(loss).backward()
                if share.ends_step:
                    optimizer.step()
                    optimizer.zero_grad()
            step(samples=share.samples)
            total, count = total + loss.item() * share.samples, count + share.samples
        losses.append(global_mean(total, count))
        ratios.append(sampler.ratios)
        if args.level:
            sampler.level((spans.busy_ns - busy_before_ns) / 1e9)
    return losses, ratios


def main(argv=None):
    """Train once; rank 0 prints one JSON line with the results."""
    parser = spans_parser(__doc__)
    numbers = {"type": non_negative, "nargs": "+"}
    parser.add_argument("--sample-ms", **numbers, default=[1.0, 2.0], help="of each rank's GPU")
    parser.add_argument("--ratios", **numbers, help="of the ranks; default: equal")
    parser.add_argument("--batch-size", type=positive, default=48, help="samples of all ranks")
    parser.add_argument("--micro-batches", type=positive, default=1, help="for each step")
    parser.add_argument("--epochs", type=positive, default=5)
    parser.add_argument("--level", action="store_true", help="balance the ranks after each epoch")
    args = parser.parse_args(argv)
    if not distributed.is_initialized():
        if "RANK" not in os.environ:
            parser.error("start it with torchrun, which sets the number of ranks")
        distributed.init_process_group("gloo")
    if args.ratios and len(args.ratios) != distributed.get_world_size():
        parser.error(f"--ratios {args.ratios} for {distributed.get_world_size()} ranks")
    rank = distributed.get_rank()
    os.environ.setdefault("GPUMON_GPUS", str(rank))
    with BusySpans(args.spans, rank) as spans:
        data = rows_and_classes()
        sampler = RatioSampler(
            data, args.batch_size, args.ratios, shuffle=True, micro_batches=args.micro_batches
        )
        gpu = SlowGpu(args.sample_ms[rank % len(args.sample_ms)], spans)
        losses, ratios = train(sampler, data, gpu, spans, args)
    if rank == 0:
        print_json({"steps": sampler.steps * args.epochs, "losses": losses, "ratios": ratios})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
