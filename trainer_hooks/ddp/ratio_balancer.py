"""``RatioBalancer`` for DDP: balances ranks by how long each computes in a step."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, Any, TypeAlias

from trainer_hooks.balance.controller import STEPS_TO_SETTLE, check_steps
from trainer_hooks.ddp.all_ranks import check_all_agree, rank_in_group
from trainer_hooks.ddp.epoch_plan import BatchShare, Ratios
from trainer_hooks.ddp.ratio_sampler import RatioSampler

if TYPE_CHECKING:
    import torch

_Spans: TypeAlias = list[tuple[Any, Any]]
"""Starts and ends of computing: seconds of one clock, or CUDA events."""


class RatioBalancer:
    """Changes a sampler's ratios until all ranks compute equally long for their part of a step.

    ::

        model = DistributedDataParallel(model)
        RatioBalancer(every=25).watch(sampler, model)
        for batch, share in sampler.shares(loader):
            ...

    Each rank measures how long it computes, from the forward pass to its last gradient, without
    the wait for other ranks. Every ``every`` steps the ranks compare their medians; where shares
    are off by more than ``within``, all change the ratios from the first step on that no loader
    has drawn yet. Only the split changes. Memory limits are not considered: start with ratios near
    the right ones, and leave memory free on the faster GPU.

    In Lightning, ``RatioStrategy([3, 2], balancer=RatioBalancer())``.

    Args:
        every: Steps between comparisons, 1 or more.
        warm_up: First steps to ignore: they compile and allocate.
        within: The relative error of shares that is tolerated.

    Attributes:
        changes: Per change, the epoch and step after which the ranks agreed on it, and the ratios.

    Raises:
        ValueError: An argument is out of range.
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
        """Balance the ratios of this sampler from now on; every rank must call this.

        Args:
            sampler: Of your own loop, which iterates over its ``shares``.
            model: The ``DistributedDataParallel`` model.

        Raises:
            TypeError: Not a ``RatioSampler``.
            ValueError: The ranks' balancers have different arguments: all ranks raise.
        """
        if not isinstance(sampler, RatioSampler):
            raise TypeError(
                f"RatioBalancer needs a RatioSampler, in your own loop or by "
                f"RatioStrategy(balancer=...), not {type(sampler).__name__}"
            )
        settings = {"every": self._every, "warm_up": self._warm_up, "within": self._within}
        check_all_agree(rank_in_group(None, None, None), settings)
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
        """All ranks count the same steps, so that they compare after the same one."""
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
    """Measures when a model computes, from its forward pass to its last gradient.

    The last gradient is ready before the wait for other ranks begins. On a GPU, CUDA events record
    the times and are read later, so that nothing waits for them.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        import torch

        # Not the wrapper: it waits for the buffers of the first rank.
        inner = getattr(model, "module", model)
        trained = [weight for weight in inner.parameters() if weight.requires_grad]
        self._is_on_gpu = any(weight.is_cuda for weight in trained)
        self._begun: Any = None
        self._spans: _Spans = []
        self._hooks = (
            inner.register_forward_pre_hook(self._forward_begins),
            torch.autograd.graph.register_multi_grad_hook(trained, self._gradients_are_there),
        )

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def spans_so_far(self) -> _Spans:
        spans, self._spans = self._spans, []
        return spans

    def _forward_begins(self, module: torch.nn.Module, _: object) -> None:
        if module.training and self._begun is None:
            self._begun = self._now()

    def _gradients_are_there(self, _: object) -> None:
        if self._begun is not None:
            self._spans.append((self._begun, self._now()))
            self._begun = None
        elif self._spans:  # another backward pass after the same forward pass
            self._spans[-1] = (self._spans[-1][0], self._now())

    def _now(self) -> Any:  # noqa: ANN401
        if not self._is_on_gpu:
            return time.perf_counter()
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


def seconds_of(spans: _Spans) -> float:
    """Their total length; waits until a GPU has reached their ends."""
    seconds = 0.0
    for begun, ended in spans:
        if isinstance(ended, float):
            seconds += ended - begun
        else:
            ended.synchronize()
            seconds += begun.elapsed_time(ended) / 1000
    return seconds
