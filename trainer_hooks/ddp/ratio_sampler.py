"""A batch sampler for ranks on unequal GPUs: each rank gets its share of every batch."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

from gpumon.core.attribution.batch_shares import balanced_ratios, checked_ratios, shares_of
from trainer_hooks.ddp.all_ranks import GroupRank, check_all_agree, gathered_from_all, rank_in_group
from trainer_hooks.ddp.epoch_plan import BatchShare, EpochPlan, EpochShape, Ratios
from trainer_hooks.ring.process_ring import report_gpu_shares

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup

Batch = TypeVar("Batch")


class RatioSampler:
    """A ``batch_sampler`` for a ``DataLoader`` that splits batches over ranks by ratios.

    ::

        sampler = RatioSampler(dataset, batch_size=100, ratios=[3, 2], shuffle=True)
        loader = DataLoader(dataset, batch_sampler=sampler, num_workers=4)
        for epoch in range(epochs):
            sampler.set_epoch(epoch)
            for (rows, labels), share in sampler.shares(timed(loader)):
                with share.accumulating(model):
                    share.weigh(loss_of(model(rows), labels)).backward()
                if share.ends_step:
                    optimizer.step()
                    optimizer.zero_grad()

    Every rank makes the same steps. In each, the ranks together take exactly one batch of
    ``batch_size`` samples; every sample is taken once per epoch (except with ``drop_last``). A
    short last batch is split by the same ratios; a rank without samples computes samples of its
    peers with weight 0, because every rank must take part.

    All ranks must create it and call ``set_ratios`` and ``level`` together: they check that they
    agree (with NCCL, after ``torch.cuda.set_device``). With ``rank`` and ``world_size`` nothing is
    checked, and ``torch.distributed`` is not needed.

    Args:
        data: The dataset of the loader, or anything with its length.
        batch_size: Samples of all ranks in one step of the optimizer.
        ratios: One positive number per rank; only their proportions count. Default: equal.
        shuffle: Whether to shuffle each epoch, in the same order on all ranks.
        seed: Seed of the orders.
        drop_last: Whether to leave out the samples of an incomplete last batch.
        micro_batches: The number of batches in which each rank computes a step: the same result
            with less memory.
        num_samples: Samples of an epoch: the first ones in its order; default all.
        rank: Of this process; default from ``torch.distributed``.
        world_size: Number of ranks; required with ``rank``.
        group: The ranks that train together; default all.

    Raises:
        ValueError: Invalid ratios, too small a batch, a rank out of range, no process group yet,
            or ranks that disagree. All ranks raise.
        TypeError: ``data`` has no length.
    """

    def __init__(  # noqa: PLR0913 (like torch's samplers, which it replaces)
        self,
        data: Sized,
        batch_size: int,
        ratios: Sequence[float] | None = None,
        *,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        micro_batches: int = 1,
        num_samples: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        group: ProcessGroup | None = None,
    ) -> None:
        self._own = own = rank_in_group(rank, world_size, group)
        settings: dict[str, object] = {}
        reason: Exception | None = None
        try:
            self._ratios = _checked(ratios, own)
            self._length = _length(data)
            self._shape = EpochShape(
                samples=_taken(num_samples, self._length),
                batch_size=batch_size,
                world_size=own.world_size,
                micro_batches=micro_batches,
                drop_last=drop_last,
            )
            settings = {"ratios": self._ratios, "shuffle": shuffle, "seed": seed}
            settings |= {**asdict(self._shape), "length": self._length}
        except (TypeError, ValueError) as error:
            reason = error
        check_all_agree(own, reason or settings)
        self._seed = seed if shuffle else None
        self._epoch = 0
        self._start_step = 0
        self._plan: EpochPlan | None = None
        self._step_now: int | None = None
        self._reported: Ratios | None = None
        self.before_batch: Callable[[BatchShare, Ratios], None] | None = None
        """Called before each batch with its share and ratios."""

    @property
    def epoch(self) -> int:
        """As set by ``set_epoch``; initially 0."""
        return self._epoch

    @property
    def has_drawn(self) -> bool:
        """Whether a loader has drawn batches in the present iteration."""
        return self._plan is not None and self._plan.next_batch > self._plan.first_batch

    @property
    def batches(self) -> int:
        """Batches of each rank in a complete epoch."""
        return self._shape.batch_count

    @property
    def step_samples(self) -> int:
        """Samples of all ranks in a complete step of the optimizer."""
        return self._shape.batch_size

    @property
    def leaves_a_rank_out(self) -> bool:
        """Whether some rank has no sample in some batch of an epoch, with the present ratios."""
        plan, shape = EpochPlan(self._shape, self._ratios), self._shape
        batches = {*range(shape.pieces_of(0)), *range(shape.batch_count)[-shape.micro_batches :]}
        return any(
            plan.share(batch, rank).samples == 0
            for batch in batches
            for rank in range(shape.world_size)
        )

    @property
    def ratios(self) -> Ratios:
        """As set last, by rank; used in every step that was not drawn before."""
        return self._ratios

    @property
    def steps(self) -> int:
        """Optimizer steps in a complete epoch."""
        return self._shape.step_count

    @property
    def drop_last(self) -> bool:
        """Refused: Accelerate reads it before it splits the batches once more.

        Raises:
            ValueError: Always: half of the samples would be lost silently.
        """
        raise ValueError(
            "a RatioSampler splits batches already, and accelerator.prepare would split them "
            "again: prepare a DataLoader with batch_size= and shuffle=, and split it by "
            "trainer_hooks.accelerate.split_by_ratios"
        )

    def __len__(self) -> int:
        """Batches of each rank in this epoch, from its start step on."""
        return self._shape.batch_count - self._new_plan().first_batch

    def __iter__(self) -> Iterator[list[int]]:
        """The samples of this rank's batches; a new iteration starts with the newest ratios."""
        self._plan, self._step_now = self._new_plan(), None
        return self._draw(self._plan, self._order())

    def set_epoch(self, epoch: int, *, start_step: int = 0) -> None:
        """Set the next epoch, which determines the order of the samples.

        Args:
            epoch: From 0, the same on all ranks.
            start_step: The first step to compute, to continue from a checkpoint. The steps from
                there on are the same as without the interruption.

        Raises:
            ValueError: The epoch has no such step.
        """
        if not 0 <= start_step <= self._shape.step_count:
            raise ValueError(
                f"start_step must be 0 to {self._shape.step_count}, the steps of an epoch, not "
                f"{start_step}"
            )
        self._epoch, self._start_step, self._plan = epoch, start_step, None
        self._step_now = None

    def set_ratios(self, ratios: Sequence[float], *, from_step: int | None = None) -> int:
        """Use other ratios from the next step on that no rank has drawn yet.

        Loaders draw ahead, each rank's differently far: the ranks agree on the step, so that no
        sample is lost or taken twice. Between epochs it is the first step.

        Args:
            ratios: As in the constructor; the same on all ranks.
            from_step: Not before this step.

        Returns:
            The first step with the new ratios; the number of steps in an epoch means the next
            epoch.

        Raises:
            ValueError: Invalid ratios, or ranks that disagree: nothing is changed, and all ranks
                raise. Or, where ranks cannot communicate, an epoch has begun and ``from_step`` is
                missing or drawn already.
        """
        settings: dict[str, object] = {"epoch": self._epoch, "step": self._step_now}
        try:
            wanted = _checked(ratios, self._own)
            self._check_alone(from_step)
        except (TypeError, ValueError) as error:
            check_all_agree(self._own, error)
            raise
        settings |= {"ratios": wanted, "from_step": from_step}
        undrawn = check_all_agree(self._own, settings, self._undrawn_step())
        step = max(*undrawn, from_step or 0, 0)
        self._use_ratios(wanted, step)
        return step

    def level(self, busy_seconds: float, *, within: float = 0.02) -> Ratios | None:
        """Balance the ranks so that all compute for equally long; every rank must call this.

        Args:
            busy_seconds: How long this rank computed without waiting for others, for example in
                forward passes (backward passes end with the slowest rank's). Over the same steps
                on all ranks, with constant ratios.
            within: The relative error of shares that is tolerated.

        Returns:
            The new ratios, or ``None`` where they stay unchanged.

        Raises:
            ValueError: ``rank`` was given to the constructor: ranks cannot communicate.
        """
        if not self._own.can_communicate:
            raise ValueError(
                "level needs the times of all ranks, which cannot communicate with rank= given"
            )
        times = gathered_from_all(self._own, (busy_seconds, self._undrawn_step()))
        busy = [seconds for seconds, _ in times]
        wanted = balanced_ratios(self._ratios, busy) if all(map(math.isfinite, busy)) else None
        if wanted is None:
            return None
        now = shares_of(self._ratios)
        if all(abs(new - old) <= within * old for new, old in zip(wanted, now, strict=True)):
            return None
        self._use_ratios(wanted, max(step for _, step in times))
        return wanted

    def share_of(self, batch: int) -> BatchShare:
        """This rank's share of a batch of the present iteration.

        Args:
            batch: From 0, as the loader counts: ``batch_idx`` of a ``training_step``.

        Raises:
            IndexError: The epoch has no such batch.
        """
        plan = self._plan or self._new_plan()
        return plan.share(plan.first_batch + batch, self._own.rank)

    def begin_batch(self, batch: int) -> BatchShare:
        """``share_of`` the batch that is computed now, for the loops of trainers.

        Args:
            batch: From 0, as the loader counts.

        Raises:
            IndexError: The epoch has no such batch.
        """
        return self._begun(self._plan or self._new_plan(), batch)

    def shares(self, loader: Iterable[Batch]) -> Iterator[tuple[Batch, BatchShare]]:
        """Each batch of a loader with this rank's share of it.

        Args:
            loader: The ``DataLoader`` of this sampler, or a wrapper that keeps the order, such as
                ``timed(loader)``.

        Raises:
            ValueError: The loader has another batch sampler, or does not keep the order.
        """
        if getattr(loader, "batch_sampler", self) is not self:
            raise ValueError(
                "this loader has another batch sampler: write DataLoader(data, "
                "batch_sampler=sampler)"
            )
        if not getattr(loader, "in_order", True):
            raise ValueError(
                "a loader with in_order=False returns batches in another order than their shares"
            )
        return self._with_shares(iter(loader))

    def _with_shares(self, batches: Iterator[Batch]) -> Iterator[tuple[Batch, BatchShare]]:
        plan: EpochPlan | None = None
        for number, batch in enumerate(batches):
            plan = plan or self._plan or self._new_plan()
            yield batch, self._begun(plan, number)

    def _begun(self, plan: EpochPlan, number: int) -> BatchShare:
        share = plan.share(plan.first_batch + number, self._own.rank)
        self._step_now = share.step
        ratios = plan.ratios_in(share.step)
        if self.before_batch is not None:
            self.before_batch(share, ratios)
        if number == 0 or ratios != self._reported:
            self._reported = ratios
            report_gpu_shares([_device()], [shares_of(ratios)[self._own.rank]])
        return share

    def _draw(self, plan: EpochPlan, order: torch.Tensor | None) -> Iterator[list[int]]:
        for batch in range(plan.first_batch, self._shape.batch_count):
            plan.next_batch = batch + 1
            positions = list(plan.positions(batch, self._own.rank))
            yield positions if order is None else order[positions].tolist()

    def _order(self) -> torch.Tensor | None:
        """The order of samples: that of torch's DistributedSampler with the same seed."""
        if self._seed is None:
            return None
        import torch

        generator = torch.Generator()
        generator.manual_seed(self._seed + self._epoch)
        return torch.randperm(self._length, generator=generator)

    def _new_plan(self) -> EpochPlan:
        return EpochPlan(self._shape, self._ratios, self._start_step)

    def _undrawn_step(self) -> int:
        return 0 if self._plan is None else self._plan.undrawn_step

    def _check_alone(self, from_step: int | None) -> None:
        drawn = self._undrawn_step()
        if self._own.can_communicate or self._own.world_size == 1 or drawn == 0:
            return
        if from_step is None or from_step < drawn:
            raise ValueError(
                "the epoch has begun, and with rank= given ranks cannot communicate how far they "
                f"are: give all ranks the same from_step, {drawn} or more here"
            )

    def _use_ratios(self, ratios: Ratios, step: int) -> None:
        self._ratios = ratios
        if self._plan is not None:
            self._plan.change(step, ratios)


