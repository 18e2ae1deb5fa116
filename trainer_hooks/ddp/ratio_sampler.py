"""A batch sampler for ranks on unequal GPUs: each gets its share of every batch."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

from gpumon.core.attribution.batch_shares import balanced_ratios, checked_ratios, shares_of
from trainer_hooks.ddp.all_ranks import GroupRank, agreed_by_all, asked_of_all, rank_in_group
from trainer_hooks.ddp.epoch_plan import BatchShare, EpochPlan, EpochShape, Ratios
from trainer_hooks.ring.process_ring import report_gpu_shares

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup

Batch = TypeVar("Batch")


class RatioSampler:
    """The ``batch_sampler`` of a ``DataLoader``: batches in ratios, one share for each rank.

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

    Every rank makes the same steps. Together the ranks take exactly one batch of
    ``batch_size`` samples in each; no sample is taken twice in an epoch, and none left out
    (but for ``drop_last``). A short last batch is split by the same ratios; a rank for which
    nothing is left computes samples of its peers with weight 0, so that all ranks meet.

    All ranks make it, and call ``set_ratios`` and ``level``, together: it asks the others
    whether they were given the same (with NCCL, after ``torch.cuda.set_device``). With ``rank``
    and ``world_size`` nobody is asked, and ``torch.distributed`` is not needed.

    Args:
        data: What has a length: the dataset of the loader.
        batch_size: Samples of all ranks in one step of the optimizer.
        ratios: One positive number for each rank, by rank; only their proportions count.
            Equal ones by default.
        shuffle: Whether each epoch has an order of its own, the same for all ranks.
        seed: Of the orders.
        drop_last: Whether the samples that do not fill a batch are left out.
        micro_batches: In how many pieces each rank computes its part of a step. The weights
            after it are the same; the memory that it takes is not.
        num_samples: Of an epoch: the first ones in its order; all by default.
        rank: Of this process; by default as ``torch.distributed`` has it.
        world_size: How many ranks there are; given where ``rank`` is.
        group: The ranks that train together; all of them by default.

    Raises:
        ValueError: Ratios that split nothing, too small a batch, a rank out of range, no
            process group yet, or ranks that were not given the same. All ranks raise.
        TypeError: ``data`` has no length.
    """

    def __init__(  # noqa: PLR0913 (as the samplers of torch, which it stands in for)
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
        agreed_by_all(own, reason or settings)
        self._seed = seed if shuffle else None
        self._epoch = 0
        self._start_step = 0
        self._plan: EpochPlan | None = None
        self._step_now: int | None = None
        self._reported: Ratios | None = None
        self.before_batch: Callable[[BatchShare, Ratios], None] | None = None
        """Is given the share of each batch that is about to be computed, and the ratios of it."""

    @property
    def epoch(self) -> int:
        """The one that ``set_epoch`` named last; 0 at first."""
        return self._epoch

    @property
    def has_drawn(self) -> bool:
        """Whether a loader has drawn batches of the present iteration."""
        return self._plan is not None and self._plan.next_batch > self._plan.first_batch

    @property
    def batches(self) -> int:
        """Batches of each rank in a whole epoch."""
        return self._shape.batch_count

    @property
    def step_samples(self) -> int:
        """Samples of all ranks in a whole step of the optimizer."""
        return self._shape.batch_size

    @property
    def leaves_a_rank_out(self) -> bool:
        """Whether some batch of a whole epoch has no sample of a rank, with the present ratios."""
        plan, shape = EpochPlan(self._shape, self._ratios), self._shape
        batches = {*range(shape.pieces_of(0)), *range(shape.batch_count)[-shape.micro_batches :]}
        return any(
            plan.share(batch, rank).samples == 0
            for batch in batches
            for rank in range(shape.world_size)
        )

    @property
    def ratios(self) -> Ratios:
        """As given last, by rank; in force in every step that was not drawn before."""
        return self._ratios

    @property
    def steps(self) -> int:
        """Steps of the optimizer in a whole epoch."""
        return self._shape.step_count

    @property
    def drop_last(self) -> bool:
        """Accelerate asks for it before it splits the batches once more.

        Raises:
            ValueError: Always: half of the samples would be lost without a word.
        """
        raise ValueError(
            "a RatioSampler splits batches already, and accelerator.prepare would do so again: "
            "prepare a DataLoader with batch_size= and shuffle=, and split it by "
            "trainer_hooks.accelerate.split_by_ratios"
        )

    def __len__(self) -> int:
        """Batches of each rank in this epoch, from its start step on."""
        return self._shape.batch_count - self._new_plan().first_batch

    def __iter__(self) -> Iterator[list[int]]:
        """The samples of this rank's batches; a new iteration begins with the newest ratios."""
        self._plan, self._step_now = self._new_plan(), None
        return self._draw(self._plan, self._order())

    def set_epoch(self, epoch: int, *, start_step: int = 0) -> None:
        """Say which epoch comes: it gives the order of the samples.

        Args:
            epoch: From 0 on, the same on all ranks.
            start_step: The first step of it that is computed, to go on where a checkpoint
                was written. The steps from there on are as they would have been.

        Raises:
            ValueError: The epoch has no such step.
        """
        if not 0 <= start_step <= self._shape.step_count:
            raise ValueError(
                f"start_step must be one of 0 to {self._shape.step_count}, the steps of an epoch, "
                f"and {start_step} is not"
            )
        self._epoch, self._start_step, self._plan = epoch, start_step, None
        self._step_now = None

    def set_ratios(self, ratios: Sequence[float], *, from_step: int | None = None) -> int:
        """Split otherwise from the next step on for which no rank has drawn its batch yet.

        Loaders draw ahead, ranks not equally far: they agree on the step, and no sample is
        lost or taken twice. Between epochs that is the first step.

        Args:
            ratios: As in the constructor; the same on all ranks.
            from_step: Not before this step.

        Returns:
            The step from which on the ratios are in force; the number of steps in an epoch
            where that is the next one.

        Raises:
            ValueError: The ratios split nothing, or not all ranks gave the same in the same
                step: nothing is changed, and all ranks raise. Or, where the others cannot be
                asked, an epoch has begun and ``from_step`` is not given, or drawn already.
        """
        said: dict[str, object] = {"epoch": self._epoch, "step": self._step_now}
        try:
            wanted = _checked(ratios, self._own)
            self._check_alone(from_step)
        except (TypeError, ValueError) as error:
            agreed_by_all(self._own, error)
            raise
        said |= {"ratios": wanted, "from_step": from_step}
        undrawn = agreed_by_all(self._own, said, self._undrawn_step())
        step = max(*undrawn, from_step or 0, 0)
        self._put_in_force(wanted, step)
        return step

    def level(self, busy_seconds: float, *, within: float = 0.02) -> Ratios | None:
        """Split so that all ranks compute for equally long; every rank must call this.

        Args:
            busy_seconds: How long this rank computed, without waiting for the others: in
                forward passes, say, as the backward pass ends when the slowest rank's does.
                Over the same steps on all ranks, in which the ratios did not change.
            within: How far, as a part of each share, shares may be off before they change.

        Returns:
            The new ratios, or ``None`` where all stay as they are.

        Raises:
            ValueError: ``rank`` was given to the constructor: the others cannot be asked.
        """
        if not self._own.can_ask:
            raise ValueError("level asks all ranks, and with rank= given there is nobody to ask")
        said = asked_of_all(self._own, (busy_seconds, self._undrawn_step()))
        busy = [seconds for seconds, _ in said]
        wanted = balanced_ratios(self._ratios, busy) if all(map(math.isfinite, busy)) else None
        if wanted is None:
            return None
        now = shares_of(self._ratios)
        if all(abs(new - old) <= within * old for new, old in zip(wanted, now, strict=True)):
            return None
        self._put_in_force(wanted, max(step for _, step in said))
        return wanted

    def share_of(self, batch: int) -> BatchShare:
        """What this rank has of a batch of the present iteration.

        Args:
            batch: From 0 on, as the loader counts: ``batch_idx`` of a ``training_step``.

        Raises:
            IndexError: The epoch has no such batch.
        """
        plan = self._plan or self._new_plan()
        return plan.share(plan.first_batch + batch, self._own.rank)

    def begin_batch(self, batch: int) -> BatchShare:
        """``share_of`` of the batch that is computed now, for loops that are not one's own.

        Args:
            batch: From 0 on, as the loader counts.

        Raises:
            IndexError: The epoch has no such batch.
        """
        return self._begun(self._plan or self._new_plan(), batch)

    def shares(self, loader: Iterable[Batch]) -> Iterator[tuple[Batch, BatchShare]]:
        """Each batch of a loader with this rank's share of it.

        Args:
            loader: The ``DataLoader`` of this sampler, or something around it that keeps the
                order, as ``timed(loader)`` does.

        Raises:
            ValueError: The loader has another batch sampler, or does not keep the order.
        """
        if getattr(loader, "batch_sampler", self) is not self:
            raise ValueError(
                "this loader has another batch sampler, and these are not its shares: write "
                "DataLoader(data, batch_sampler=sampler)"
            )
        if not getattr(loader, "in_order", True):
            raise ValueError("a loader with in_order=False mixes batches up: their shares differ")
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
        """The epoch's order of samples: that of torch's DistributedSampler with the same seed."""
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
        if self._own.can_ask or self._own.world_size == 1 or drawn == 0:
            return
        if from_step is None or from_step < drawn:
            raise ValueError(
                "the epoch has begun, and with rank= given the others cannot be asked how far they "
                f"are: give all ranks the same from_step, {drawn} or more here"
            )

    def _put_in_force(self, ratios: Ratios, step: int) -> None:
        """The one place where ratios become others."""
        self._ratios = ratios
        if self._plan is not None:
            self._plan.change(step, ratios)


