"""For Lightning: ``PhaseTagger``, and ``RatioStrategy`` for unequal GPUs."""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence
from typing import Any, Final

from trainer_hooks.ddp.ratio_balancer import RatioBalancer
from trainer_hooks.ddp.ratio_sampler import RatioSampler
from trainer_hooks.ddp.split_loaders import ratio_sampler_for, split
from trainer_hooks.ring.guard import fail_quietly, passes_through
from trainer_hooks.ring.process_ring import process_ring
from trainer_hooks.trainers.lightning_profiler import lightning_packages
from trainer_hooks.trainers.lightning_tagging import LightningTagging
from trainer_hooks.trainers.loader_facts import loader_facts, report_loader
from trainer_hooks.trainers.logged_ratios import LoggedRatios
from trainer_hooks.trainers.tagger import RefusesClass, Tagger

_LENT_METHODS: Final = frozenset({"log", "log_dict"})


class PhaseTagger(Tagger):
    """Tags all of ``fit``, ``validate``, ``test`` and ``predict`` with phases.

    ``Trainer(callbacks=[PhaseTagger()])``
        the run is named after ``$GPUMON_RUN``, else after the script.
    ``PhaseTagger(run="resnet", gpus=[0, 1])``
        names the run and its GPUs.

    It distinguishes ``start_up, compile, input_wait, host_to_device, train_step, callbacks,
    checkpoint, validation, predict, between_epochs``, and times each class of callback. It listens
    to the actions that Lightning reports to ``trainer.profiler``; a profiler of the user's own
    receives the same actions as without it. A step is a batch, or the batches accumulated into one
    step of the optimizer.

    It never blocks, raises, or changes a result, with or without a daemon. It is a callback of
    ``lightning.pytorch`` or of ``pytorch_lightning``, whichever has been imported when it is
    created.

    After each training epoch the trainer's loggers (W&B, MLflow, TensorBoard and others) get
    ``input_wait_ratio`` and, if a daemon runs, ``gpu_busy_ratio`` and ``starved_ratio``. These mean
    the same as in Keras.

    Args:
        run: Name of the run.
        gpus: Indices or UUIDs of the GPUs it trains on; else ``$GPUMON_GPUS``.
        logs: Whether the loggers receive them.

    Raises:
        ImportError: No Lightning is installed.
    """

    _tagging: LightningTagging | None

    @passes_through
    def __new__(cls, *_: object, **__: object) -> PhaseTagger:
        """Create an instance that is also a callback of the Lightning in use."""
        bases = tuple(package.Callback for package in lightning_packages())
        if issubclass(cls, bases):
            return super().__new__(cls)
        made: type[PhaseTagger] = type(
            cls.__name__, (cls, *bases), {"__qualname__": cls.__qualname__, "_made_of": cls}
        )
        return super().__new__(made)

    @passes_through
    def __init__(
        self,
        run: str | None = None,
        gpus: Sequence[int | str] | None = None,
        *,
        logs: bool = True,
    ) -> None:
        super().__init__()
        self._logs = logs
        self._set_up(run, gpus, framework="lightning")

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the methods that Lightning puts on every callback of a trainer."""
        return {
            name: kept for name, kept in super().__getstate__().items() if name not in _LENT_METHODS
        }

    def __reduce__(self) -> tuple[Any, ...]:
        """The class of an instance is created dynamically and is in no module."""
        kind = type(self)
        return _new_instance, (vars(kind).get("_made_of", kind),), self.__getstate__()

    @property
    @passes_through
    def state_key(self) -> str:
        """The key of any Lightning callback, which Lightning also reads from the class."""
        return type(self).__qualname__

    @RefusesClass
    @fail_quietly
    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ANN401
        self._begin(trainer)

    @fail_quietly
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401
        if self._tagging_of(trainer) is not None:
            report_loader(loader_facts(trainer.train_dataloader))
            self._describe_device("torch", pl_module)

    @fail_quietly
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401
        tagging = self._tagging_of(trainer)
        if tagging is not None and not tagging.has_reported_validation:
            tagging.has_reported_validation = True
            report_loader(loader_facts(trainer.val_dataloaders), validates=True)

    @fail_quietly
    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401
        tagging = self._tagging_of(trainer)
        if tagging is not None:
            tagging.epoch_begins(trainer.current_epoch)

    @fail_quietly
    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401
        tagging = self._tagging_of(trainer)
        if tagging is not None:
            tagging.epoch_ends()

    @fail_quietly
    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, *_: object) -> None:  # noqa: ANN401
        tagging = self._tagging_of(trainer)
        if tagging is not None:
            tagging.batch_begins(batch)

    @fail_quietly
    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401
        tagging = self._tagging_of(trainer)
        if tagging is not None:
            tagging.validation_begins()

    @fail_quietly
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ANN401
        self._end(trainer)

    @fail_quietly
    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ANN401
        self._end(trainer)

    def _begin(self, trainer: Any) -> None:  # noqa: ANN401
        tagging, ring = self._tagging, process_ring()
        if tagging is not None and tagging.encloses and tagging.trainer is not trainer:
            return  # a callback of that trainer runs another with the same tagger
        self._stop()
        if ring.writer is not None:
            self._describe_run()
            self._tagging = LightningTagging(ring, ring.writer, trainer, self)
            if self._logs:
                self._tagging.ratios = LoggedRatios(ring.writer, self._warn)

    def _end(self, trainer: Any) -> None:  # noqa: ANN401
        if self._tagging_of(trainer) is not None:
            self._stop()

    def _tagging_of(self, trainer: Any) -> LightningTagging | None:  # noqa: ANN401
        """Return the tagged run if it is that trainer's."""
        tagging = self._tagging
        return tagging if tagging is not None and tagging.trainer is trainer else None


