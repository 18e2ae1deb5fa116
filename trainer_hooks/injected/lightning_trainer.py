"""``PhaseTagger`` among the callbacks of a Lightning ``Trainer`` while one of its methods runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainer_hooks.injected import inside_trainer
from trainer_hooks.lightning import PhaseTagger
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
                quietly(_remove, tagger, trainer)


def _add_tagger(trainer: Any) -> PhaseTagger | None:
    if any(isinstance(callback, Tagger) for callback in trainer.callbacks):
        return None
    tagger = PhaseTagger(logs=False)
    trainer.callbacks.insert(0, tagger)  # Lightning wants checkpoints to be last
    return tagger


def _remove(tagger: PhaseTagger, trainer: Any) -> None:
    trainer.callbacks[:] = [callback for callback in trainer.callbacks if callback is not tagger]
