"""``PhaseTagger`` among the callbacks of a Hugging Face ``Trainer`` while a method of it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from trainer_hooks.huggingface import PhaseTagger
from trainer_hooks.injected import inside_trainer
from trainer_hooks.ring.guard import passes_through, quietly
from trainer_hooks.trainers.tagger import Tagger


@passes_through
def around(
    method: str,
    bare: Callable[..., Any],
    trainer: Any,
    args: Sequence[Any],
    named: Mapping[str, Any],
) -> Any:
    """Call the trainer's method with a tagger, unless it has one or a callback calls it."""
    tagger = None if inside_trainer else quietly(_add_tagger, trainer)
    with inside_trainer:
        try:
            return bare(trainer, *args, **named)
        finally:
            if tagger is not None:
                quietly(trainer.remove_callback, tagger)


def _add_tagger(trainer: Any) -> PhaseTagger | None:
    callbacks = trainer.callback_handler.callbacks
    if any(isinstance(callback, Tagger) for callback in callbacks):
        return None
    tagger = _taggers.get(trainer)
    callbacks.append(tagger or PhaseTagger(logs=False))
    if tagger is None:  # it listens for evaluations from now on
        tagger = _taggers[trainer] = callbacks[-1]
        tagger.on_init_end(trainer.args, trainer.state, trainer.control)
    return tagger


_taggers: WeakKeyDictionary[Any, PhaseTagger] = WeakKeyDictionary()
"""The tagger of each trainer, which has it among its callbacks only while a method runs."""
