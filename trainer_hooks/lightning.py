"""``PhaseTagger`` for Lightning: a callback that tells gpumon what the training is doing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainer_hooks.quiet_warning import warn_quietly
from trainer_hooks.ring.process_ring import ProcessRing, describe_run, process_ring
from trainer_hooks.ring.ring_writer import RingWriter
from trainer_hooks.taps.samples import rows_of
from trainer_hooks.trainers.lightning_phases import Action, LightningPhases, action_named
from trainer_hooks.trainers.lightning_profiler import (
    ListeningProfiler,
    lightning_packages,
    without_listener,
)
from trainer_hooks.trainers.loader_facts import loader_facts


class PhaseTagger:
    """Tags every moment of ``fit``, ``validate``, ``test`` and ``predict`` with its phase.

    ``Trainer(callbacks=[PhaseTagger()])``
        the run is called after ``$GPUMON_RUN``, else after the script.
    ``PhaseTagger(run="resnet", gpus=[0, 1])``
        says the name, and which GPUs it trains on.

    It tells apart ``start_up, input_wait, host_to_device, train_step,
    callbacks, checkpoint, validation, predict, between_epochs``. It listens to
    the actions that Lightning reports to ``trainer.profiler``; a profiler of
    the user's own hears of the same actions as without it. A step is a batch,
    or the batches that were accumulated into one step of the optimizer.

    It never blocks, raises, or changes a result; without a daemon it works as
    well. It is a callback of ``lightning.pytorch`` or of ``pytorch_lightning``,
    whichever has been imported when it is made.

    Args:
        run: Name of the run.
        gpus: Indices or UUIDs of the GPUs it trains on; else ``$GPUMON_GPUS``.

    Raises:
        ImportError: No Lightning is installed.
    """

    def __new__(cls, *_: object, **__: object) -> PhaseTagger:
        """An instance that is also a callback of the Lightning in use."""
        bases = tuple(package.Callback for package in lightning_packages())
        if issubclass(cls, bases):
            return super().__new__(cls)
        made: type[PhaseTagger] = type(
            cls.__name__, (cls, *bases), {"__qualname__": cls.__qualname__}
        )
        return super().__new__(made)

    def __init__(self, run: str | None = None, gpus: Sequence[int | str] | None = None) -> None:
        super().__init__()
        self._run, self._gpus = run, gpus
        self._tagging: _Tagging | None = None
        self._warned = False
        describe_run(run=run, gpus=gpus, framework="lightning")

    def __reduce__(self) -> tuple[type[PhaseTagger], tuple[object, ...]]:
        """A copy is a new tagger of the same run."""
        return PhaseTagger, (self._run, self._gpus)

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ANN401
        self._stop()
        try:
            ring = process_ring()
            if ring.writer is not None:
                self._tagging = _Tagging(ring, ring.writer, trainer, self)
        except Exception as error:  # noqa: BLE001 (the training goes on untagged)
            self._give_up(error)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401
        try:
            describe_run(loader=loader_facts(trainer.train_dataloader))
        except Exception as error:  # noqa: BLE001
            self._give_up(error)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401
        if self._tagging is not None:
            self._tagging.epoch_begins(trainer.current_epoch)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, *_: object) -> None:  # noqa: ANN401
        if self._tagging is not None:
            self._tagging.samples += rows_of(batch)

    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401
        if self._tagging is not None:
            self._tagging.begin(Action.VALIDATION_BEGINS)
            self._tagging.end(Action.VALIDATION_BEGINS)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ANN401
        self._stop()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ANN401
        self._stop()

    def _stop(self) -> None:
        if self._tagging is not None:
            self._tagging.stop()
            self._tagging = None

    def _give_up(self, error: Exception) -> None:
        self._stop()
        if not self._warned:
            self._warned = True
            warn_quietly(f"gpumon tags no phases: {error!r}")


class _Tagging:
    """One ``fit``, ``validate``, ``test`` or ``predict``: in place until ``stop``."""

    def __init__(self, ring: ProcessRing, pen: RingWriter, trainer: Any, tagger: object) -> None:  # noqa: ANN401
        ring.adopt_thread()
        self.samples = 0
        self._ring, self._pen, self._trainer, self._tagger = ring, pen, trainer, tagger
        device = getattr(trainer.strategy, "root_device", None)
        is_on_cpu = getattr(device, "type", None) == "cpu"
        self._phases = LightningPhases(pen, moves_batches=not is_on_cpu)
        self._steps_before = trainer.global_step
        self._is_active = True
        self._original = without_listener(trainer.profiler)
        self._placed = ListeningProfiler(self._original, self)
        trainer.profiler = self._placed

    def stop(self) -> None:
        """Give the trainer its profiler back. Safe to call twice."""
        if not self._is_active:
            return
        self._is_active = False
        if self._trainer.profiler is self._placed:
            self._trainer.profiler = self._original
        if self._ring.writer_here is self._pen:
            self._phases.finish()

    def begin(self, action: Action) -> None:
        """An action begins."""
        if self._is_active and self._ring.writer_here is self._pen:
            try:
                self._phases.begin(action)
            except Exception as error:  # noqa: BLE001
                self._fail(error)

    def end(self, action: Action) -> None:
        """An action is over."""
        if self._is_active and self._ring.writer_here is self._pen:
            try:
                if action is Action.STEP:
                    self._count_step()
                self._phases.end(action)
            except Exception as error:  # noqa: BLE001
                self._fail(error)

    def epoch_begins(self, epoch: int) -> None:
        """Epoch ``epoch``, counted from 0, begins."""
        if self._is_active and self._ring.writer_here is self._pen:
            self._pen.epoch(epoch)

    def action_named(self, name: str) -> Action | None:
        """What the action of that name is."""
        try:
            return action_named(name, self._action_of_callback)
        except Exception as error:  # noqa: BLE001
            self._fail(error)
            return None

    def _count_step(self) -> None:
        steps = self._trainer.global_step
        is_counted_by_lightning = self._trainer.lightning_module.automatic_optimization
        # With several optimizers Lightning counts each; a batch is one step all the same.
        if steps != self._steps_before or not is_counted_by_lightning:
            self._steps_before = steps
            self._pen.count(1, self.samples)
            self.samples = 0

    def _action_of_callback(self, key: str, hook: str) -> Action | None:
        named = [callback for callback in self._trainer.callbacks if callback.state_key == key]
        if named and not any(_does_anything_in(hook, one, self._tagger) for one in named):
            return None
        is_checkpoint = any(_writes_checkpoints(callback) for callback in named)
        return Action.CHECKPOINT if is_checkpoint else Action.CALLBACK

    def _fail(self, error: Exception) -> None:
        self.stop()
        warn_quietly(f"gpumon tags no more phases of this training: {error!r}")


def _does_anything_in(hook: str, callback: Any, tagger: object) -> bool:  # noqa: ANN401
    """Whether a callback does something there, unless it is the tagger itself."""
    if callback is tagger:
        return False
    method = getattr(type(callback), hook, None)
    empty = [getattr(package.Callback, hook, None) for package in lightning_packages()]
    return method not in empty or hook in vars(callback)


def _writes_checkpoints(callback: Any) -> bool:  # noqa: ANN401
    return any(
        isinstance(callback, package.callbacks.Checkpoint) for package in lightning_packages()
    )
