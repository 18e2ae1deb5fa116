"""The ratio model: each batch split over several GPUs, equal or not (Keras on TensorFlow).

::

    from trainer_hooks.multi_gpu import multi_gpu_model, serialize

Importing this package imports no framework; using its names does.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainer_hooks.multi_gpu.convert import (
        multi_gpu_model,
        serialize,
        slice_batch,
        to_multi_gpu,
    )
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

_MODULES = {
    "ParallelModel": "parallel_model",
    "RatioBalancer": "ratio_balancer",
    "RatioChange": "ratio_balancer",
}

_FOR_EQUAL_GPUS = {
    "jax": "keras.distribution.DataParallel for equal GPUs, and ",
    "torch": "torch's DistributedDataParallel for equal GPUs, and ",
}


def __getattr__(name: str) -> object:
    """Import Keras and TensorFlow only when a name is used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _refuse_other_backends(name)
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'convert')}"), name)


def _refuse_other_backends(name: str) -> None:
    is_chosen = "keras" in sys.modules or "KERAS_BACKEND" not in os.environ
    # Keras may take it from its configuration file, which it reads when imported.
    chosen = import_module("keras").backend.backend() if is_chosen else os.environ["KERAS_BACKEND"]
    if chosen != "tensorflow":
        equal = _FOR_EQUAL_GPUS.get(chosen, "")
        raise ImportError(
            f"{name} needs Keras on TensorFlow, and Keras' backend is {chosen} here: set "
            f"KERAS_BACKEND=tensorflow before Keras is imported, or use {equal}"
            "trainer_hooks.ddp (PyTorch without Keras) for unequal ones"
        )
