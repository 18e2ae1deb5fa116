"""Hooks for training scripts: tags for gpumon, and one batch over several GPUs.

>>> from trainer_hooks import PhaseTagger, phase, step, timed
>>> from trainer_hooks import NaNGuard, fixed_batches, prefetch_to_device

For Keras on TensorFlow: ``multi_gpu_model``, ``to_multi_gpu``, ``slice_batch``, ``serialize`` and
``RatioBalancer``.

``trainer_hooks.devices`` lists the GPUs; ``trainer_hooks.ddp``, ``.lightning``, ``.accelerate`` and
``.huggingface`` split batches over the ranks of PyTorch. Importing this package imports neither
Keras nor any framework, and starts nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from trainer_hooks.phases import phase, step, timed

if TYPE_CHECKING:
    from trainer_hooks import devices
    from trainer_hooks.batches import fixed_batches
    from trainer_hooks.keras.nan_guard import NaNGuard
    from trainer_hooks.keras.phase_tagger import PhaseTagger
    from trainer_hooks.multi_gpu import (
        RatioBalancer,
        multi_gpu_model,
        serialize,
        slice_batch,
        to_multi_gpu,
    )
    from trainer_hooks.prefetch import prefetch_to_device

__all__ = [
    "NaNGuard",
    "PhaseTagger",
    "RatioBalancer",
    "devices",
    "fixed_batches",
    "multi_gpu_model",
    "phase",
    "prefetch_to_device",
    "serialize",
    "slice_batch",
    "step",
    "timed",
    "to_multi_gpu",
]

_MODULES: Final = {
    "NaNGuard": "keras.nan_guard",
    "PhaseTagger": "keras.phase_tagger",
    "RatioBalancer": "multi_gpu",
    "fixed_batches": "batches",
    "multi_gpu_model": "multi_gpu",
    "prefetch_to_device": "prefetch",
    "serialize": "multi_gpu",
    "slice_batch": "multi_gpu",
    "to_multi_gpu": "multi_gpu",
}
"""The modules of names that need a framework."""

_FIXES: Final = {"keras": "which is not installed (`pip install keras`)"} | {
    backend: f"which is set to run on {backend}, but that is not installed (set KERAS_BACKEND to "
    "tensorflow, jax or torch, whichever you have)"
    for backend in ("tensorflow", "jax", "torch")
}


def __getattr__(name: str) -> object:
    """Import what needs a framework when it is used."""
    if name == "devices":
        return import_module("trainer_hooks.devices")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"trainer_hooks.{_MODULES[name]}"), name)
    except ModuleNotFoundError as error:
        what_to_do = _FIXES.get(error.name or "")
        if what_to_do is None:
            raise
        if _MODULES[name] == "multi_gpu":
            raise ModuleNotFoundError(
                f"{name} needs Keras on TensorFlow, but {error.name} is not installed (`pip "
                "install tensorflow`); for ratios on PyTorch see trainer_hooks.ddp",
                name=error.name,
            ) from None
        raise ModuleNotFoundError(
            f"{name} is for Keras 3, {what_to_do}; phase, timed and step need "
            "no framework, and trainer_hooks.lightning and trainer_hooks.huggingface have "
            "their own taggers",
            name=error.name,
        ) from None
