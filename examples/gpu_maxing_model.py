"""The fourth article's model, large enough to keep any GPU busy, and images for it."""

import os
import sys

from trainer_hooks.multi_gpu.devices import STAND_INS
from trainer_hooks.trainer_bench.keras_engine import FULL, made_up_digits, maxing_net


def get_model():
    """37 million weights; where CPU devices stand in for GPUs, layers 1/16 as wide."""
    size, widths = "full", FULL
    if os.environ.get(STAND_INS):
        print("CPU devices stand in for GPUs: the model is small.", file=sys.stderr)
        size, widths = "small", tuple(tuple(width // 16 for width in part) for part in FULL)
    return maxing_net(widths, name=f"gpu_maxing_model_{size}")


def get_MNIST_train_data(samples=60_000):  # noqa: N802 (the article's name)
    """Random images of MNIST's size and number: see ``made_up_digits``."""
    return made_up_digits(samples)
