"""Tags in a training process: they tell gpumon what the training is doing.

>>> from trainer_hooks import phase, timed, step, PhaseTagger

Importing this brings neither Keras nor any framework along, and starts nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.phases import phase, step, timed

if TYPE_CHECKING:
    from trainer_hooks.phase_tagger import PhaseTagger

__all__ = ["PhaseTagger", "phase", "step", "timed"]


def __getattr__(name: str) -> object:
    """``PhaseTagger`` is a Keras callback: Keras is imported when it is asked for."""
    if name == "PhaseTagger":
        from trainer_hooks.phase_tagger import PhaseTagger

        return PhaseTagger
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
