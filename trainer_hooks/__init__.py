"""Tags in a training process: they tell gpumon what the training is doing.

>>> from trainer_hooks import phase, timed, step, PhaseTagger

``trainer_hooks.devices`` says which GPUs there are. Importing this brings
neither Keras nor any framework along, and starts nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from trainer_hooks.phases import phase, step, timed

if TYPE_CHECKING:
    from trainer_hooks import devices
    from trainer_hooks.phase_tagger import PhaseTagger

__all__ = ["PhaseTagger", "devices", "phase", "step", "timed"]

_MENDS = {"keras": "which is not there (`pip install keras`)"} | {
    backend: f"which is to run on {backend}, and that is not there (set KERAS_BACKEND to the one "
    "of tensorflow, jax and torch that you have)"
    for backend in ("tensorflow", "jax", "torch")
}


def __getattr__(name: str) -> object:
    """What is imported when it is asked for: ``PhaseTagger`` is a Keras callback."""
    if name == "PhaseTagger":
        try:
            from trainer_hooks.phase_tagger import PhaseTagger
        except ModuleNotFoundError as error:
            what_to_do = _MENDS.get(error.name or "")
            if what_to_do is None:
                raise
            raise ModuleNotFoundError(
                f"PhaseTagger is a callback of Keras 3, {what_to_do}; phase, timed and step need "
                "no framework, and trainer_hooks.lightning and trainer_hooks.huggingface have "
                "taggers of their own",
                name=error.name,
            ) from None
        return PhaseTagger
    if name == "devices":
        return import_module("trainer_hooks.devices")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
