"""Tells gpumon which part of each batch this rank's GPU is given, where it tags its phases."""

from __future__ import annotations

import sys

from trainer_hooks.ring.gpu_shares import gpu_names
from trainer_hooks.ring.process_ring import ring_so_far


def tell_rank_share(share: float) -> None:
    """Write the share to this process' ring; nothing happens where it has none. Never raises.

    The GPU is the one that the user said the rank trains on, else CUDA's present one.

    Args:
        share: Of every batch of the job, 0 to 1.
    """
    ring = ring_so_far()
    if ring is None or ring.writer is None:
        return
    torch = sys.modules.get("torch")
    is_on_gpu = torch is not None and torch.cuda.is_initialized()
    device = f"GPU:{torch.cuda.current_device()}" if torch is not None and is_on_gpu else "no GPU"
    names = gpu_names([device], ring.writer.facts.gpus)
    if names is not None:
        ring.tell_shares({names[0]: share})
