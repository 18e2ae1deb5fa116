"""``PhaseTagger`` among the callbacks of a Keras model's ``fit``, ``evaluate`` and ``predict``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras

from trainer_hooks.injected import inside_trainer
from trainer_hooks.keras.phase_tagger import PhaseTagger
from trainer_hooks.ring.guard import passes_through, quietly
from trainer_hooks.trainers.tagger import Tagger

if tuple(map(int, keras.__version__.split(".")[:2])) < (3, 7):
    raise ImportError(f"Keras {keras.__version__} is older than 3.7")


@passes_through
def around(
    method: str,
    bare: Callable[..., Any],
    model: Any,
    args: Sequence[Any],
    named: Mapping[str, Any],
) -> Any:
    """Call the model's method with a tagger, unless it has one or a callback calls it."""
    tagged = None if inside_trainer else quietly(_with_tagger, bare, model, args, named)
    with inside_trainer:
        if tagged is None:
            return bare(model, *args, **named)
        return bare(*tagged.args, **tagged.kwargs)


def _with_tagger(
    bare: Callable[..., Any],
    model: Any,
    args: Sequence[Any],
    named: Mapping[str, Any],
) -> inspect.BoundArguments | None:
    """Return the arguments with a tagger more; ``None`` where that must not be."""
    call = inspect.signature(bare).bind(model, *args, **named)
    given = call.arguments.get("callbacks") or []
    if isinstance(given, keras.callbacks.CallbackList):
        return None  # it belongs to the script
    callbacks = list(given) if isinstance(given, (list, tuple)) else [given]
    if any(isinstance(callback, Tagger) for callback in callbacks):
        return None
    tagger = PhaseTagger(logs=False)
    tagger.prints_figures = False
    call.arguments["callbacks"] = [*callbacks, tagger]
    return call
