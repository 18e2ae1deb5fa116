"""A model with far more layers than its task needs, to keep any GPU at work.

The fourth article's: digits of 28 by 28 points, ten classes. It is not meant to converge.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import keras

from trainer_hooks.multi_gpu.device_names import STAND_INS
from trainer_hooks.trainer_bench.keras_engine import FULL, made_up_digits, maxing_net

__all__ = ["get_MNIST_train_data", "get_model"]


def get_model() -> keras.Model:
    """The model, not yet compiled: 37 million weights, as in the article.

    Where logical CPU devices stand in for GPUs, the same layers are a 16th as wide.
    """
    size, widths = "full", FULL
    if os.environ.get(STAND_INS):
        print("CPU devices stand in for GPUs: the model is a small one.", file=sys.stderr)
        size, widths = "small", tuple(tuple(width // 16 for width in part) for part in FULL)
    return maxing_net(widths, name=f"gpu_maxing_model_{size}")


def get_MNIST_train_data(samples: int = 60_000) -> tuple[Any, Any]:  # noqa: N802 (the article's)
    """Pictures as large as MNIST's, and as many: see ``made_up_digits``."""
    return made_up_digits(samples)
