"""``RatioBalancer``: a Keras callback that levels unequal GPUs, within what their memory holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from gpumon.core.attribution.batch_shares import split_counts
from trainer_hooks.keras.adapter_facts import facts_of, feeder_of_caller
from trainer_hooks.keras.fit_figures import say
from trainer_hooks.keras.own_fit import OwnFitCallback
from trainer_hooks.multi_gpu.balance.controller import (
    DEAD_BAND,
    RatioController,
    SplitChange,
)
from trainer_hooks.multi_gpu.batch_split import Setting
from trainer_hooks.multi_gpu.parallel_model import ParallelModel
from trainer_hooks.multi_gpu.replica_times import TimedStep
from trainer_hooks.multi_gpu.split_times import (
    SpeedBreaks,
    SpeedVerdict,
    SplitTimes,
    StepIntervals,
)
from trainer_hooks.ring.daemon_counters import BusyCounters
from trainer_hooks.ring.guard import guarded
from trainer_hooks.ring.quiet_warning import warn_quietly
from trainer_hooks.taps.tensorflow.graph_clock import FORBIDDEN
from trainer_hooks.trainers.class_not_instance import AlsoOnTheClass

Limits = Mapping[str, int | None] | Sequence[int | None]
"""By the device's name, or one for each device in order; ``None`` where it is not known."""

SOURCES: Final = ("auto", "replicas", "gpumon")
_SETTLING: Final = 2
"""Steps after a change that are not looked at: kernels are chosen anew for the new sizes."""