def _checked(ratios: Sequence[float] | None, own: GroupRank) -> Ratios:
    if ratios is None:
        return (1,) * own.world_size
    if own.world_size == 1 and isinstance(ratios, (list, tuple)) and len(ratios) > 1:
        raise ValueError(
            "ratios split batches over several processes, and this is the only one: start the "
            f"script with torchrun, or in Lightning give Trainer(devices={len(ratios)})"
        )
    return checked_ratios(ratios, own.world_size, each="rank")


def _taken(num_samples: int | None, length: int) -> int:
    if num_samples is None:
        return length
    if not 0 <= num_samples <= length:
        raise ValueError(f"num_samples must be one of 0 to {length}, and {num_samples} is not")
    return num_samples


def _length(data: Sized) -> int:
    try:
        return len(data)
    except TypeError:
        raise TypeError(
            f"the dataset ({type(data).__name__}) has no length, and without one it cannot be "
            "split into batches: make it a dataset with len() and [index], or yield each rank its "
            "own share and weigh the loss by trainer_hooks.ddp.BatchShare"
        ) from None


def _device() -> str:
    """CUDA's present one, where this rank uses CUDA."""
    torch: Any = sys.modules.get("torch")
    is_on_gpu = torch is not None and torch.cuda.is_initialized()
    return f"GPU:{torch.cuda.current_device()}" if is_on_gpu else "no GPU"
