"""``RatioBalancer``: a Keras callback that balances unequal GPUs within their memory limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from gpumon.core.attribution.batch_shares import split_counts
from trainer_hooks.balance.controller import (
    DEAD_BAND,
    STEPS_TO_SETTLE,
    RatioController,
    SplitChange,
    check_steps,
    is_whole,
)
from trainer_hooks.balance.step_intervals import (
    SpeedChanges,
    SpeedVerdict,
    SplitTimes,
    StepIntervals,
    TimedStep,
)
from trainer_hooks.keras.fit_figures import say
from trainer_hooks.keras.own_fit import OwnFitCallback
from trainer_hooks.multi_gpu.batch_split import Setting
from trainer_hooks.multi_gpu.parallel_model import ParallelModel
from trainer_hooks.ring.daemon_counters import BusyCounters
from trainer_hooks.ring.guard import fail_quietly, warn_quietly
from trainer_hooks.taps.tensorflow.graph_clock import FORBIDDEN
from trainer_hooks.trainers.loader_facts import facts_of, feeder_of_caller
from trainer_hooks.trainers.tagger import RefusesClass

Limits = Mapping[str, int | None] | Sequence[int | None]
"""By device name, or one per device in order; ``None`` where unknown."""

SOURCES: Final = ("auto", "replicas", "gpumon")


class LimitsTooLowError(ValueError):
    """The GPUs' memory limits together do not hold a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioChange:
    """One change of the split, as listed in ``RatioBalancer.changes``.

    Attributes:
        step: Steps that the model had done with this callback by then.
        old: Samples of each GPU in a full batch until now, in the order of the devices.
        new: The same from the next step on.
        reason: Why, in words.
        expected_gain: Expected gain in speed, as a part of the speed before: 0.2 is a fifth
            faster; below 0 where a memory limit forces the change; ``None`` where unknown.
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

    Every ``every`` steps it compares how long each GPU was busy per step, and gives fewer samples
    to a GPU that is clearly slowest. Moves are damped, differences within the dead band change
    nothing, and the gain of each move is measured: after a few moves it rests until a GPU's speed
    changes. Only the split changes: the gradient stays that of the whole batch, and the step is
    not traced again. It never waits and never ends a training run; where it cannot continue, one
    warning says why. The order of callbacks does not matter.

    The busy times come from one of two sources:

    ``"replicas"``
        Each replica's own clock inside the step, from the arrival of the batch to its last
        gradient. Usually better: exact to the step, no daemon needed, and it never counts the wait
        for other GPUs as work. Costs a copy of one number per GPU and step.
    ``"gpumon"``
        The busy counters of gpumon's daemon. They include the update and other processes, but need
        seconds instead of a few steps; and where NCCL adds up the gradients, its kernels keep a
        waiting GPU busy, so that all look equally busy. Use it where gradients go through the
        host. Without a daemon that knows these GPUs, the replicas' clocks are used.
    ``"auto"``
        The one that is usually better.

    With ``run_eagerly`` it does nothing: the GPUs then take turns, and no split is faster. Most
    batches must have the same size; smaller last ones are ignored.

    If a GPU runs out of memory, ``fit`` raises as it does without this callback: set
    ``max_samples``. The limits apply from the first step where Keras knows the batch size
    beforehand (arrays, a ``PyDataset``), else from the second: start with ratios that fit.

    Args:
        every: Steps between comparisons, 1 or more; a mean needs at least three.
        source: ``"auto"``, ``"replicas"`` or ``"gpumon"``.
        max_samples: The most samples that fit on each GPU, by device name, as in
            ``{"GPU:1": 568}``, or one per device, ``None`` where unknown.
        warm_up: First steps to ignore: they compile and allocate.
        dead_band: A split within this part of the best, 0 to 1, is left alone.
        verbose: 0 prints nothing; else one line per change.

    Attributes:
        changes: A ``RatioChange`` for each change of this model, over all its ``fit`` calls.

    Raises:
        ValueError: An argument is out of range; when ``fit`` begins, the model was not made by
            ``multi_gpu_model``, or ``max_samples`` does not match its devices; when the batch
            size is known, the limits cannot hold a batch.

    Example:
        ::

            model = multi_gpu_model(template, gpus=2)
            model.compile("adam", "sparse_categorical_crossentropy")
            balancer = RatioBalancer(max_samples={"GPU:1": 568})
            model.fit(batches, epochs=10, callbacks=[balancer])
            # gpumon: batches are split 820:568 from step 37 on, not 694:694 (GPU:1 is slowest:
            # the fastest GPU takes 31.4% less time; +18.0% speed expected)
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
        super().__init__("RatioBalancer", "balances", raises=LimitsTooLowError)
        check_steps(every=every, warm_up=warm_up)
        if source not in SOURCES:
            raise ValueError(f"source must be one of {', '.join(SOURCES)}, not {source!r}")
        if not 0 <= dead_band < 1:
            raise ValueError(f"dead_band must be 0 or more and below 1, not {dead_band!r}")
        self.changes = ()
        self._every, self._warm_up, self._verbose = every, warm_up, verbose
        self._source, self._max_samples = source, max_samples
        self._dead_band = dead_band
        self._controller: RatioController | None = None
        self._has_clocks = False

    @RefusesClass
    def set_model(self, model: Setting) -> None:
        if self._is_inside_own_fit():
            return
        if not isinstance(model, ParallelModel):
            raise ValueError(
                f"RatioBalancer needs a model made by multi_gpu_model, and {type(model).__name__} "
                f"{getattr(model, 'name', '')!r} was not"
            )
        limits = _limits_of(self._max_samples, model.devices)
        is_another = model is not self._model
        super().set_model(model)
        self._prepare(limits, is_another=is_another)

    @fail_quietly
    def _prepare(self, limits: tuple[int | None, ...], *, is_another: bool) -> None:
        if is_another:
            self._reset(self._model)
        self._limits = limits
        # Eagerly, the clocks would make each GPU wait for the one before.
        self._has_clocks = not self._model.run_eagerly and self._model.time_replicas()

    @fail_quietly
    def on_train_begin(self, logs: object = None) -> None:
        if not self._claim_fit():
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

    @fail_quietly
    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        # Keras calls this one between two steps in the training thread; on_train_batch_end runs in
        # other threads during the next step.
        if not self._is_called_by_own_fit():
            return
        if self._has_clocks:
            self._check_clocks()
        is_due = self._step >= self._next_check or not self._knows_batch
        if is_due and self._step and self._is_watching:
            self._check_split()
        self._step += 1

    def _check_clocks(self) -> None:
        """Before each step: a clock that was forbidden meanwhile would end the training run."""
        self._has_clocks = self._model.time_replicas()
        if not self._has_clocks:
            self._warn_of_no_clocks()

    def _warn_of_no_clocks(self) -> None:
        if self._counters is None:
            warn_quietly(
                f"RatioBalancer cannot see how long each GPU takes: {FORBIDDEN}; the ratios stay "
                "as they are"
            )

    def _reset(self, model: ParallelModel) -> None:
        self.changes = ()
        self._controller = None
        self._step, self._counts_from = 0, self._warm_up
        self._next_check = self._warm_up + self._every
        self._steps, self._speeds = StepIntervals(), SpeedChanges()
        self._counters = (
            BusyCounters(model.tensorflow_devices) if self._source == "gpumon" else None
        )
        self._uses_counters = False

    def _before_first_step(self) -> None:
        self._collect_steps()
        facts = facts_of(feeder_of_caller())
        size = facts.get("batch_size")
        if isinstance(size, int) and facts.get("batches") != 1:  # a single one may be smaller
            self._use_batch_size(size)

    def _check_split(self) -> None:
        steps = self._collect_steps()
        if steps and not self._knows_batch:
            self._use_batch_size(sum(steps[-1].samples))
        if self._step < self._next_check:
            return
        interval = self._interval()
        change = None if interval is None else self._advance(interval)
        if change is not None:
            self._apply(change)
        self._next_check = max(self._next_check, self._step + self._every)

    def _collect_steps(self) -> tuple[TimedStep, ...]:
        """The steps since the last call; those that count are added to the interval."""
        steps: tuple[TimedStep, ...] = self._model.replica_times()
        counting = self._step - self._counts_from
        if counting > 0:
            self._steps.add(steps[-counting:])
        return steps

    def _use_batch_size(self, size: int) -> None:
        """Start within the limits, now that the batch size is known."""
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
            return  # too small to balance
        exceeded = self._limits_exceeded(counts)
        if self._controller is None or sum(self._controller.counts) != size or exceeded:
            self._controller = self._controller_of(counts)
            if self._controller.counts != counts:
                self._apply(SplitChange(counts, self._controller.counts, exceeded, None))

    def _limits_exceeded(self, counts: Sequence[int]) -> str:
        """Which GPUs get more than they hold, in words; empty: none."""
        named = zip(self._model.devices, counts, self._limits, strict=True)
        over = [(name, most) for name, count, most in named if most is not None and count > most]
        return ", ".join(f"{name} holds {most} samples" for name, most in over)

    def _controller_of(self, counts: tuple[int, ...]) -> RatioController:
        return RatioController(
            counts, limits=self._limits, names=self._model.devices, dead_band=self._dead_band
        )

    def _interval(self) -> SplitTimes | None:
        total = None if self._controller is None else sum(self._controller.counts)
        interval = self._steps.interval(total)
        if self._counters is not None:
            counts, busy = self._steps.usual_counts(total), self._counters.busy_seconds(self._step)
            if self._counters.is_there != self._uses_counters:
                self._uses_counters = self._counters.is_there
                # Times of the two sources cannot be compared.
                self._controller, self._speeds = None, SpeedChanges()
            if self._uses_counters:
                interval = None if counts is None or busy is None else SplitTimes(counts, busy)
        if interval is not None:
            self._steps.clear()
        return interval

    def _advance(self, interval: SplitTimes) -> SplitChange | None:
        if min(interval.busy_seconds) <= 0:
            return None
        verdict = self._speeds.update(interval)
        if verdict is SpeedVerdict.ODD:
            return None
        if self._controller is None or verdict is SpeedVerdict.CHANGED:
            self._controller = self._controller_of(interval.counts)
        return self._controller.advance(interval.counts, interval.busy_seconds)

    def _apply(self, change: SplitChange) -> None:
        self._model.ratios = change.new
        self._counts_from = max(self._counts_from, self._step + STEPS_TO_SETTLE)
        self._next_check = self._counts_from + self._every
        self._steps.clear()
        if self._counters is not None:
            self._counters.forget()
        done = RatioChange(step=self._step, **asdict(change))
        self.changes += (done,)
        if self._verbose:
            after_the_bar = "\n" if (self.params or {}).get("verbose") else ""
            say(f"{after_the_bar}gpumon: {done}")


def _limits_of(given: Limits | None, devices: Sequence[str]) -> tuple[int | None, ...]:
    """One limit per device, ``None`` where there is none.

    ``{"GPU:1": 568}`` for ``["GPU:0", "GPU:1"]`` is ``(None, 568)``.

    Raises:
        ValueError: An unknown device, the wrong number of limits, or not a number of samples.
    """
    if given is None:
        return (None,) * len(devices)
    if isinstance(given, Mapping):
        by_name = {str(name).upper(): limit for name, limit in given.items()}
        unknown = [name for name in by_name if name not in devices]
        if unknown:
            raise ValueError(
                f"max_samples names {unknown[0]}, and the model is split over {', '.join(devices)}"
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
        if limit is not None and not is_whole(limit, least=1):
            raise ValueError(f"max_samples must be whole numbers, 1 or more, not {limit!r}")
    return limits
