"""Phases from Lightning's profiled actions: pure rules, without Lightning or a clock."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import Final

from trainer_hooks.ring import phase_modes as modes
from trainer_hooks.ring.ring_writer import RingWriter

_FETCH: Final = re.compile(r"\[\w+\]\.\w+_next")
_EVALUATION_BEGINS: Final = re.compile(
    r"\[LightningModule\].*\.on_(validation|test|predict)_model_(?:zero_grad|eval)"
)
_EVALUATION_ENDS: Final = re.compile(r"\[Strategy\].*\.on_(?:validation|test|predict)_end")
_MODULE_HOOK: Final = re.compile(r"\[LightningModule\].*\.(on_train_\w+)")
_CALLBACK_HOOK: Final = re.compile(r"\[Callback\](.*)\.(\w+)", re.DOTALL)
_PART_OF_SOMETHING_ELSE: Final = frozenset(
    {"setup", "teardown", "on_save_checkpoint", "on_load_checkpoint"}
)
_AMONG_CALLBACKS: Final = frozenset({"on_train_batch_start", "on_train_batch_end"})
"""Between a batch and its step, and after the step, everything is ``callbacks`` anyway."""


class Action(Enum):
    """An action's effect on phases."""

    EPOCH = "epoch"
    FETCH = "fetch"
    TRANSFER = "transfer"
    STEP = "step"
    CALLBACK = "callback"
    CHECKPOINT = "checkpoint"
    VALIDATION_BEGINS = "validation_begins"
    PREDICTION_BEGINS = "prediction_begins"
    EVALUATION_ENDS = "evaluation_ends"

    # Enum hashes in Python at each dictionary look-up; ``object`` does it in C.
    __hash__ = object.__hash__


_WHOLE: Final = {
    "run_training_epoch": Action.EPOCH,
    "run_training_batch": Action.STEP,
    "save_checkpoint": Action.CHECKPOINT,
}
_Targets = dict[Action, modes.PhaseMode]

_STARTING: Final[_Targets] = {
    Action.CHECKPOINT: modes.CHECKPOINT,
    Action.FETCH: modes.INPUT_WAIT[modes.TRAIN_MODE],
}
_TRAINING: Final[_Targets] = {
    **_STARTING,
    # The first batch is requested, and workers start.
    Action.EPOCH: modes.INPUT_WAIT[modes.TRAIN_MODE],
    Action.TRANSFER: modes.HOST_TO_DEVICE,
    Action.STEP: modes.TRAIN_STEP,
    Action.CALLBACK: modes.CALLBACKS,
}
_EVALUATING: Final[dict[int, _Targets]] = {
    mode: {Action.CHECKPOINT: modes.CHECKPOINT, Action.FETCH: modes.INPUT_WAIT[mode]}
    for mode in modes.EVALUATION
}
_ASIDE: Final[_Targets] = {Action.CHECKPOINT: modes.CHECKPOINT}
"""A callback that trains with the same trainer, to find a learning rate, counts as callback."""
_AFTERWARDS: Final[_Targets] = {
    Action.EPOCH: modes.BETWEEN_EPOCHS,
    # Hooks, logging and the progress bar follow: they count as callbacks.
    Action.FETCH: modes.CALLBACKS,
    Action.TRANSFER: modes.CALLBACKS,
    Action.STEP: modes.CALLBACKS,
}
_EVALUATIONS: Final = {
    Action.VALIDATION_BEGINS: modes.VALIDATION,
    Action.PREDICTION_BEGINS: modes.PREDICT,
}
_TURNS: Final = frozenset({Action.EPOCH, Action.EVALUATION_ENDS, *_EVALUATIONS})
"""Actions after which other rules apply."""


def action_named(
    name: str, action_of_callback: Callable[[str, str], Action | None]
) -> Action | None:
    """Return the action of that name; ``None``: it changes no phase.

    Args:
        name: Lightning's name, such as ``"run_training_batch"``.
        action_of_callback: Returns the action of a callback's method, by the
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
    hook = _MODULE_HOOK.fullmatch(name)
    if hook:
        return None if hook[1] in _AMONG_CALLBACKS else Action.CALLBACK
    hook = _CALLBACK_HOOK.fullmatch(name)
    if hook is None or hook[2] in _PART_OF_SOMETHING_ELSE:
        return None
    action = action_of_callback(hook[1], hook[2])
    return None if action is Action.CALLBACK and hook[2] in _AMONG_CALLBACKS else action


class LightningPhases:
    """Turns the beginnings and ends of actions into phases.

    Actions nest; the innermost with a phase counts. In an evaluation only the wait for input and a
    checkpoint are separate.
    """

    def __init__(self, writer: RingWriter, *, moves_batches: bool = True) -> None:
        """Begin with set-up: until the first epoch, all but evaluations is ``start_up``."""
        self._writer = writer
        self._targets = self._before_evaluation = _STARTING
        self._phase_before_evaluation = modes.START_UP
        after_fetch = modes.HOST_TO_DEVICE if moves_batches else modes.CALLBACKS
        self._afterwards = {**_AFTERWARDS, Action.FETCH: after_fetch}
        self._open: list[tuple[Action, modes.PhaseMode, _Targets]] = []
        self._go(modes.START_UP)

    @property
    def is_aside(self) -> bool:
        """Whether a callback is training, not the run."""
        return self._targets is _ASIDE

    def begin(self, action: Action) -> None:
        present = self._writer.present
        afterwards = self._turn(action) if action in _TURNS else self._targets
        self._open.append((action, present, afterwards))
        target = self._targets.get(action)
        if target is not None and target != present:
            self._writer.enter(*target)

    def end(self, action: Action) -> None:
        """An action ends, and so does everything that began inside it without an end."""
        stack = self._open
        if not stack or stack[-1][0] is not action:
            if not any(action is opened for opened, _, _ in stack):
                return
            while stack[-1][0] is not action:
                stack.pop()
        _, before, afterwards = stack.pop()
        if action is Action.EVALUATION_ENDS:
            if self._targets in _EVALUATING.values():
                self._targets = self._before_evaluation
                self._go(self._phase_before_evaluation)
        elif action not in _EVALUATIONS:  # only their beginning is an action
            self._targets = afterwards  # even if an evaluation in it has raised
            is_in_a_step = before == modes.TRAIN_STEP
            is_training = self._targets is _TRAINING and not is_in_a_step
            self._go(self._afterwards.get(action, before) if is_training else before)

    def _turn(self, action: Action) -> _Targets:
        """Change the rules for what follows; returns those for after the action."""
        if action is Action.EPOCH and self._open:
            before, self._targets = self._targets, _ASIDE
            return before
        if action is Action.EPOCH:
            self._targets = _TRAINING
        elif action in _EVALUATIONS and self._targets in (_STARTING, _TRAINING):
            self._before_evaluation = self._targets
            self._phase_before_evaluation = self._writer.present
            phase_mode = _EVALUATIONS[action]
            self._targets = _EVALUATING[phase_mode[1]]
            self._go(phase_mode)
        return self._targets

    def _go(self, phase_mode: modes.PhaseMode) -> None:
        if self._writer.present != phase_mode:
            self._writer.enter(*phase_mode)
