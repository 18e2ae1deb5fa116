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


def __getattr__(name: str) -> object:
    """What is imported when it is asked for: ``PhaseTagger`` is a Keras callback."""
    if name == "PhaseTagger":
        try:
            from trainer_hooks.phase_tagger import PhaseTagger
        except ModuleNotFoundError as error:
            if error.name != "keras":
                raise
            raise ModuleNotFoundError(
                "PhaseTagger is a callback of Keras 3, which is not there (`pip install keras`); "
                "phase, timed and step need no framework, and trainer_hooks.lightning and "
                "trainer_hooks.huggingface have taggers of their own",
                name="keras",
            ) from None
        return PhaseTagger
    if name == "devices":
        return import_module("trainer_hooks.devices")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
