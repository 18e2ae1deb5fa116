"""Going around the step functions of a Keras model, and leaving them as they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainer_hooks.taps import FUNCTION_OF_MODE

Wrap = Callable[[Any, int], Any]
"""Makes the timed function of a bare one and its mode."""


def bare_of(function: Any) -> Any:  # noqa: ANN401
    """The function without what a training that died left around it."""
    while hasattr(function, "bare"):
        function = function.bare
    return function


class StepFunctions:
    """Puts timed functions in the place of a model's own, until ``remove``.

    Keras looks the functions up on the model in each step, and a model made
    by ``fit`` keeps them: so an attribute of the instance is enough.
    """

    def __init__(self, model: Any, wrap: Wrap) -> None:  # noqa: ANN401
        self._model = model
        self._wrap = wrap
        self._placed: dict[str, tuple[Any, Any]] = {}

    def place(self, mode: int) -> None:
        """Go around the function of this mode, unless it is done already."""
        name = FUNCTION_OF_MODE[mode]
        present = getattr(self._model, name, None)
        if present is None or (name in self._placed and self._placed[name][1] is present):
            return
        bare = bare_of(present)
        timed = self._wrap(bare, mode)
        if timed is not bare:
            timed.bare = bare
        self._placed[name] = (bare, timed)
        setattr(self._model, name, timed)

    def remove(self) -> None:
        """Leave the model as it was, but for functions that were made anew meanwhile."""
        for name, (original, timed) in self._placed.items():
            if getattr(self._model, name, None) is timed:
                setattr(self._model, name, original)
        self._placed.clear()
