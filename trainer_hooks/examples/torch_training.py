"""A PyTorch training loop of one's own, tagged with ``timed``, ``phase`` and ``step``.

    python -m trainer_hooks.examples.torch_training --spans /tmp/busy.jsonl

It learns to classify rows that a slow store holds, through a ``DataLoader``
with as many workers as ``--workers`` says.
"""

from __future__ import annotations

from typing import Any

import torch

from trainer_hooks import phase, step, timed
from trainer_hooks.examples.busy_spans import note_compute
from trainer_hooks.examples.example_run import ExampleRun, example_parser, positive, run_example
from trainer_hooks.examples.slow_store import CLASSES, FEATURES, SlowStore

_EPOCHS = 3


def two_hidden_layers(width: int) -> torch.nn.Module:
    """A classifier of the store's rows."""
    return torch.nn.Sequential(
        torch.nn.Linear(FEATURES, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, CLASSES),
    )


def loader_of(store: SlowStore, workers: int) -> Any:
    """A loader of batches as the store holds them."""
    return torch.utils.data.DataLoader(store, batch_size=None, num_workers=workers)


def train(run: ExampleRun) -> None:
    """Train for some epochs."""
    per_epoch = max(1, run.args.steps // _EPOCHS)
    store = SlowStore(run.folder, batches=per_epoch, latency_ms=run.args.latency_ms)
    loader = loader_of(store, run.args.workers)
    run.starts()
    model = two_hidden_layers(run.args.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.9)
    note_compute(model, optimizer, run.spans.note)
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
            torch.save(model.state_dict(), run.folder / "model.pt")
    run.tell(steps=steps, loss=loss.item(), reading_seconds=store.reading_ns / 1e9)


if __name__ == "__main__":
    words = example_parser(__doc__, workers="of the DataLoader")
    words.add_argument("--width", type=positive, default=1024, help="of the two hidden layers")
    run_example(words, train)