class LimitsTooLowError(ValueError):
    """The GPUs' memory limits together do not hold a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioChange:
    """One change of the split, as ``RatioBalancer.changes`` lists it.

    Attributes:
        step: Steps that the model had done with this callback by then.
        old: Samples of each GPU in a whole batch until now, in the order of the devices.
        new: ... and from the next step on.
        reason: Why, in words.
        expected_gain: Speed that is expected of it, as a part of the speed before: 0.2 is a
            fifth faster; below 0 where a memory limit forces the change; ``None``: not known.
    """

    step: int
    old: tuple[int, ...]
    new: tuple[int, ...]
    reason: str
    expected_gain: float | None

    def __str__(self) -> str:
        new, old = (":".join(map(str, counts)) for counts in (self.new, self.old))
        gain = "" if self.expected_gain is None else f"; {self.expected_gain:+.1%} speed expected"
        return f"batches are split {new} from step {self.step} on, not {old} ({self.reason}{gain})"


class RatioBalancer(OwnFitCallback):
    """Changes ``model.ratios`` until all GPUs take equally long for their part of a batch.

    Every ``every`` steps it compares how long each GPU was busy in a step, and where one is clearly
    last gives it fewer samples. Moves are damped, a difference within the dead band changes
    nothing, and what a move brought is measured: after a few it rests, until a GPU's speed
    changes. Nothing but the split changes: the gradient stays that of the whole batch, and the
    step is not traced again. It never waits and never ends a training; where it cannot go on, one
    warning says why. The order of the callbacks does not matter.

    What each GPU took, it hears from one of two sources:

    ``"replicas"``
        each replica's own clock, inside the step: from the arrival of the batch to its last
        gradient. The better one as a rule: exact to the step, without a daemon, and it cannot
        take the wait for the other GPUs for work. Costs a copy of one number for each GPU and step.
    ``"gpumon"``
        the busy counters of gpumon's daemon. Sees all that a GPU does, the update and other
        processes too, but needs seconds for what the replicas tell in a few steps; and where
        gradients are added up by NCCL, whose kernels keep a GPU busy while it waits, all look
        equally busy. Right where gradients go through the host. While no daemon runs that knows
        these GPUs, the replicas are asked.
    ``"auto"``
        the one that is better as a rule.

    With ``run_eagerly`` it does nothing: the GPUs then take turns, and no split is faster. The
    size of most batches must stay the same; smaller last ones are not looked at.

    If a GPU runs out of memory, ``fit`` raises as it does without this: say what fits in
    ``max_samples``. The limits hold from the first step on where Keras knows the size of the
    batches beforehand (arrays, a ``PyDataset``), else from the second: begin with ratios that fit.

    Args:
        every: Steps from one look to the next, 1 or more; three are needed for a mean.
        source: ``"auto"``, ``"replicas"`` or ``"gpumon"``.
        max_samples: The most samples of a batch that GPUs hold, by the device's name, as in
            ``{"GPU:1": 568}``, or one for each device, ``None`` where it is not known.
        warm_up: First steps that are not looked at: they compile and allocate.
        dead_band: A split that is within this part of the best, 0 to 1, is left alone.
        verbose: 0 to print nothing; else one line for each change.

    Attributes:
        changes: What was changed, a ``RatioChange`` each; of this model, over all its ``fit``.

    Raises:
        ValueError: An argument is none of what is allowed; when ``fit`` begins, the model is not
            what ``multi_gpu_model`` made, or ``max_samples`` does not fit its devices; when the
            size of a batch is known, the limits cannot hold it.

    Example:
        ::

            model = multi_gpu_model(template, gpus=2)
            model.compile("adam", "sparse_categorical_crossentropy")
            balancer = RatioBalancer(max_samples={"GPU:1": 568})
            model.fit(batches, epochs=10, callbacks=[balancer])
            # gpumon: batches are split 820:568 from step 37 on, not 694:694 (GPU:1 is last, 31.4%
            # of its time after the first; +18.0% speed expected)
    """

    changes: tuple[RatioChange, ...]

    def __init__(
        self,
        every: int = 25,
        source: str = "auto",
        *,
        max_samples: Limits | None = None,
        warm_up: int = 10,
        dead_band: float = DEAD_BAND,
        verbose: int = 1,
    ) -> None:
        super().__init__("RatioBalancer", "levels", raises=LimitsTooLowError)
        for name, value, least in (("every", every, 1), ("warm_up", warm_up, 0)):
            if not _is_whole(value, least=least):
                raise ValueError(
                    f"{name} must be a whole number of steps, {least} or more, not {value!r}"
                )
        if source not in SOURCES:
            raise ValueError(f"source must be one of {', '.join(SOURCES)}, not {source!r}")
        if not 0 <= dead_band < 1:
            raise ValueError(f"dead_band must be a part, 0 or more and below 1, not {dead_band!r}")
        self.changes = ()
        self._every, self._warm_up, self._verbose = every, warm_up, verbose
        self._source, self._max_samples = source, max_samples
        self._dead_band = dead_band
        self._controller: RatioController | None = None
        self._has_clocks = False

    @AlsoOnTheClass
    def set_model(self, model: Setting) -> None:
        if self._is_inside_own_fit():
            return
        if not isinstance(model, ParallelModel):
            raise ValueError(
                f"RatioBalancer levels what multi_gpu_model made, and {type(model).__name__} "
                f"{getattr(model, 'name', '')!r} is no such model"
            )
        limits = _limits_of(self._max_samples, model.devices)
        is_another = model is not self._model
        super().set_model(model)
        self._prepare(limits, is_another=is_another)

    @guarded
    def _prepare(self, limits: tuple[int | None, ...], *, is_another: bool) -> None:
        if is_another:
            self._start_afresh(self._model)
        self._limits = limits
        # Eagerly, the clocks would make each GPU wait for the one before.
        self._has_clocks = not self._model.run_eagerly and self._model.time_replicas()

    @guarded
    def on_train_begin(self, logs: object = None) -> None:
        if not self._begins_own_fit():
            return
        self._knows_batch = False
        self._is_watching = not self._model.run_eagerly
        if not self._is_watching:
            warn_quietly(
                "RatioBalancer does nothing with run_eagerly: the GPUs take turns then, and no "
                "split of the batch is faster"
            )
            return
        if not self._has_clocks:
            self._warn_of_no_clocks()
        self._before_first_step()

    @guarded
    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        # Keras calls this one between two steps in the thread that trains; where each batch ends,
        # it calls from threads of its own while the next step runs.
        if not self._is_called_by_own_fit():
            return
        if self._has_clocks:
            self._check_clocks()
        is_due = self._step >= self._next_look or not self._knows_batch
        if is_due and self._step and self._is_watching:
            self._look()
        self._step += 1

    def _check_clocks(self) -> None:
        """Before each step: a clock that was forbidden meanwhile would end the training."""
        self._has_clocks = self._model.time_replicas()
        if not self._has_clocks:
            self._warn_of_no_clocks()

    def _warn_of_no_clocks(self) -> None:
        if self._counters is None:
            warn_quietly(
                f"RatioBalancer cannot see how long each GPU takes: {FORBIDDEN}; the ratios stay "
                "as they are"
            )

    def _start_afresh(self, model: ParallelModel) -> None:
        self.changes = ()
        self._controller = None
        self._step, self._counts_from = 0, self._warm_up
        self._next_look = self._warm_up + self._every
        self._steps, self._breaks = StepIntervals(), SpeedBreaks()
        self._counters = (
            BusyCounters(model.tensorflow_devices) if self._source == "gpumon" else None
        )
        self._is_by_counters = False

    def _before_first_step(self) -> None:
        self._gather_steps()
        facts = facts_of(feeder_of_caller())
        size = facts.get("batch_size")
        if isinstance(size, int) and facts.get("batches") != 1:  # a lone one may be smaller
            self._know_batch(size)

    def _look(self) -> None:
        steps = self._gather_steps()
        if steps and not self._knows_batch:
            self._know_batch(sum(steps[-1].samples))
        if self._step < self._next_look:
            return
        interval = self._interval()
        change = None if interval is None else self._advance(interval)
        if change is not None:
            self._apply(change)
        self._next_look = max(self._next_look, self._step + self._every)

    def _gather_steps(self) -> tuple[TimedStep, ...]:
        """The steps since the last call; those that count are added to the interval."""
        steps: tuple[TimedStep, ...] = self._model.replica_times()
        counting = self._step - self._counts_from
        if counting > 0:
            self._steps.add(steps[-counting:])
        return steps

    def _know_batch(self, size: int) -> None:
        """The batches have that size: begin within the limits."""
        known = [limit for limit in self._limits if limit is not None]
        if len(known) == len(self._limits) and sum(known) < size:
            holds = zip(self._model.devices, known, strict=True)
            raise LimitsTooLowError(
                f"a batch of {size} samples does not fit: max_samples allows {sum(known)} "
                f"({', '.join(f'{name} {most}' for name, most in holds)}); make the batch smaller"
            )
        self._knows_batch = True
        counts = split_counts(size, self._model.ratios)
        if min(counts) < 1:
            return  # batches as small as that are not looked at
        exceeded = self._limits_exceeded(counts)
        if self._controller is None or sum(self._controller.counts) != size or exceeded:
            self._controller = self._controller_of(counts)
            if self._controller.counts != counts:
                self._apply(SplitChange(counts, self._controller.counts, exceeded, None))

    def _limits_exceeded(self, counts: Sequence[int]) -> str:
        """Which GPUs are given more than they hold, in words; empty: none."""
        named = zip(self._model.devices, counts, self._limits, strict=True)
        over = [(name, most) for name, count, most in named if most is not None and count > most]
        return ", ".join(f"{name} holds {most} samples" for name, most in over)

    def _controller_of(self, counts: tuple[int, ...]) -> RatioController:
        return RatioController(
            counts, limits=self._limits, names=self._model.devices, dead_band=self._dead_band
        )

    def _interval(self) -> SplitTimes | None:
        total = None if self._controller is None else sum(self._controller.counts)
        told = self._steps.interval(total)
        if self._counters is not None:
            counts, busy = self._steps.usual_counts(total), self._counters.busy_seconds(self._step)
            if self._counters.is_there != self._is_by_counters:
                self._is_by_counters = self._counters.is_there
                # The times of one source are not compared with the other's.
                self._controller, self._breaks = None, SpeedBreaks()
            if self._is_by_counters:
                told = None if counts is None or busy is None else SplitTimes(counts, busy)
        if told is not None:
            self._steps.forget()
        return told

    def _advance(self, interval: SplitTimes) -> SplitChange | None:
        if min(interval.busy_seconds) <= 0:
            return None
        verdict = self._breaks.judge(interval)
        if verdict is SpeedVerdict.ODD:
            return None
        if self._controller is None or verdict is SpeedVerdict.BROKEN:
            self._controller = self._controller_of(interval.counts)
        return self._controller.advance(interval.counts, interval.busy_seconds)

    def _apply(self, change: SplitChange) -> None:
        self._model.ratios = change.new
        self._counts_from = max(self._counts_from, self._step + _SETTLING)
        self._next_look = self._counts_from + self._every
        self._steps.forget()
        if self._counters is not None:
            self._counters.forget()
        done = RatioChange(step=self._step, **asdict(change))
        self.changes += (done,)
        if self._verbose:
            after_the_bar = "\n" if (self.params or {}).get("verbose") else ""
            say(f"{after_the_bar}gpumon: {done}")


def _limits_of(given: Limits | None, devices: Sequence[str]) -> tuple[int | None, ...]:
    """One limit for each device, ``None`` where there is none.

    Raises:
        ValueError: There is no such device, not one for each, or it is no number of samples.

    ``{"GPU:1": 568}`` of ``["GPU:0", "GPU:1"]`` is ``(None, 568)``.
    """
    if given is None:
        return (None,) * len(devices)
    if isinstance(given, Mapping):
        by_name = {str(name).upper(): limit for name, limit in given.items()}
        strange = [name for name in by_name if name not in devices]
        if strange:
            raise ValueError(
                f"max_samples names {strange[0]}, and the model is split over {', '.join(devices)}"
            )
        limits = tuple(by_name.get(device) for device in devices)
    elif hasattr(given, "__iter__"):
        limits = tuple(given)
    else:
        raise ValueError(f"max_samples must have a limit for each device, and is {given!r}")
    if len(limits) != len(devices):
        raise ValueError(
            f"max_samples has {len(limits)} limits for {len(devices)} devices: give one for each, "
            "None where it is not known, or name the devices that have one"
        )
    for limit in limits:
        if limit is not None and not _is_whole(limit, least=1):
            raise ValueError(f"max_samples must be whole numbers, 1 or more, not {limit!r}")
    return limits


def _is_whole(number: int, *, least: int) -> bool:
    is_whole = hasattr(number, "__index__") and not isinstance(number, bool)
    return is_whole and number >= least
