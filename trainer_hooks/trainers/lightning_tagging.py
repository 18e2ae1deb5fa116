"""One tagged run of a Lightning trainer, such as a ``fit``: in place until ``stop``."""

from __future__ import annotations

from typing import Any, Final

from trainer_hooks.quiet_warning import warn_quietly
from trainer_hooks.ring.process_ring import ProcessRing
from trainer_hooks.ring.ring_writer import RingWriter
from trainer_hooks.trainers.lightning_phases import Action, LightningPhases, action_named
from trainer_hooks.trainers.lightning_profiler import (
    Heard,
    ListeningProfiler,
    lightning_packages,
    without_listener,
)
from trainer_hooks.trainers.tagged_run import TaggedRun

_IN_EVERY_BATCH: Final = "on_train_batch_end"


class LightningTagging(TaggedRun):
    """Listens at a trainer's profiler, which is told of every fetch, batch and hook.

    Attributes:
        samples: Seen since the last step of the optimizer.
    """

    def __init__(self, ring: ProcessRing, pen: RingWriter, trainer: Any, tagger: object) -> None:  # noqa: ANN401
        """Put the listener in.

        Args:
            ring: Of this process.
            pen: Its writer.
            trainer: Lightning's trainer.
            tagger: The callback whose own methods are not told of.
        """
        super().__init__(ring, pen)
        self.samples = 0
        self._trainer, self._tagger = trainer, tagger
        device = getattr(trainer.strategy, "root_device", None)
        is_on_cpu = getattr(device, "type", None) == "cpu"
        self._phases = LightningPhases(pen, moves_batches=not is_on_cpu)
        self._steps_before = trainer.global_step
        self._original = without_listener(trainer.profiler)
        self._placed = ListeningProfiler(self._original, self.heard)
        trainer.profiler = self._placed

    def heard(self, name: str) -> Heard | None:
        """Who is told of the action of that name; ``None``: nobody needs to be."""
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
        if slots:
            return _CallbackCall(self, action, slots[0])
        if action is Action.STEP:
            return _Step(self, action)
        return None if action is None else _Told(self, action)

    def begin(self, action: Action) -> None:
        """An action begins."""
        try:
            if self.is_here:
                self._phases.begin(action)
        except Exception as error:  # noqa: BLE001
            self.fail(error)

    def end(self, action: Action) -> None:
        """An action is over."""
        try:
            if self.is_here:
                self._phases.end(action)
        except Exception as error:  # noqa: BLE001
            self.fail(error)

    def step_ends(self) -> None:
        """Lightning has run a batch: count it, if the optimizer made a step."""
        try:
            super().step_ends()
            steps = self._trainer.global_step
            # With several optimizers Lightning counts each; a batch is one step all the same.
            is_step = steps != self._steps_before
            if is_step or not self._trainer.lightning_module.automatic_optimization:
                self._steps_before = steps
                self._pen.count(1, self.samples)
                self.samples = 0
        except Exception as error:  # noqa: BLE001
            self.fail(error)

    def epoch_begins(self, epoch: int) -> None:
        """Epoch ``epoch``, counted from 0, begins."""
        if self.is_here:
            self._pen.epoch(epoch)

    def validation_begins(self) -> None:
        """Also where Lightning reports no action for it."""
        self.begin(Action.VALIDATION_BEGINS)
        self.end(Action.VALIDATION_BEGINS)

    def fail(self, error: Exception) -> None:
        """A mistake of our own: tag no more."""
        self.stop()
        warn_quietly(f"gpumon tags no more phases of this training: {error!r}")

    def _callback_named(self, key: str, hook: str) -> tuple[Action | None, int | None]:
        """What a callback's method is, and the slot of its class, if it does anything."""
        named = [callback for callback in self._trainer.callbacks if callback.state_key == key]
        busy = [callback for callback in named if self._does_anything(callback, hook)]
        if named and not busy:
            return None, None
        slot = self.callbacks.slot_of(busy[0]) if busy else None
        is_checkpoint = any(_writes_checkpoints(callback) for callback in named)
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
        if self._trainer.profiler is self._placed:
            self._trainer.profiler = self._original

    def _finish(self) -> None:
        self._phases.finish()


class _Told:
    """An action that says something about phases."""

    __slots__ = ("_action", "_run")

    def __init__(self, run: LightningTagging, action: Action) -> None:
        self._run, self._action = run, action

    def begin(self) -> None:
        self._run.begin(self._action)

    def end(self) -> None:
        self._run.end(self._action)


class _Step(_Told):
    """A batch that is trained on."""

    __slots__ = ()

    def begin(self) -> None:
        run = self._run
        run.begin(self._action)
        if run.is_here:
            run.step_begins()

    def end(self) -> None:
        run = self._run
        if run.is_here:
            run.step_ends()
        run.end(self._action)


class _CallbackCall:
    """A callback's method: its class is timed, whether or not a phase of its own begins."""

    __slots__ = ("_action", "_run", "_slot")

    def __init__(self, run: LightningTagging, action: Action | None, slot: int) -> None:
        self._run, self._action, self._slot = run, action, slot

    def begin(self) -> None:
        run = self._run
        if self._action is not None:
            run.begin(self._action)
        if run.is_here:
            run.callbacks.begin(self._slot)

    def end(self) -> None:
        run = self._run
        if run.is_here:
            run.callbacks.end()
        if self._action is not None:
            run.end(self._action)


def _writes_checkpoints(callback: Any) -> bool:  # noqa: ANN401
    return any(
        isinstance(callback, package.callbacks.Checkpoint) for package in lightning_packages()
    )


def _saves_elsewhere(callback: Any) -> bool:  # noqa: ANN401
    """Whether a checkpoint callback is told to save at the end of epochs, and of no batch."""
    return (
        any(type(callback) is package.callbacks.ModelCheckpoint for package in lightning_packages())
        and getattr(callback, "_every_n_train_steps", None) == 0
        and getattr(callback, "_train_time_interval", callback) is None
    )
