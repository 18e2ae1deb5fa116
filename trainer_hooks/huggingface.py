"""``PhaseTagger`` for the Hugging Face ``Trainer``: a callback that tells gpumon what it does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

from trainer_hooks.ring.call_frames import caller_named
from trainer_hooks.ring.process_ring import process_ring
from trainer_hooks.trainers.huggingface_tagging import (
    MODE_OF,
    HuggingFaceTagging,
    LoneEvaluation,
    StartOfEvaluation,
)
from trainer_hooks.trainers.loader_facts import loader_facts, tell_of_loader
from trainer_hooks.trainers.tagger import Tagger
from trainer_hooks.trainers.timed_callbacks import EventCallbacks

try:
    from transformers import DefaultFlowCallback, TrainerCallback
except ModuleNotFoundError as error:
    if error.name != "transformers":
        raise
    raise ModuleNotFoundError(
        "PhaseTagger needs the Hugging Face Trainer: pip install 'transformers[torch]'",
        name=error.name,
    ) from None

_FRAMES_TO_THE_METHOD: Final = 4
"""From ``_begin_alone`` up to the trainer's method that starts to watch its memory."""


class PhaseTagger(Tagger, TrainerCallback):  # type: ignore[misc]  # not typed where mypy runs
    """Tags every moment of ``trainer.train()`` with its phase.

    ``Trainer(..., callbacks=[PhaseTagger()])``
        the run is called after ``$GPUMON_RUN``, else after the script.
    ``PhaseTagger(run="bert", gpus=[0, 1])``
        says the name, and which GPUs it trains on.

    It tells apart ``start_up, compile, input_wait, train_step, callbacks,
    checkpoint, validation, predict, between_epochs``, and how long each class
    of callback took. A step is a step of the optimizer, as in
    ``trainer.state.global_step``, however many batches it accumulates. An
    ``evaluate`` or ``predict`` outside ``train`` is told as well.

    It never blocks, raises, or changes a result; without a daemon it works as
    well.

    Args:
        run: Name of the run.
        gpus: Indices or UUIDs of the GPUs it trains on; else ``$GPUMON_GPUS``.
    """

    _tagging: HuggingFaceTagging | LoneEvaluation | None

    def __init__(self, run: str | None = None, gpus: Sequence[int | str] | None = None) -> None:
        super().__init__()
        self._set_up(run, gpus, framework="huggingface")

    @property
    def tags_now(self) -> bool:
        """Whether a training is under way that this tagger tags."""
        return self._tagging is not None and self._tagging.is_here

    def on_init_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:  # noqa: ANN401
        self._attempt(lambda: self._listen_for_evaluations(self._trainer()))

    def on_train_begin(self, args: Any, state: Any, control: Any, **named: Any) -> None:  # noqa: ANN401
        self._attempt(lambda: self._begin(named.get("train_dataloader"), named.get("model")))

    def _begin(self, loader: Any, model: Any) -> None:  # noqa: ANN401
        if self._tagging is not None and self._tagging.is_around:
            return  # a callback of that one trains something of its own
        self._stop()  # what a training that raised left behind
        ring = process_ring()
        trainer = self._trainer()
        if ring.writer is None:
            return
        if trainer is None:
            self._warn("gpumon tags no phases: it does not find the Trainer that it is called by")
            return
        if self._is_seen_to(trainer):
            return
        self._describe_run()
        self._listen_for_evaluations(trainer)
        events = EventCallbacks(TrainerCallback, (DefaultFlowCallback,))
        self._tagging = HuggingFaceTagging(ring, ring.writer, trainer, events)
        tell_of_loader(loader_facts(loader))
        self._describe_device("torch", model)
        if not self._tagging.sees_fetches:
            self._warn("gpumon sees no wait for input with this version of transformers")

    def _trainer(self) -> Any | None:  # noqa: ANN401
        """The ``Trainer`` among the callers: callbacks are handed everything but that."""

        def calls_us(found: Any) -> bool:  # noqa: ANN401
            handler = getattr(found, "callback_handler", None)
            return any(callback is self for callback in getattr(handler, "callbacks", ()))

        return caller_named("self", calls_us)

    def _listen_for_evaluations(self, trainer: Any) -> None:  # noqa: ANN401
        """Outside ``train``: the ``Trainer`` starts to watch its memory before anything else."""
        memory = getattr(trainer, "_memory_tracker", None)
        start = getattr(memory, "start", None)
        if memory is not None and start and type(start) is not StartOfEvaluation:
            memory.start = StartOfEvaluation(start, self._evaluation_starts)

    def _evaluation_starts(self) -> None:
        self._attempt(self._begin_alone)

    def _begin_alone(self) -> None:
        asked = sys._getframe(_FRAMES_TO_THE_METHOD).f_code.co_name
        mode, ring = MODE_OF.get(asked), process_ring()
        trainer = None if mode is None else self._trainer()
        if self._tagging is not None and self._tagging.is_here and not self._tagging.goes_on():
            self._stop()  # it raised, or there was nothing to evaluate
        if mode is None or trainer is None or self._is_seen_to(trainer):
            return
        if ring.writer_here is not None:
            self._describe_run()
            self._tagging = LoneEvaluation(ring, ring.writer_here, trainer, mode)

    def _is_seen_to(self, trainer: Any) -> bool:  # noqa: ANN401
        """Whether another tagger of the same ``Trainer`` tags what it does now."""
        others = trainer.callback_handler.callbacks
        return any(isinstance(other, PhaseTagger) and other.tags_now for other in others)