def _new_instance(kind: Any) -> Any:  # noqa: ANN401
    return kind.__new__(kind)


class RatioStrategy:
    """Lightning's ``DDPStrategy`` for unequal GPUs: each rank computes its part of every batch.

    ``Trainer(strategy=RatioStrategy([3, 2]), devices=2)``
        of two batches of 50, rank 0 computes 60 samples and rank 1 40.

    It splits the training ``DataLoader`` by the ratios, with ``use_distributed_sampler`` or
    without, and weights each rank's loss, so that the gradient is that of one device with the whole
    batch: the mean over all samples of a step, also of its accumulated batches. The logged loss is
    that of the rank's own samples. Validation, test and prediction are split evenly, as Lightning
    does. A checkpoint in mid-epoch is continued at its step, also with other ratios.

    It is a strategy of ``lightning.pytorch`` or of ``pytorch_lightning``, whichever has been
    imported when it is created.

    Args:
        ratios: One positive number per rank, in order; only their proportions count.
        balancer: Balances the ratios while ``fit`` runs, if given.
        ddp: Arguments of ``DDPStrategy``.

    Raises:
        ImportError: No Lightning is installed.
        TypeError: There are no ratios.
        ValueError: When ``fit`` begins: the loader or the ratios cannot be split, or ranks have
            different ones. All ranks raise.
    """

    def __new__(cls, *_: object, **__: object) -> RatioStrategy:
        """Create an instance that is also a ``DDPStrategy`` of the Lightning in use."""
        base = lightning_packages()[0].strategies.DDPStrategy
        made: type[RatioStrategy] = type(cls.__name__, (cls, base), {})
        return super().__new__(made)

    def __init__(
        self,
        ratios: Sequence[float] | None = None,
        *,
        balancer: RatioBalancer | None = None,
        **ddp: Any,  # noqa: ANN401
    ) -> None:
        if ratios is None:
            raise TypeError("ratios are missing: write RatioStrategy([3, 2]), one for each rank")
        super().__init__(**ddp)
        self._ratios, self._balancer = ratios, balancer
        self._batches: _RatioBatches | None = None
        self._weight = 1.0

    def __reduce__(self) -> tuple[Any, ...]:
        """The class of an instance is created dynamically and is in no module."""
        return _new_instance, (type(self).__bases__[0],), vars(self)

    def process_dataloader(self, dataloader: Any) -> Any:  # noqa: ANN401
        """Split the training loader by the ratios; leave any other as it is."""
        dataloader = super().process_dataloader(dataloader)  # type: ignore[misc]  # DDPStrategy's
        trainer = self.lightning_module.trainer  # type: ignore[attr-defined]
        if not trainer.training:
            return dataloader
        sampler = ratio_sampler_for(
            dataloader,
            self._ratios,
            accumulated=trainer.accumulate_grad_batches,
            seed=int(os.environ.get("PL_GLOBAL_SEED", "0")),  # as Lightning seeds its samplers
            refusal=lambda: _why_not(trainer),
        )
        sampler.set_epoch(trainer.fit_loop.epoch_progress.current.processed)
        if self._balancer is not None:
            self._balancer.watch(sampler, self.model)  # type: ignore[attr-defined]
        self._batches = _RatioBatches(sampler, trainer.accumulate_grad_batches)
        return self._batches.loader_of(dataloader)

    def on_train_start(self) -> None:
        super().on_train_start()  # type: ignore[misc]
        loaders = self.lightning_module.trainer.train_dataloader  # type: ignore[attr-defined]
        if self._batches is not None and not isinstance(loaders, _ResumableLoader):
            raise ValueError(
                "RatioStrategy splits one training loader, and this run has several: make one "
                "DataLoader of a dataset that joins theirs"
            )

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:  # noqa: ANN401
        super().on_train_batch_start(batch, batch_idx)  # type: ignore[misc]
        accumulated = self.lightning_module.trainer.accumulate_grad_batches  # type: ignore[attr-defined]
        if self._batches is not None:
            self._weight = self._batches.begin(batch_idx, accumulated)

    def backward(self, closure_loss: Any, *args: Any, **named: Any) -> Any:  # noqa: ANN401
        """Propagate the loss, weighted by this rank's part of the step."""
        return super().backward(closure_loss * self._weight, *args, **named)  # type: ignore[misc]