def _checked(ratios: Sequence[float] | None, own: GroupRank) -> Ratios:
    if ratios is None:
        return (1,) * own.world_size
    if own.world_size == 1 and isinstance(ratios, (list, tuple)) and len(ratios) > 1:
        raise ValueError(
            "ratios split batches over several processes, and this is the only one: start the "
            f"script with torchrun, or in Lightning use Trainer(devices={len(ratios)})"
        )
    return checked_ratios(ratios, own.world_size, each="rank")


def _taken(num_samples: int | None, length: int) -> int:
    if num_samples is None:
        return length
    if not 0 <= num_samples <= length:
        raise ValueError(f"num_samples must be 0 to {length}, not {num_samples}")
    return num_samples


def _length(data: Sized) -> int:
    try:
        return len(data)
    except TypeError:
        raise TypeError(
            f"the dataset ({type(data).__name__}) has no length and cannot be split: make it a "
            "dataset with len() and [index], or yield each rank its own share and weigh the loss "
            "by trainer_hooks.ddp.BatchShare"
        ) from None


def _device() -> str:
    """The current CUDA device, if this rank uses CUDA."""
    torch: Any = sys.modules.get("torch")
    is_on_gpu = torch is not None and torch.cuda.is_initialized()
    return f"GPU:{torch.cuda.current_device()}" if is_on_gpu else "no GPU"
