"""The slow store as torch sees it, and when a torch model really computed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch

from trainer_hooks.examples.busy_spans import BusySpans
from trainer_hooks.examples.slow_store import Batch, read_batch

FILES_A_BATCH = 4


class SlowStore(torch.utils.data.Dataset[Batch]):  # type: ignore[misc]  # torch: no types here
    """The batches of a slow store: 128 rows each, from four files that take their time.

    Attributes:
        reading_ns: How long this process spent here; workers count on their own.
    """

    def __init__(self, folder: Path, *, batches: int, latency_s: float) -> None:
        self._paths = sorted(folder.glob("part-*.z"))
        self._batches = batches
        self._latency_s = latency_s
        self.reading_ns = 0

    def __len__(self) -> int:
        return self._batches

    def __getitem__(self, index: int) -> Batch:
        began_ns = time.monotonic_ns()
        first = index * FILES_A_BATCH
        wanted = [self._paths[(first + k) % len(self._paths)] for k in range(FILES_A_BATCH)]
        batch = read_batch(wanted, self._latency_s)
        self.reading_ns += time.monotonic_ns() - began_ns
        return batch


def note_compute(model: Any, optimizer: Any, spans: BusySpans) -> None:
    """Note each stretch from a model's forward pass to the optimizer's step.

    The notes come from hooks of torch itself, below any training loop. In
    evaluation, where no optimizer follows, it is the forward pass alone.
    """
    began_ns = [0]

    def forward_begins(*_: object) -> None:
        began_ns[0] = time.monotonic_ns()

    def forward_ends(module: Any, *_: object) -> None:
        if not module.training:
            spans.note(began_ns[0], time.monotonic_ns())

    def step_ends(*_: object) -> None:
        spans.note(began_ns[0], time.monotonic_ns())

    model.register_forward_pre_hook(forward_begins)
    model.register_forward_hook(forward_ends)
    optimizer.register_step_post_hook(step_ends)
