"""A model with far more layers than its task needs, to keep any GPU at work.

The fourth article's: digits of 28 by 28 points, ten classes. It is not meant to converge.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import keras
import numpy as np

from trainer_hooks.multi_gpu.device_names import STAND_INS

__all__ = ["get_MNIST_train_data", "get_model"]

SIDE = 28
CLASSES = 10
_WIDEST = {"full": 2048, "small": 128}


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
    if size not in _WIDEST:
        raise ValueError(f"a gpu_maxing_model is full or small, not {size!r}")
    widest = _WIDEST[size]
    layers = keras.layers
    convolutions = [
        layers.Conv2D(widest // part, 3, padding="same", activation="relu")
        for part in (64, 32, 16, 8)
    ]
    wide = [layers.Conv2D(widest // 4, 3, padding="same", activation="relu") for _ in range(4)]
    dense = [layers.Dense(units, activation="relu") for units in (*[widest] * 5, widest // 2)]
    return keras.Sequential(
        [
            layers.Input((SIDE, SIDE, 1)),
            *convolutions,
            layers.MaxPooling2D(),
            *wide,
            layers.MaxPooling2D(),
            layers.Flatten(),
            *dense,
            layers.Dense(CLASSES, activation="softmax"),
        ],
        name=f"gpu_maxing_model_{size}",
    )


def get_MNIST_train_data(samples: int = 60_000) -> tuple[Any, Any]:  # noqa: N802 (the article's)
    """Pictures as large as MNIST's, and as many; made up, because nothing is downloaded.

    Returns:
        ``x``, float32 (samples, 28, 28, 1), and ``y``, float32 (samples, 10), one-hot.
    """
    random = np.random.default_rng(0)
    x = random.random((samples, SIDE, SIDE, 1), dtype="float32")
    return x, np.eye(CLASSES, dtype="float32")[random.integers(0, CLASSES, samples)]
