"""What Lightning's profiled actions say about phases: pure rules, no Lightning and no clock."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import Final

from gpumon.core.phase import PHASE_NUMBER, TrainingMode, TrainingPhase
from trainer_hooks.phase_machine import (
    BETWEEN_EPOCHS,
    CALLBACKS,
    CHECKPOINT,
    INPUT_WAIT,
    OTHER,
    PREDICT,
    START_UP,
    TRAIN,
    TRAIN_STEP,
    VALIDATION,
    Pen,
)

HOST_TO_DEVICE: Final = PHASE_NUMBER[TrainingPhase.HOST_TO_DEVICE]

_FETCH: Final = re.compile(r"\[\w+\]\.\w+_next")
_EVALUATION_BEGINS: Final = re.compile(
    r"\[LightningModule\].*\.on_(validation|test|predict)_model_(?:zero_grad|eval)"
)
_EVALUATION_ENDS: Final = re.compile(r"\[Strategy\].*\.on_(?:validation|test|predict)_end")
_MODULE_HOOK: Final = re.compile(r"\[LightningModule\].*\.on_train_\w+")
_CALLBACK_HOOK: Final = re.compile(r"\[Callback\](.*)\.(\w+)", re.DOTALL)
_PART_OF_SOMETHING_ELSE: Final = frozenset(
    {"setup", "teardown", "on_save_checkpoint", "on_load_checkpoint"}
)


class Action(Enum):
    """What an action is, as far as phases go."""

    EPOCH = "epoch"
    FETCH = "fetch"
    TRANSFER = "transfer"
    STEP = "step"
    CALLBACK = "callback"
    CHECKPOINT = "checkpoint"
    VALIDATION_BEGINS = "validation_begins"
    PREDICTION_BEGINS = "prediction_begins"
    EVALUATION_ENDS = "evaluation_ends"

    # Enum hashes in Python, for each look-up in a dictionary; an object does so in C.
    __hash__ = object.__hash__


_WHOLE: Final = {
    "run_training_epoch": Action.EPOCH,
    "run_training_batch": Action.STEP,
    "save_checkpoint": Action.CHECKPOINT,
}
_IN_TRAINING: Final = {
    Action.EPOCH: INPUT_WAIT,  # the first batch is asked for, and workers start
    Action.FETCH: INPUT_WAIT,
    Action.TRANSFER: HOST_TO_DEVICE,
    Action.STEP: TRAIN_STEP,
    Action.CALLBACK: CALLBACKS,
}
_AFTERWARDS: Final = {
    Action.EPOCH: BETWEEN_EPOCHS,
    Action.FETCH: HOST_TO_DEVICE,
    # Hooks, logging and the progress bar follow: all of it stays with the callbacks.
    Action.TRANSFER: CALLBACKS,
    Action.STEP: CALLBACKS,
}
_EVALUATIONS: Final = {
    Action.VALIDATION_BEGINS: (VALIDATION, int(TrainingMode.VALIDATION)),
    Action.PREDICTION_BEGINS: (PREDICT, int(TrainingMode.PREDICT)),
}


def action_named(
    name: str, action_of_callback: Callable[[str, str], Action | None]
) -> Action | None:
    """What the action of that name is; ``None``: it changes no phase.

    Args:
        name: As Lightning calls it, such as ``"run_training_batch"``.
        action_of_callback: Asked what a callback's method is, by the
            callback's key and the method's name.

    >>> action_named("[_TrainingEpochLoop].train_dataloader_next", lambda key, hook: None)
    <Action.FETCH: 'fetch'>
    """
    if name in _WHOLE:
        return _WHOLE[name]
    if _FETCH.fullmatch(name):
        return Action.FETCH
    if name.startswith("[Strategy]") and name.endswith(".batch_to_device"):
        return Action.TRANSFER
    if _EVALUATION_ENDS.fullmatch(name):
        return Action.EVALUATION_ENDS
    return _hook_named(name, action_of_callback)


def _hook_named(
    name: str, action_of_callback: Callable[[str, str], Action | None]
) -> Action | None:
    begins = _EVALUATION_BEGINS.fullmatch(name)
    if begins:
        is_prediction = begins[1] == "predict"
        return Action.PREDICTION_BEGINS if is_prediction else Action.VALIDATION_BEGINS
    if _MODULE_HOOK.fullmatch(name):
        return Action.CALLBACK
    hook = _CALLBACK_HOOK.fullmatch(name)
    if hook and hook[2] not in _PART_OF_SOMETHING_ELSE:
        return action_of_callback(hook[1], hook[2])
    return None


class LightningPhases:
    """Turns the beginnings and ends of actions into phases.

    Actions nest; the innermost that says anything counts, so that every
    moment has one phase. In an evaluation only the wait for input and a
    checkpoint are told apart.
    """

    def __init__(self, pen: Pen) -> None:
        """Set-up begins: until the first epoch, all but evaluations is ``start_up``."""
        self._pen = pen
        self._mode = TRAIN
        self._is_starting = True
        self._before_evaluation = (START_UP, TRAIN)
        self._open: list[tuple[Action, tuple[int, int]]] = []
        self._go(START_UP, TRAIN)

    def begin(self, action: Action) -> None:
        """An action begins, perhaps inside another."""
        self._open.append((action, self._pen.present))
        if action in _EVALUATIONS:
            self._begin_evaluation(*_EVALUATIONS[action])
        elif action is Action.CHECKPOINT:
            self._go(CHECKPOINT, TRAIN)
        elif action is Action.FETCH:
            self._go(INPUT_WAIT, self._mode)
        elif self._mode == TRAIN and action in _IN_TRAINING:
            if action is Action.EPOCH:
                self._is_starting = False
            if not self._is_starting:
                self._go(_IN_TRAINING[action], TRAIN)

    def end(self, action: Action) -> None:
        """It is over, and so is whatever began inside it and did not say that it ended."""
        before = self._close(action)
        if before is None:
            return
        if action is Action.EVALUATION_ENDS:
            self._mode = TRAIN
            self._go(*self._before_evaluation)
        elif action in _EVALUATIONS:
            return  # the evaluation goes on
        elif self._mode == TRAIN and action in _AFTERWARDS and before[0] != TRAIN_STEP:
            self._go(_AFTERWARDS[action], TRAIN)
        else:
            self._go(*before)

    def finish(self) -> None:
        """The trainer is done, or an exception ended it."""
        self._open.clear()
        self._mode = TRAIN
        self._go(OTHER, TRAIN)

    def _begin_evaluation(self, phase: int, mode: int) -> None:
        if self._mode == TRAIN:
            self._before_evaluation = self._pen.present
            self._mode = mode
            self._go(phase, mode)

    def _close(self, action: Action) -> tuple[int, int] | None:
        """The phase before it began; ``None`` where its beginning was not seen."""
        if not any(action is opened for opened, _ in self._open):
            return None
        while True:
            opened, before = self._open.pop()
            if opened is action:
                return before

    def _go(self, phase: int, mode: int) -> None:
        if self._pen.present != (phase, mode):
            self._pen.enter(phase, mode)
