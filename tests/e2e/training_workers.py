"""What a data loader's worker does in these tests, where a spawned process can import it."""

from __future__ import annotations

import time

from trainer_hooks import phase, step


def load(index: int) -> int:
    """Load a sample without a word to gpumon."""
    time.sleep(0.01)
    return index


def load_and_tag(index: int) -> int:
    """Load a sample, and tag that: in a worker this must not disturb its parent's ring."""
    with phase("checkpoint"):
        time.sleep(0.01)
    step(samples=1_000)
    return index
