"""One tagged run of a Lightning trainer, such as a ``fit``: in place until ``stop``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from trainer_hooks.ring.process_ring import ProcessRing
from trainer_hooks.ring.ring_writer import RingWriter
from trainer_hooks.taps.tap import rows_of
from trainer_hooks.trainers.lightning_phases import Action, LightningPhases, action_named
from trainer_hooks.trainers.lightning_profiler import (
    ActionHandler,
    ListeningProfiler,
    lightning_packages,
    without_listener,
)
from trainer_hooks.trainers.tagged_run import TaggedRun

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
