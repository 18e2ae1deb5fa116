"""A PyTorch training loop of one's own, tagged with ``timed``, ``phase`` and ``step``.

    python examples/torch_training.py --spans /tmp/busy.jsonl

It learns to classify rows that a slow store holds, through a ``DataLoader``
with as many workers as ``--workers`` says.
"""

import time

import torch

from trainer_hooks import phase, step, timed
from trainer_hooks.examples.example_run import example_parser, positive, run_example
from trainer_hooks.examples.slow_store import CLASSES, FEATURES, SlowStore

EPOCHS = 3


def note_compute(model, optimizer, note):
    """Note each stretch from a forward pass to the optimizer's step, or that pass in evaluation.

    The notes come from hooks of torch itself, below any training loop.
    """
    began_ns = 0

    def forward_begins(*_):
        nonlocal began_ns
        began_ns = time.monotonic_ns()

    def forward_ends(module, *_):
        if not module.training:
            step_ends()

    def step_ends(*_):
        note(began_ns, time.monotonic_ns())

    model.register_forward_pre_hook(forward_begins)
    model.register_forward_hook(forward_ends)
    optimizer.register_step_post_hook(step_ends)


def two_hidden_layers(width):
    """A classifier of the store's rows."""
    return torch.nn.Sequential(
        torch.nn.Linear(FEATURES, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, width),
        torch.nn.ReLU(),
        torch.nn.Linear(width, CLASSES),
    )


def loader_of(store, workers):
    """A loader of batches as the store holds them."""
    return torch.utils.data.DataLoader(store, batch_size=None, num_workers=workers)


def words_of(description, layers, width):
    """The words of an example on torch."""
    parser = example_parser(description, workers="of the DataLoader")
    parser.add_argument("--width", type=positive, default=width, help=f"of the two {layers}")
    return parser


def train(run):
    """Train for some epochs."""
    store = SlowStore(run.folder, max(1, run.args.steps // EPOCHS), run.args.latency_ms)
    loader = loader_of(store, run.args.workers)
    run.starts()
    model = two_hidden_layers(run.args.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.9)
    note_compute(model, optimizer, run.spans.note)
    for _ in range(EPOCHS):
        for rows, labels in timed(loader):
            with phase("train_step"):
                loss = torch.nn.functional.cross_entropy(model(rows), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            step(samples=len(labels))
        scheduler.step()
        with phase("checkpoint"):
            torch.save(model.state_dict(), run.folder / "model.pt")
    run.print_result(
        steps=EPOCHS * len(store), loss=loss.item(), reading_seconds=store.reading_ns / 1e9
    )


if __name__ == "__main__":
    run_example(words_of(__doc__, "hidden layers", 1024), train)
