"""The ratio model: each batch split over several GPUs, unequal ones too (Keras on TensorFlow).

::

    from trainer_hooks.multi_gpu import multi_gpu_model, serialize

Importing this room brings no framework along; its names do.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainer_hooks.multi_gpu.making import multi_gpu_model, serialize, slice_batch, to_multi_gpu
    from trainer_hooks.multi_gpu.parallel_model import ParallelModel
    from trainer_hooks.multi_gpu.ratio_balancer import RatioBalancer, RatioChange

__all__ = [
    "ParallelModel",
    "RatioBalancer",
    "RatioChange",
    "multi_gpu_model",
    "serialize",
    "slice_batch",
    "to_multi_gpu",
]

_ROOMS = {
    "ParallelModel": "parallel_model",
    "RatioBalancer": "ratio_balancer",
    "RatioChange": "ratio_balancer",
}

_FOR_EQUAL_GPUS = {
    "jax": "keras.distribution.DataParallel for equal GPUs, and ",
    "torch": "torch's DistributedDataParallel for equal GPUs, and ",
}


def __getattr__(name: str) -> object:
    """What is imported when it is asked for, because it brings Keras and TensorFlow along."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _refuse_other_backends(name)
    return getattr(import_module(f"{__name__}.{_ROOMS.get(name, 'making')}"), name)


def _refuse_other_backends(name: str) -> None:
    is_chosen = "keras" in sys.modules or "KERAS_BACKEND" not in os.environ
    # Keras may have it from a file of settings, which it reads when it is imported.
    chosen = import_module("keras").backend.backend() if is_chosen else os.environ["KERAS_BACKEND"]
    if chosen != "tensorflow":
        equal = _FOR_EQUAL_GPUS.get(chosen, "")
        raise ImportError(
            f"{name} needs Keras on TensorFlow, and Keras' backend is {chosen} here: set "
            f"KERAS_BACKEND=tensorflow before Keras is imported, or use {equal}"
            "trainer_hooks.ddp (PyTorch without Keras) for unequal ones"
        )
