"""``PhaseTagger`` for Lightning: a callback that tells gpumon what the training is doing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from trainer_hooks.ring.process_ring import process_ring
from trainer_hooks.trainers.class_not_instance import AlsoOnTheClass
from trainer_hooks.trainers.lightning_profiler import lightning_packages
from trainer_hooks.trainers.lightning_tagging import LightningTagging
from trainer_hooks.trainers.loader_facts import loader_facts, tell_of_loader
from trainer_hooks.trainers.tagger import Tagger

_LENT: Final = frozenset({"log", "log_dict"})


class PhaseTagger(Tagger):
    """Tags every moment of ``fit``, ``validate``, ``test`` and ``predict`` with its phase.

    ``Trainer(callbacks=[PhaseTagger()])``
        the run is called after ``$GPUMON_RUN``, else after the script.
    ``PhaseTagger(run="resnet", gpus=[0, 1])``
        says the name, and which GPUs it trains on.

    It tells apart ``start_up, compile, input_wait, host_to_device,
    train_step, callbacks, checkpoint, validation, predict, between_epochs``,
    and how long each class of callback took. It listens to
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

    _tagging: LightningTagging | None

    def __new__(cls, *_: object, **__: object) -> PhaseTagger:
        """An instance that is also a callback of the Lightning in use."""
        bases = tuple(package.Callback for package in lightning_packages())
        if issubclass(cls, bases):
            return super().__new__(cls)
        made: type[PhaseTagger] = type(
            cls.__name__, (cls, *bases), {"__qualname__": cls.__qualname__, "_made_of": cls}
        )
        return super().__new__(made)

    def __init__(self, run: str | None = None, gpus: Sequence[int | str] | None = None) -> None:
        super().__init__()
        self._set_up(run, gpus, framework="lightning")

    def __getstate__(self) -> dict[str, Any]:
        """Without the methods that Lightning lends to every callback of a trainer."""
        return {name: kept for name, kept in super().__getstate__().items() if name not in _LENT}

    def __reduce__(self) -> tuple[Any, ...]:
        """The class of an instance is made as it is, and of no module."""
        kind = type(self)
        return _blank, (vars(kind).get("_made_of", kind),), self.__getstate__()

    @property
    def state_key(self) -> str:
        """As of any callback of Lightning, which asks the class for it, too."""
        return type(self).__qualname__

    @AlsoOnTheClass
    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ANN401
        self._attempt(lambda: self._begin(trainer))

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401
        if self._tagging_of(trainer) is not None:
            self._attempt(lambda: tell_of_loader(loader_facts(trainer.train_dataloader)))
            self._attempt(lambda: self._describe_device("torch", pl_module))

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401
        tagging = self._tagging_of(trainer)
        if tagging is not None and not tagging.has_told_validation:
            tagging.has_told_validation = True
            self._attempt(
                lambda: tell_of_loader(loader_facts(trainer.val_dataloaders), validates=True)
            )

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401
        tagging = self._tagging_of(trainer)
        if tagging is not None:
            tagging.epoch_begins(trainer.current_epoch)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, *_: object) -> None:  # noqa: ANN401
        tagging = self._tagging_of(trainer)
        if tagging is not None:
            tagging.batch_begins(batch)

    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401
        tagging = self._tagging_of(trainer)
        if tagging is not None:
            tagging.validation_begins()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ANN401
        self._end(trainer)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ANN401
        self._end(trainer)

    def _take_what_was_lent(self) -> None:
        """Where the class stood in the trainer's list: it would keep the user's model for ever."""
        kind = vars(type(self)).get("_made_of", type(self))
        for name in _LENT & vars(kind).keys():
            setattr(self, name, getattr(kind, name))
            delattr(kind, name)

    def _begin(self, trainer: Any) -> None:  # noqa: ANN401
        self._take_what_was_lent()
        tagging, ring = self._tagging, process_ring()
        if tagging is not None and tagging.is_around and tagging.trainer is not trainer:
            return  # a callback of that one runs another with the same tagger
        self._stop()
        if ring.writer is not None:
            self._describe_run()
            self._tagging = LightningTagging(ring, ring.writer, trainer, self)

    def _end(self, trainer: Any) -> None:  # noqa: ANN401
        if self._tagging_of(trainer) is not None:
            self._stop()

    def _tagging_of(self, trainer: Any) -> LightningTagging | None:  # noqa: ANN401
        """What is tagged now, if it is a run of that trainer."""
        tagging = self._tagging
        return tagging if tagging is not None and tagging.trainer is trainer else None


def _blank(kind: type[PhaseTagger]) -> PhaseTagger:
    return kind.__new__(kind)