class _RatioBatches:
    """The training batches, as Lightning counts them."""

    def __init__(self, sampler: RatioSampler, accumulated: int) -> None:
        self._sampler = sampler
        self._accumulated = accumulated
        self._first = self._done = 0

    def loader_of(self, loader: Any) -> Any:  # noqa: ANN401
        """Return a loader like that, which can be saved and continued in mid-epoch."""
        kind = type(type(loader).__name__, (_ResumableLoader, type(loader)), {})
        made: Any = object.__new__(kind)
        vars(made).update(vars(loader), _iterator=None, ratio_batches=self)
        split(made, self._sampler)
        vars(made)["sampler"] = self  # Lightning calls its ``set_epoch``
        return made

    def __len__(self) -> int:
        return self._sampler.batches

    def set_epoch(self, epoch: int) -> None:
        if epoch == self._sampler.epoch:
            return  # and its batches may be drawn already
        if self._sampler.has_drawn and self._done == self._first:
            raise ValueError(
                f"Lightning drew batches of epoch {self._sampler.epoch} before it knew that it "
                f"resumes in epoch {epoch}: leave trainer.estimated_stepping_batches out of "
                "configure_optimizers"
            )
        self._sampler.set_epoch(epoch)
        self._first = self._done = 0

    def begin(self, batch: int, accumulated: int) -> float:
        """Return the weight of the next batch.

        Raises:
            ValueError: It is not the one that the loader yielded, or others are accumulated.
        """
        if accumulated != self._accumulated:
            raise ValueError(
                f"RatioStrategy split steps of {self._accumulated} batches, and now "
                f"{accumulated} are accumulated: give Trainer(accumulate_grad_batches=...) one "
                "number, and leave GradientAccumulationScheduler out"
            )
        why_not = self._why_not_resumed(batch)
        if why_not is not None:
            raise ValueError(why_not)
        share = self._sampler.begin_batch(batch - self._first)
        self._done = batch + 1
        return share.weight * accumulated

    def _why_not_resumed(self, batch: int) -> str | None:
        """Return why Lightning and its loader differ in their batch, and what to write instead."""
        if batch >= len(self):
            return (
                f"Lightning resumes with batch {batch} of an epoch of {len(self)} batches: use "
                "max_epochs instead of max_steps"
            )
        if batch < self._first:
            return (
                f"this Lightning version counts batch {batch} twice when it resumes in mid-epoch: "
                "upgrade it"
            )
        if self._done == self._first != batch:
            return (
                f"Lightning resumes at batch {batch}, and its loader begins at batch "
                f"{self._first}: leave trainer.estimated_stepping_batches out of "
                "configure_optimizers"
            )
        return None

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self._sampler.epoch, "batch": self._done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        epoch, batch = state["epoch"], state["batch"]
        if batch >= len(self):
            epoch, batch = epoch + 1, 0
        if batch % self._accumulated:
            raise ValueError(
                f"the checkpoint was written after batch {batch}, within a step of "
                f"{self._accumulated} batches: resume from one that was written after a step"
            )
        self._sampler.set_epoch(epoch, start_step=batch // self._accumulated)
        self._first = self._done = batch


class _ResumableLoader:
    """A Lightning loader that knows how far the run is."""

    ratio_batches: _RatioBatches

    def __len__(self) -> int:
        return len(self.ratio_batches)  # of the whole epoch, even when resumed

    def state_dict(self) -> dict[str, int]:
        return self.ratio_batches.state_dict()

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.ratio_batches.load_state_dict(state)


def _why_not(trainer: Any) -> str | None:  # noqa: ANN401
    """Return why this run cannot be split, and what to write instead."""
    if "dataloader_iter" in inspect.signature(trainer.lightning_module.training_step).parameters:
        return (
            "RatioStrategy cannot see which batch training_step(dataloader_iter) fetches: write "
            "training_step(batch, batch_idx)"
        )
    return None
