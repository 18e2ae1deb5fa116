"""Unequal GPUs with PyTorch's ``DistributedDataParallel``: uneven batches, exact gradients.

>>> from trainer_hooks.ddp import RatioBalancer, RatioSampler, global_mean

Importing this does not import torch.
"""

from __future__ import annotations

from trainer_hooks.ddp.all_ranks import global_mean, global_sum
from trainer_hooks.ddp.epoch_plan import BatchShare
from trainer_hooks.ddp.ratio_balancer import RatioBalancer
from trainer_hooks.ddp.ratio_sampler import RatioSampler

__all__ = ["BatchShare", "RatioBalancer", "RatioSampler", "global_mean", "global_sum"]
