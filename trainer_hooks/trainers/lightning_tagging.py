"""One tagged run of a Lightning trainer: phases from its profiled actions, until ``stop``."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from trainer_hooks.ring import phase_modes as modes
from trainer_hooks.ring.process_ring import ProcessRing
from trainer_hooks.ring.ring_writer import RingWriter
from trainer_hooks.taps.tap import rows_of
from trainer_hooks.trainers.lightning_profiler import (
    ActionHandler,
    ListeningProfiler,
    lightning_packages,
    without_listener,
)
from trainer_hooks.trainers.tagged_run import TaggedRun

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


_IN_EVERY_BATCH: Final = "on_train_batch_end"


class LightningTagging(TaggedRun):
    """Listens at a trainer's profiler, which receives every fetch, batch and hook."""

    def __init__(self, ring: ProcessRing, writer: RingWriter, trainer: Any, tagger: object) -> None:  # noqa: ANN401
        """Put the listener in place. ``tagger``: the callback whose own methods do not count."""
        super().__init__(ring, writer)
        self._samples = 0  # since the last step of the optimizer
        self.trainer, self._tagger = trainer, tagger
        self.has_reported_validation = False
        device = getattr(trainer.strategy, "root_device", None)
        is_on_cpu = getattr(device, "type", None) == "cpu"
        self._steps_before = trainer.global_step
        self._original = without_listener(trainer.profiler)
        self._placed = ListeningProfiler(self._original, self.handler)
        self._begin_run()
        self.phases = LightningPhases(writer, moves_batches=not is_on_cpu)
        trainer.profiler = self._placed

    def is_running(self) -> bool:
        """Whether it is going on; a callback that raised may have hidden the end."""
        return super().is_running() and not self.trainer.interrupted

    def handler(self, name: str) -> ActionHandler | None:
        slots: list[int] = []

        def action_of_callback(key: str, hook: str) -> Action | None:
            action, slot = self._callback_named(key, hook)
            slots.extend(() if slot is None else (slot,))
            return action

        try:
            action = action_named(name, action_of_callback)
        except Exception as error:  # noqa: BLE001
            self.fail(error)
            return None
        if action is Action.STEP:
            return _Step(self, action)
        phase = None if action is None else _PhaseAction(self, action)
        return _CallbackCall(self, phase, slots[0]) if slots else phase

    def apply(self, rule: Callable[[Action], None], action: Action) -> None:
        """Have a rule look at an action, where the calling thread is the one that trains."""
        try:
            if self.is_here:
                rule(action)
        except Exception as error:  # noqa: BLE001
            self.fail(error)

    def batch_begins(self, batch: object) -> None:
        if not self.phases.is_aside:
            self._samples += rows_of(batch)

    def batch_ends(self, error: BaseException | None) -> None:
        """Lightning has run a batch, or it raised: count it if the optimizer made a step."""
        try:
            self.step_ends()
            if self.phases.is_aside:
                return
            steps = self.trainer.global_step
            # With several optimizers Lightning counts each; a batch is one step all the same.
            is_step = steps != self._steps_before
            is_whole = error is None and not self.trainer.lightning_module.automatic_optimization
            if is_step or is_whole:
                self._steps_before = steps
                self._writer.count(1, self._samples)
                self._samples = 0
        except Exception as own_error:  # noqa: BLE001
            self.fail(own_error)

    def epoch_begins(self, epoch: int) -> None:
        if self.is_here:
            self._writer.epoch(epoch)
            if self.ratios is not None:
                self.ratios.begin()

    def epoch_ends(self) -> None:
        """Hand the epoch's ratios to the loggers of the trainer."""
        if self.ratios is not None and self.is_here:
            self.ratios.give(self._log)

    def _log(self, ratios: dict[str, float]) -> None:
        step = max(0, self.trainer.global_step - 1)  # as Lightning's own metrics of an epoch
        for logger in self.trainer.loggers:
            logger.log_metrics(dict(ratios), step=step)

    def validation_begins(self) -> None:
        """A validation begins, perhaps without an action of Lightning."""
        self.apply(self.phases.begin, Action.VALIDATION_BEGINS)
        self.apply(self.phases.end, Action.VALIDATION_BEGINS)

    def _callback_named(self, key: str, hook: str) -> tuple[Action | None, int | None]:
        """Return a callback method's action, and the slot of its class if it does anything."""
        named = [callback for callback in self.trainer.callbacks if callback.state_key == key]
        busy = [callback for callback in named if self._does_anything(callback, hook)]
        if named and not busy:
            return None, None
        slot = self.callbacks.slot_of(busy[0]) if busy else None
        kinds = tuple(package.callbacks.Checkpoint for package in lightning_packages())
        is_checkpoint = any(isinstance(callback, kinds) for callback in named)
        return (Action.CHECKPOINT if is_checkpoint else Action.CALLBACK), slot

    def _does_anything(self, callback: Any, hook: str) -> bool:  # noqa: ANN401
        if callback is self._tagger:
            return False
        method = getattr(type(callback), hook, None)
        empty = [getattr(package.Callback, hook, None) for package in lightning_packages()]
        if method in empty and hook not in vars(callback):
            return False
        return hook != _IN_EVERY_BATCH or not _saves_elsewhere(callback)

    def _leave(self) -> None:
        if self.trainer.profiler is self._placed:
            self.trainer.profiler = self._original


class _PhaseAction:
    """An action that changes the phase."""

    __slots__ = ("_action", "_run")

    def __init__(self, run: LightningTagging, action: Action) -> None:
        self._run, self._action = run, action

    def begin(self) -> None:
        self._run.apply(self._run.phases.begin, self._action)

    def end(self, error: BaseException | None) -> None:
        self._run.apply(self._run.phases.end, self._action)


class _Step(_PhaseAction):
    """A training batch."""

    __slots__ = ()

    def begin(self) -> None:
        super().begin()
        if self._run.is_here:
            self._run.step_begins()

    def end(self, error: BaseException | None) -> None:
        if self._run.is_here:
            self._run.batch_ends(error)
        super().end(error)


class _CallbackCall:
    """A callback's method: its class is timed, and a phase may begin with it."""

    __slots__ = ("_phase", "_run", "_slot")

    def __init__(self, run: LightningTagging, phase: _PhaseAction | None, slot: int) -> None:
        self._run, self._phase, self._slot = run, phase, slot

    def begin(self) -> None:
        if self._phase is not None:
            self._phase.begin()
        if self._run.is_here:
            self._run.callbacks.begin(self._slot)

    def end(self, error: BaseException | None) -> None:
        if self._run.is_here:
            self._run.callbacks.end()
        if self._phase is not None:
            self._phase.end(error)


def _saves_elsewhere(callback: Any) -> bool:  # noqa: ANN401
    """Whether a checkpoint callback saves at the end of epochs only."""
    return (
        any(type(callback) is package.callbacks.ModelCheckpoint for package in lightning_packages())
        and getattr(callback, "_every_n_train_steps", None) == 0
        and getattr(callback, "_train_time_interval", callback) is None
    )
