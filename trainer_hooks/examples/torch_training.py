"""A PyTorch training loop of one's own, tagged with ``timed``, ``phase`` and ``step``.

    python -m trainer_hooks.examples.torch_training --spans /tmp/busy.jsonl

It learns to classify rows that a slow store holds, through a ``DataLoader``
with as many workers as ``--workers`` says.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from trainer_hooks import phase, step, timed
from trainer_hooks.examples.busy_spans import BusySpans
from trainer_hooks.examples.command_line import example_parser, positive
from trainer_hooks.examples.slow_store import CLASSES, FEATURES, make_store
from trainer_hooks.examples.torch_store import SlowStore, note_compute

_EPOCHS = 3


def train(loader: Any, width: int, folder: Path, spans: BusySpans) -> tuple[int, float]:
    """Train for some epochs; how many steps that were, and the last loss."""
    model = torch.nn.Sequential(
        torch.nn.Linear(FEATURES, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, CLASSES),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.9)
    note_compute(model, optimizer, spans)
    steps, loss = 0, torch.tensor(0.0)
    for _ in range(_EPOCHS):
        for rows, labels in timed(loader):
            with phase("train_step"):
                loss = torch.nn.functional.cross_entropy(model(rows), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            step(samples=len(labels))
            steps += 1
        scheduler.step()
        with phase("checkpoint"):
            torch.save(model.state_dict(), folder / "model.pt")
    return steps, loss.item()


def main(argv: Sequence[str] | None = None) -> int:
    """Train once and print one JSON line about it."""
    parser = example_parser(__doc__, workers="of the DataLoader")
    parser.add_argument("--width", type=positive, default=1024, help="of the two hidden layers")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name, BusySpans(args.spans, args.gpu) as spans:
        folder = Path(name)
        make_store(folder)
        per_epoch = max(1, args.steps // _EPOCHS)
        store = SlowStore(folder, batches=per_epoch, latency_s=args.latency_ms / 1000)
        loader = torch.utils.data.DataLoader(store, batch_size=None, num_workers=args.workers)
        started_ns = time.monotonic_ns()
        steps, loss = train(loader, args.width, folder, spans)
        wall_ns = time.monotonic_ns() - started_ns
    result = {
        "steps": steps,
        "loss": loss,
        "wall_seconds": wall_ns / 1e9,
        "busy_seconds": spans.busy_ns / 1e9,
        "reading_seconds": store.reading_ns / 1e9,
    }
    print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
