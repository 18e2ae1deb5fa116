"""``PhaseTagger`` for the Hugging Face ``Trainer``: a callback that tells gpumon what it does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

from transformers import TrainerCallback

from trainer_hooks.keras_fit.phase_machine import OTHER, TRAIN, VALIDATION
from trainer_hooks.quiet_warning import warn_quietly
from trainer_hooks.ring.process_ring import describe_run, process_ring
from trainer_hooks.trainers.loader_facts import loader_facts
from trainer_hooks.trainers.trainer_tagging import TrainerTagging

_FRAMES_UP: Final = 12
_VALIDATES: Final = 1


class PhaseTagger(TrainerCallback):  # type: ignore[misc]  # not typed where mypy runs
    """Tags every moment of ``trainer.train()`` with its phase.

    ``Trainer(..., callbacks=[PhaseTagger()])``
        the run is called after ``$GPUMON_RUN``, else after the script.
    ``PhaseTagger(run="bert", gpus=[0, 1])``
        says the name, and which GPUs it trains on.

    It tells apart ``start_up, input_wait, train_step, callbacks, checkpoint,
    validation, predict, between_epochs``. A step is a step of the optimizer,
    as in ``trainer.state.global_step``, however many batches it accumulates.
    Of an ``evaluate`` or ``predict`` outside ``train`` it sees all but the
    first batch, as ``validation``.

    It never blocks, raises, or changes a result; without a daemon it works as
    well.

    Args:
        run: Name of the run.
        gpus: Indices or UUIDs of the GPUs it trains on; else ``$GPUMON_GPUS``.
    """

    def __init__(self, run: str | None = None, gpus: Sequence[int | str] | None = None) -> None:
        super().__init__()
        self._run, self._gpus = run, gpus
        self._tagging: TrainerTagging | None = None
        self._warned = False
        describe_run(run=run, gpus=gpus, framework="huggingface")

    def __reduce__(self) -> tuple[type[PhaseTagger], tuple[object, ...]]:
        """A copy is a new tagger of the same run."""
        return type(self), (self._run, self._gpus)

    @property
    def tags_now(self) -> bool:
        """Whether a training is under way that this tagger tags."""
        return self._tagging is not None and self._tagging.is_here

    def on_train_begin(self, args: Any, state: Any, control: Any, **named: Any) -> None:  # noqa: ANN401
        try:
            self._begin(named.get("train_dataloader"))
        except Exception as error:  # noqa: BLE001 (the training goes on untagged)
            self._stop()
            self._warn(f"gpumon tags no phases: {error!r}")

    def on_prediction_step(self, args: Any, state: Any, control: Any, **named: Any) -> None:  # noqa: ANN401
        self._alone(VALIDATION, _VALIDATES)

    def on_evaluate(self, args: Any, state: Any, control: Any, **named: Any) -> None:  # noqa: ANN401
        self._alone(OTHER, TRAIN)

    def on_predict(self, args: Any, state: Any, control: Any, metrics: Any, **named: Any) -> None:  # noqa: ANN401
        self._alone(OTHER, TRAIN)

    def _begin(self, loader: Any) -> None:  # noqa: ANN401
        self._stop()  # what a training that raised left behind
        ring = process_ring()
        trainer = self._trainer()
        if ring.writer is None:
            return
        if trainer is None:
            self._warn("gpumon tags no phases: it does not find the Trainer that it is called by")
            return
        others = trainer.callback_handler.callbacks
        if any(isinstance(other, PhaseTagger) and other.tags_now for other in others):
            return  # another tagger of the same Trainer sees to it
        does_anything_in = _Listeners(trainer.callback_handler.callbacks, self)
        self._tagging = TrainerTagging(ring, ring.writer, trainer, does_anything_in)
        describe_run(loader=loader_facts(loader))
        if not self._tagging.sees_fetches:
            self._warn("gpumon sees no wait for input with this version of transformers")

    def _trainer(self) -> Any | None:  # noqa: ANN401
        """The ``Trainer`` among the callers: callbacks are handed everything but that."""
        frame = sys._getframe(1).f_back
        for _ in range(_FRAMES_UP):
            if frame is None:
                return None
            found = frame.f_locals.get("self")
            handler = getattr(found, "callback_handler", None)
            if any(callback is self for callback in getattr(handler, "callbacks", ())):
                return found
            frame = frame.f_back
        return None

    def _alone(self, phase: int, mode: int) -> None:
        """Outside ``train``, evaluations are noticed by what they tell callbacks."""
        if self.tags_now:
            return
        writer = process_ring().writer_here
        if writer is not None and writer.present != (phase, mode):
            writer.enter(phase, mode)

    def _stop(self) -> None:
        if self._tagging is not None:
            self._tagging.stop()
            self._tagging = None

    def _warn(self, text: str) -> None:
        if not self._warned:
            self._warned = True
            warn_quietly(text)


class _Listeners:
    """Whether any callback but one's own does anything at an event."""

    def __init__(self, callbacks: Sequence[Any], but: object) -> None:
        self._callbacks, self._but = callbacks, but
        self._known: dict[tuple[str, int], bool] = {}

    def __call__(self, event: str) -> bool:
        asked = event, len(self._callbacks)
        known = self._known.get(asked)
        if known is None:
            empty = getattr(TrainerCallback, event, None)
            known = self._known[asked] = any(
                getattr(type(callback), event, None) is not empty
                for callback in self._callbacks
                if callback is not self._but
            )
        return known
