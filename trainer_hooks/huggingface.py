"""For the Hugging Face ``Trainer``: ``PhaseTagger``, and ``RatioCallback`` for unequal GPUs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import wraps
from typing import Any, Final

from trainer_hooks.accelerate import unwrapped, why_not_split
from trainer_hooks.ddp.ratio_sampler import RatioSampler
from trainer_hooks.ddp.split_loaders import GradientWeights, ratio_sampler_for, split
from trainer_hooks.ring.call_frames import caller_named
from trainer_hooks.ring.guard import fail_quietly, passes_through
from trainer_hooks.ring.process_ring import process_ring
from trainer_hooks.trainers.callback_times import EventCallbacks
from trainer_hooks.trainers.huggingface_tagging import (
    MEMORY,
    MODE_OF,
    HuggingFaceTagging,
    LoneEvaluation,
    StartOfEvaluation,
)
from trainer_hooks.trainers.loader_facts import loader_facts, report_loader
from trainer_hooks.trainers.logged_ratios import LoggedRatios
from trainer_hooks.trainers.patching import PatchedMethods
from trainer_hooks.trainers.tagger import Tagger

try:
    from transformers import DefaultFlowCallback, Trainer, TrainerCallback
except ModuleNotFoundError as error:
    if error.name != "transformers":
        raise
    raise ModuleNotFoundError(
        "this needs the Hugging Face Trainer: pip install 'transformers[torch]'",
        name=error.name,
    ) from None

_FRAMES_TO_THE_METHOD: Final = 3
"""From ``_evaluation_starts`` up to the trainer's method that starts to watch its memory."""


class PhaseTagger(Tagger, TrainerCallback):  # type: ignore[misc]  # not typed where mypy runs
    """Tags all of ``trainer.train()`` with phases.

    ``Trainer(..., callbacks=[PhaseTagger()])``
        the run is named after ``$GPUMON_RUN``, else after the script.
    ``PhaseTagger(run="bert", gpus=[0, 1])``
        names the run and its GPUs.

    It distinguishes ``start_up, compile, input_wait, train_step, callbacks, checkpoint, validation,
    predict, between_epochs``, and times each class of callback. A step is a step of the optimizer,
    as in ``trainer.state.global_step``, however many batches it accumulates. ``evaluate`` and
    ``predict`` outside ``train`` are tagged as well.

    It never blocks, raises, or changes a result, with or without a daemon.

    Whenever the ``Trainer`` logs the loss, its callbacks for W&B, MLflow, TensorBoard and others
    also get ``input_wait_ratio`` since the last log and, if a daemon runs, ``gpu_busy_ratio`` and
    ``starved_ratio``. These mean the same as in Keras. The trainer's own history and results do not
    contain them.

    Args:
        run: Name of the run.
        gpus: Indices or UUIDs of the GPUs it trains on; else ``$GPUMON_GPUS``.
        logs: Whether these callbacks receive them.
    """

    _tagging: HuggingFaceTagging | LoneEvaluation | None

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
        self._set_up(run, gpus, framework="huggingface")

    @property
    def tags_now(self) -> bool:
        """Whether this tagger is tagging a run."""
        return self._tagging is not None and self._tagging.is_here

    @fail_quietly
    def on_init_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:  # noqa: ANN401
        self._listen_for_evaluations(self._trainer())

    @fail_quietly
    def on_train_begin(self, args: Any, state: Any, control: Any, **named: Any) -> None:  # noqa: ANN401
        self._begin(named.get("train_dataloader"), named.get("model"))

    def _begin(self, loader: Any, model: Any) -> None:  # noqa: ANN401
        if self._tagging is not None and self._tagging.encloses:
            return  # a callback of that trainer trains another model
        self._stop()  # left behind by a run that raised
        ring = process_ring()
        trainer = self._trainer()
        if ring.writer is None:
            return
        if trainer is None:
            self._warn("gpumon tags no phases: it does not find the Trainer that calls it")
            return
        if self._is_seen_to(trainer):
            return
        self._describe_run()
        self._listen_for_evaluations(trainer)
        events = EventCallbacks(TrainerCallback, (DefaultFlowCallback,))
        self._tagging = HuggingFaceTagging(ring, ring.writer, trainer, events)
        if self._logs:
            self._tagging.ratios = LoggedRatios(ring.writer, self._warn)
        report_loader(loader_facts(loader))
        self._describe_device("torch", model)
        if not self._tagging.sees_fetches:
            self._warn("gpumon sees no wait for input with this version of transformers")

    def _trainer(self) -> Any | None:  # noqa: ANN401
        return _trainer_of(self)

    def _listen_for_evaluations(self, trainer: Any) -> None:  # noqa: ANN401
        """See evaluations outside ``train``, which begin by watching the ``Trainer``'s memory."""
        memory = getattr(trainer, MEMORY, None)
        start = getattr(memory, "start", None)
        if memory is not None and start and type(start) is not StartOfEvaluation:
            memory.start = StartOfEvaluation(start, self._evaluation_starts)

    @fail_quietly
    def _evaluation_starts(self) -> None:
        asked = sys._getframe(_FRAMES_TO_THE_METHOD).f_code.co_name
        mode, ring = MODE_OF.get(asked), process_ring()
        trainer = None if mode is None else self._trainer()
        if self._tagging is not None and self._tagging.is_here and not self._tagging.is_running():
            self._stop()  # it raised, or there was nothing to evaluate
        if mode is None or trainer is None or self._is_seen_to(trainer):
            return
        if ring.writer_for_this_thread is not None:
            self._describe_run()
            self._tagging = LoneEvaluation(ring, ring.writer_for_this_thread, trainer, mode)

    def _is_seen_to(self, trainer: Any) -> bool:  # noqa: ANN401
        """Whether another tagger of the same ``Trainer`` is tagging now."""
        others = trainer.callback_handler.callbacks
        return any(isinstance(other, PhaseTagger) and other.tags_now for other in others)


