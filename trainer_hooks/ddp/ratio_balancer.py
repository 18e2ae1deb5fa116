"""``RatioBalancer``: levels the ratios of ranks by what each of them computes in a step."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, Any, TypeAlias

from trainer_hooks.balance.controller import STEPS_TO_SETTLE, check_steps
from trainer_hooks.ddp.all_ranks import agreed_by_all, rank_in_group
from trainer_hooks.ddp.epoch_plan import BatchShare, Ratios
from trainer_hooks.ddp.ratio_sampler import RatioSampler

if TYPE_CHECKING:
    import torch

_Spans: TypeAlias = list[tuple[Any, Any]]
"""When computing began and ended: seconds of one clock, or events of CUDA."""


class RatioBalancer:
    """Changes a sampler's ratios until all ranks compute equally long for their part of a step.

    ::

        model = DistributedDataParallel(model)
        RatioBalancer(every=25).watch(sampler, model)
        for batch, share in sampler.shares(loader):
            ...

    Each rank notes how long it computes: from the forward pass to its last gradient, without the
    wait for the other ranks. Every ``every`` steps the ranks compare their medians; where shares
    are further off than ``within``, all of them change the ratios from the first step on that no
    loader has drawn yet. Nothing but the split changes. It knows no memory limits: begin with
    ratios near the right ones, and leave room on the faster GPU.

    In Lightning, ``RatioStrategy([3, 2], balancer=RatioBalancer())``.

    Args:
        every: Steps from one comparison to the next, 1 or more.
        warm_up: First steps that are not measured: they compile and allocate.
        within: How far, as a part of each share, shares may be off before they change.

    Attributes:
        changes: Each as the epoch and step after which the ranks agreed on it, and the ratios.

    Raises:
        ValueError: An argument is none of what is allowed.
    """

    def __init__(self, every: int = 25, *, warm_up: int = 10, within: float = 0.02) -> None:
        check_steps(every=every, warm_up=warm_up)
        if not 0 <= within < 1:
            raise ValueError(f"within must be 0 or more and below 1, not {within!r}")
        self.changes: tuple[tuple[int, int, Ratios], ...] = ()
        self._every, self._within = every, within
        self._warm_up = self._to_skip = warm_up
        self._clock: ComputeClock | None = None

    def watch(self, sampler: RatioSampler, model: torch.nn.Module) -> None:
        """Level the ratios of this sampler from now on; every rank must call this.

        Args:
            sampler: Of a loop of your own, whose ``shares`` it goes through.
            model: The ``DistributedDataParallel`` one.

        Raises:
            TypeError: Another sampler.
            ValueError: Ranks whose balancers are not alike: all ranks raise.
        """
        if not isinstance(sampler, RatioSampler):
            raise TypeError(
                f"RatioBalancer levels a RatioSampler, in a loop of your own or by "
                f"RatioStrategy(balancer=...), and {type(sampler).__name__} is none"
            )
        settings = {"every": self._every, "warm_up": self._warm_up, "within": self._within}
        agreed_by_all(rank_in_group(None, None, None), settings)
        if self._clock is not None:
            self._clock.remove()
        self._sampler = sampler
        self._clock = ComputeClock(model)
        self._last: tuple[BatchShare, Ratios] | None = None
        self._steps: list[_Spans] = []
        sampler.before_batch = self._batch_begins

    def _batch_begins(self, share: BatchShare, ratios: Ratios) -> None:
        last, self._last = self._last, (share, ratios)
        if last is not None and last[0].ends_step:
            self._step_ended(*last)

    def _step_ended(self, share: BatchShare, ratios: Ratios) -> None:
        """Which steps count is the same for all ranks, so that they compare after the same one."""
        assert self._clock is not None
        spans, sampler = self._clock.spans_so_far(), self._sampler
        if ratios != sampler.ratios or share.step_samples != sampler.step_samples:
            return
        if self._to_skip:
            self._to_skip -= 1
            return
        self._steps.append(spans)
        if len(self._steps) < self._every:
            return
        steps, self._steps = self._steps, []
        busy_seconds = median(seconds_of(spans) for spans in steps)
        if sampler.level(busy_seconds, within=self._within) is not None:
            self.changes += ((sampler.epoch, share.step, sampler.ratios),)
            self._to_skip = STEPS_TO_SETTLE


class ComputeClock:
    """When a model computes, from its forward pass to its last gradient.

    A gradient is there before the wait for those of other ranks begins. Times are read from the
    GPU's own clock where the model is on one, and asked for later, so that nobody waits for it.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        import torch

        # Outside of it, ``DistributedDataParallel`` waits for the buffers of the first rank.
        inner = getattr(model, "module", model)
        trained = [one for one in inner.parameters() if one.requires_grad]
        self._is_on_gpu = any(one.is_cuda for one in trained)
        self._begun: Any = None
        self._spans: _Spans = []
        self._hooks = (
            inner.register_forward_pre_hook(self._forward_begins),
            torch.autograd.graph.register_multi_grad_hook(trained, self._gradients_are_there),
        )

    def remove(self) -> None:
        """Leave the model alone from now on."""
        for hook in self._hooks:
            hook.remove()

    def spans_so_far(self) -> _Spans:
        """Since the last call."""
        spans, self._spans = self._spans, []
        return spans

    def _forward_begins(self, module: torch.nn.Module, _: object) -> None:
        if module.training and self._begun is None:
            self._begun = self._now()

    def _gradients_are_there(self, _: object) -> None:
        if self._begun is not None:
            self._spans.append((self._begun, self._now()))
            self._begun = None
        elif self._spans:  # another backward pass of the same forward pass
            self._spans[-1] = (self._spans[-1][0], self._now())

    def _now(self) -> Any:  # noqa: ANN401
        if not self._is_on_gpu:
            return time.perf_counter()
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


def seconds_of(spans: _Spans) -> float:
    """How long they are together; waits until a GPU has reached their ends."""
    seconds = 0.0
    for begun, ended in spans:
        if isinstance(ended, float):
            seconds += ended - begun
        else:
            ended.synchronize()
            seconds += begun.elapsed_time(ended) / 1000
    return seconds
