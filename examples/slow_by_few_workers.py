"""A training script with one ``DataLoader`` worker, too slow for the GPU by half.

    python examples/slow_by_few_workers.py --spans /tmp/busy.jsonl              # one worker
    python examples/slow_by_few_workers.py --spans /tmp/busy.jsonl --workers 2  # as advised

A batch takes a worker 36 ms of CPU time, and the simulated GPU 20 ms.
"""

import time

import torch

from trainer_hooks import phase, step, timed
from trainer_hooks.examples.example_run import (
    ExampleRun,
    natural,
    positive,
    run_example,
    spans_parser,
)

STEP_S, DECODE_S = 0.020, 0.036


class Photos(torch.utils.data.Dataset):
    """Pictures that take long to decode."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        began_s, pixels = time.thread_time(), torch.zeros(256)
        while time.thread_time() - began_s < DECODE_S:
            pixels = pixels.roll(1) + number
        return pixels


def train(run: ExampleRun) -> None:
    """Train on as many batches as ``--steps`` says."""
    torch.set_num_threads(1)
    photos = Photos(run.args.steps)
    loader = torch.utils.data.DataLoader(photos, batch_size=None, num_workers=run.args.workers)
    run.starts()
    for pixels in timed(loader):
        with phase("train_step"):
            run.spans.sleep(STEP_S)
        step(samples=len(pixels))
    run.print_result(steps=run.args.steps)


if __name__ == "__main__":
    parser = spans_parser(__doc__)
    parser.add_argument("--steps", type=positive, default=500, help="batches to train on")
    parser.add_argument("--workers", type=natural, default=1, help="of the DataLoader")
    parser.set_defaults(gpu=0)
    run_example(parser, train)