class RatioCallback(TrainerCallback):  # type: ignore[misc]
    """Splits each batch of a ``Trainer`` in ratios: for unequal GPUs, one process each.

    ``Trainer(..., callbacks=[RatioCallback([3, 2])])``
        with ``per_device_train_batch_size=50``, rank 0 computes 60 samples and rank 1 40.

    The gradient is that of one device with the whole batch, also over
    ``gradient_accumulation_steps``: the mean over all samples of a step or, where the model counts
    ``num_items_in_batch``, over all its tokens. The order of an epoch follows from ``data_seed``,
    else ``seed``. A checkpoint in mid-epoch is continued at its step, also with other ratios.
    Evaluation is split evenly, as the ``Trainer`` does.

    Args:
        ratios: One positive number per rank, in order; only their proportions count.
        balancer: Refused: ratios can be balanced in your own loop with DDP, and in Lightning.

    Raises:
        TypeError: There are no ratios.
        ValueError: When ``train`` begins: a loader, loss or ratios that cannot be split, or ranks
            that disagree. All ranks raise.
    """

    def __init__(self, ratios: Sequence[float] | None = None, *, balancer: object = None) -> None:
        if ratios is None:
            raise TypeError("ratios are missing: write RatioCallback([3, 2]), one for each rank")
        self._ratios, self._balancer = ratios, balancer
        self._patched = PatchedMethods()
        self._run: _SplitRun | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **named: Any) -> None:  # noqa: ANN401
        self._end()  # left behind by a run that raised
        if args.world_size == 1:
            raise ValueError(
                "ratios split batches over several processes, and this is the only one: start the "
                "script with torchrun or accelerate launch, one process for each GPU"
            )
        trainer, loader = _trainer_of(self), named["train_dataloader"]
        sampler = ratio_sampler_for(
            loader,
            self._ratios,
            accumulated=args.gradient_accumulation_steps,
            seed=args.seed if args.data_seed is None else args.data_seed,
            refusal=lambda: _why_not(trainer, args, loader, self._balancer),
        )
        if _counts_items(trainer) and sampler.leaves_a_rank_out:
            raise ValueError(
                "a rank has no samples in the last step of an epoch, and the Trainer would count "
                "those that it computes in their place: set dataloader_drop_last=True, or another "
                "batch size"
            )
        split(unwrapped(loader), sampler)
        run = self._run = _SplitRun(trainer, sampler, GradientWeights(named["model"]))
        run.resume(state.global_step, skips_batches=not args.ignore_data_skip)
        self._patched.install(trainer, "training_step", lambda step: self._weighed(run, step))

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **named: Any) -> None:  # noqa: ANN401
        if self._run is not None:
            self._run.begin_epoch()

    def on_train_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:  # noqa: ANN401
        self._end()

    def _end(self) -> None:
        self._patched.remove()
        if self._run is not None:
            self._run.gradients.remove()
            self._run = None

    def _weighed(self, run: _SplitRun, training_step: Any) -> Any:  # noqa: ANN401
        """Return the trainer's step with weighted gradients while the run lasts."""

        @wraps(training_step)
        def step(model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:  # noqa: ANN401
            if self._run is run:  # another callback may have prevented its removal
                run.begin_batch(num_items_in_batch)
            return training_step(model, inputs, num_items_in_batch)

        return step


class _SplitRun:
    """One run whose batches are split; they are trained in the order of the loader."""

    def __init__(self, trainer: Any, sampler: RatioSampler, gradients: GradientWeights) -> None:  # noqa: ANN401
        self.gradients = gradients
        self._trainer, self._sampler = trainer, sampler
        self._next_epoch = self._first_batch = self._next_batch = 0

    def resume(self, steps: int, *, skips_batches: bool) -> None:
        """Continue after ``steps`` steps; the Trainer may skip the batches of the current epoch."""
        self._next_epoch, done = divmod(steps, self._sampler.steps)
        self._first_batch = done * self._trainer.args.gradient_accumulation_steps * skips_batches

    def begin_epoch(self) -> None:
        self._sampler.set_epoch(self._next_epoch)
        self._next_batch, self._first_batch = self._first_batch, 0
        self._next_epoch += 1

    def begin_batch(self, num_items_in_batch: object) -> None:
        share = self._sampler.begin_batch(self._next_batch)
        self._next_batch += 1
        # A sum was divided by the items of all ranks, a mean by the step's batches.
        is_weighed = num_items_in_batch is not None and _counts_items(self._trainer)
        self.gradients.weight = 1.0 if is_weighed else share.weight * share.micro_batches


def _counts_items(trainer: Any) -> bool:  # noqa: ANN401
    """Whether losses are sums over the items of all ranks in a step, as in language models."""
    return not _has_own_loss(trainer) and (
        trainer.model_accepts_loss_kwargs or trainer.compute_loss_func is not None
    )


def _has_own_loss(trainer: Any) -> bool:  # noqa: ANN401
    return type(trainer).compute_loss is not Trainer.compute_loss


def _why_not(trainer: Any, args: Any, loader: Any, balancer: object) -> str | None:  # noqa: ANN401
    """Return why this run cannot be split, and what to write instead."""
    if trainer is None:
        return "no Trainer calls this callback: write Trainer(callbacks=[RatioCallback(...)])"
    if "current_gradient_accumulation_steps" not in Trainer.training_step.__code__.co_names:
        return (
            "this version of transformers scales the losses of a step differently: upgrade it to "
            "4.55 or newer"
        )
    order = getattr(args, "train_sampling_strategy", "random")
    if getattr(args, "group_by_length", False) or order not in ("random", "sequential"):
        return (
            "group_by_length and batch_rebalance assume equal ranks: leave them out, "
            "so that the order is random or sequential"
        )
    is_mean = getattr(trainer, "loss_is_scaled_for_ga", None) is False
    if (
        _has_own_loss(trainer)
        and not is_mean
        and (trainer.model_accepts_loss_kwargs or trainer.compute_loss_func is not None)
    ):
        return (
            f"{type(trainer).__name__} has a compute_loss of its own, which may divide by "
            "num_items_in_batch or not: return the mean over the batch, and set "
            "loss_is_scaled_for_ga = False in the class"
        )
    if _counts_items(trainer) and not getattr(args, "average_tokens_across_devices", False):
        return (
            "each rank would divide its loss by its own number of tokens: set "
            "average_tokens_across_devices=True"
        )
    return why_not_split(trainer.accelerator, loader, balancer)


def _trainer_of(callback: Any) -> Any | None:  # noqa: ANN401
    """Return the ``Trainer`` among the callers, which callbacks do not receive."""

    def calls_it(found: Any) -> bool:  # noqa: ANN401
        handler = getattr(found, "callback_handler", None)
        return any(listed is callback for listed in getattr(handler, "callbacks", ()))

    return caller_named("self", calls_it)
