"""A model with far more layers than its task needs, to keep any GPU at work.

The fourth article's: digits of 28 by 28 points, ten classes. It is not meant to converge.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

import keras

from trainer_hooks.multi_gpu.device_names import STAND_INS
from trainer_hooks.trainer_bench.keras_engine import FULL, made_up_digits, maxing_net

__all__ = ["get_MNIST_train_data", "get_model"]

_WIDTHS: Final = {"full": FULL, "small": tuple(tuple(n // 16 for n in part) for part in FULL)}


def get_model(size: str | None = None) -> keras.Model:
    """The model, not yet compiled.

    Args:
        size: ``"full"``: 37 million weights, as in the article; ``"small"``: the same layers a
            16th as wide, for a CPU. ``None``: full, but small where logical CPU devices
            stand in for GPUs.

    Raises:
        ValueError: No such size.
    """
    if size is None:
        size = "small" if os.environ.get(STAND_INS) else "full"
        if size == "small":
            print("CPU devices stand in for GPUs: the model is a small one.", file=sys.stderr)
    if size not in _WIDTHS:
        raise ValueError(f"a gpu_maxing_model is full or small, not {size!r}")
    return maxing_net(_WIDTHS[size], name=f"gpu_maxing_model_{size}")


def get_MNIST_train_data(samples: int = 60_000) -> tuple[Any, Any]:  # noqa: N802 (the article's)
    """Pictures as large as MNIST's, and as many: see ``made_up_digits``."""
    return made_up_digits(samples)
