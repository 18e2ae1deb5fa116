"""A complete training run on one GPU or several: start, epochs, checkpoints, validation, end."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gpumon.core.phase import PHASE_NUMBER, TrainingMode, TrainingPhase
from tests.truth.workloads.draws import Draws, Millis
from tests.truth.workloads.feeding import Loader, Steps, Training, no_steps
from tests.truth.workloads.spans import Spans, intersection, no_spans, spans_between, spans_of
from tests.truth.workloads.truth import GpuTruth, Marks

Costs = Callable[[Draws, int, int], Millis]
"""Time of a worker for each batch, from the draws, the epoch (from 0) and their count; in ms."""

_MAX_AT_ONCE: Final = 256
"""Steps between two checks whether the device is throttled."""
_PAUSE_IN_STEP_MS: Final = 25
"""Approximate maximum of a pause within a step: longer steps have more of them."""
_MINUTE_MS: Final = 60_000


@dataclass(frozen=True, kw_only=True)
class Validation:
    """Batches without training.

    Attributes:
        steps: Number of batches.
        step_ms: Time of the device for each.
        host_ms: Time of the host for each: metrics, copies.
        costs_ms: Time of a worker of its own loader for each; ``None``: batches are always ready.
        workers: Of that loader.
        workers_start_ms: Time until they load.
    """

    steps: int
    step_ms: float
    host_ms: float
    costs_ms: Costs | None = None
    workers: int = 1
    workers_start_ms: int = 0


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """The set-up of a training run; times in ms.

    Attributes:
        step_ms: Mean time of a step on the slowest device.
        costs_ms: Time of a worker for each batch; ``None``: all data is in memory.
        workers: At least 1.
        depth: Batches loading or queued; 0: the run loads itself.
        workers_start_ms: Time of workers from their start until they load.
        restarts_workers: Whether each epoch has its own workers.
        pause_within_step: Idle share within a step, 0 to 1.
        host_ms: Time of the host to launch a batch.
        runs_ahead: Whether dispatch is asynchronous.
        epoch_end_ms: Time of the host between two epochs.
        epochs: ``None``: as many as there is time.
        hold_every: Steps between two checkpoints or other stops of the host; 0: none.
        hold_ms: Mean time of a stop.
        hold_busy: Share of a stop in which the device works, 0 to 1.
        hold_piece_ms: Mean time of a piece of that work.
        hold_phase: Phase of a stop.
        start_up_ms: From the process's start to its first request of a batch.
        shares: Time of each GPU, relative to the slowest one.
        slowdown_per_minute: Factor on loading, for each minute of the workload.
        clock: Factor on steps, for each minute of the workload.
        peers_spin: Whether all GPUs but the first read busy while they wait for it (NCCL).
        lives_on_ms: How long its process lives after the last step.
    """

    step_ms: float
    costs_ms: Costs | None
    workers: int = 4
    depth: int = 8
    workers_start_ms: int = 200
    workers_start_spread: float = 0.0
    restarts_workers: bool = False
    pause_within_step: float = 0.0
    step_spread: float = 0.02
    host_ms: float = 2.0
    runs_ahead: bool = True
    steps_per_epoch: int = 1_000
    epoch_end_ms: float = 50.0
    epochs: int | None = None
    hold_every: int = 0
    hold_ms: float = 0.0
    hold_spread: float = 0.15
    hold_every_spread: float = 0.0
    hold_busy: float = 0.0
    hold_piece_ms: float = 100.0
    hold_phase: TrainingPhase = TrainingPhase.CHECKPOINT
    validation: Validation | None = None
    start_up_ms: int = 10_000
    shares: Sequence[float] = (1.0,)
    slowdown_per_minute: Sequence[float] = (1.0,)
    clock: Sequence[float] = (1.0,)
    memory_mib: int = 8_000
    peers_spin: bool = False
    lives_on_ms: int = 0


@dataclass
class _Diary:
    """The record of a run."""

    steps: list[Steps] = field(default_factory=lambda: [no_steps()])
    marks: list[NDArray[np.int64]] = field(default_factory=list)

    def enters(self, at_ms: int, phase: TrainingPhase, mode: TrainingMode) -> None:
        row = np.array([[at_ms, PHASE_NUMBER[phase], mode]], dtype=np.int64)
        self.marks.append(row)

    def makes(self, steps: Steps, phase: TrainingPhase, mode: TrainingMode) -> None:
        self.steps.append(steps)
        rows = np.empty((2 * steps.requested.size, 3), dtype=np.int64)
        rows[0::2, 0], rows[1::2, 0] = steps.requested, steps.taken
        rows[0::2, 1], rows[1::2, 1] = PHASE_NUMBER[TrainingPhase.INPUT_WAIT], PHASE_NUMBER[phase]
        rows[:, 2] = mode
        self.marks.append(rows)


class TrainingRun:
    """A training run, from the start of its process to ``ends_ms``, its end."""

    def __init__(
        self,
        draws: Draws,
        plan: TrainingPlan,
        start_ms: int,
        until_ms: int,
        gone_by_ms: int | None = None,
    ) -> None:
        """Train until the end or ``until_ms``; the process ends by ``gone_by_ms``."""
        self._draws, self._plan = draws, plan
        self._start_ms, self._until_ms = start_ms, until_ms
        self._diary = _Diary()
        began_ms = start_ms + plan.start_up_ms
        self._training = Training(began_ms, began_ms, plan.runs_ahead)
        self._loader = self._new_loader()
        self._until_hold = self._steps_until_hold()
        self._enters(TrainingPhase.START_UP, at_ms=start_ms)
        epoch = 0
        while self._is_on and (plan.epochs is None or epoch < plan.epochs):
            self._epoch(epoch)
            epoch += 1
        if self._training.requested_in_vain_ms is not None:
            self._enters(TrainingPhase.INPUT_WAIT, at_ms=self._training.requested_in_vain_ms)
        self._training.finish()
        self._enters(TrainingPhase.OTHER)
        lives_on_ms = plan.lives_on_ms + draws.integer(200, 8_000)
        self.ends_ms = min(gone_by_ms or until_ms, self._training.at_ms + lives_on_ms)

    def truths(self) -> tuple[GpuTruth, ...]:
        """What happened on each of its GPUs."""
        made = self._diary.steps
        begun = np.concatenate([steps.begun for steps in made])
        ended = np.concatenate([steps.ended for steps in made])
        late = [
            spans_between(np.maximum(steps.requested, steps.free), steps.ready) for steps in made
        ]
        starved = np.concatenate(late)
        held = spans_of([(self._start_ms, self.ends_ms)])
        marks = self._marks()
        truths = [
            self._truth(begun, ended, share, starved, held, marks) for share in self._plan.shares
        ]
        if self._plan.peers_spin:
            truths[1:] = [_spinning(truth) for truth in truths[1:]]
        return tuple(truths)

    @property
    def _is_on(self) -> bool:
        return self._training.at_ms < self._until_ms

    def _truth(
        self,
        begun: NDArray[np.int64],
        ended: NDArray[np.int64],
        share: float,
        starved: Spans,
        held: Spans,
        marks: Marks,
    ) -> GpuTruth:
        own_end = ended
        if share < 1.0:
            own_shares = np.minimum(1.0, self._draws.around(share * 1e6, 0.02, begun.size) / 1e6)
            own_end = begun + np.maximum(1, np.rint((ended - begun) * own_shares)).astype(np.int64)
        busy = self._worked(begun, own_end)
        jobs = spans_of([(int(busy[0, 0]), int(busy[-1, 1]))]) if busy.size else no_spans()
        starved = intersection(spans_between(starved[:, 0], starved[:, 1]), jobs)
        return GpuTruth(busy, starved, jobs, held, marks, self._plan.memory_mib)

    def _worked(self, begun: NDArray[np.int64], ended: NDArray[np.int64]) -> Spans:
        """Each step in equal pieces with a pause at the end of each."""
        plan = self._plan
        if not plan.pause_within_step:
            return spans_between(begun, np.minimum(ended, self._until_ms))
        count = math.ceil(plan.step_ms * plan.pause_within_step / _PAUSE_IN_STEP_MS)
        piece_ms = (ended - begun) / count
        begins = [np.rint(begun + piece * piece_ms) for piece in range(count)]
        paused = [np.rint(begin + (1 - plan.pause_within_step) * piece_ms) for begin in begins]
        until_ms = np.minimum(np.concatenate(paused), self._until_ms)
        return spans_between(np.concatenate(begins).astype(np.int64), until_ms.astype(np.int64))

    def _marks(self) -> Marks:
        rows = np.concatenate(self._diary.marks)
        rows = rows[rows[:, 0] < self.ends_ms]
        return Marks(rows[:, 0], rows[:, 1], rows[:, 2])

    def _new_loader(self) -> Loader:
        plan = self._plan
        start_ms = self._draws.skewed(plan.workers_start_ms, plan.workers_start_spread, 1)[0]
        since_ms = self._training.at_ms + int(start_ms)
        return Loader(
            plan.workers,
            plan.depth,
            since_ms=since_ms,
            slowdown_per_minute=plan.slowdown_per_minute,
        )

    def _epoch(self, epoch: int) -> None:
        plan, remaining = self._plan, self._plan.steps_per_epoch
        if epoch and plan.restarts_workers:
            self._loader = self._new_loader()
        while remaining and self._is_on:
            count = min(remaining, _MAX_AT_ONCE)
            if plan.hold_every:
                count = min(count, self._until_hold)
            self._steps(epoch, count)
            remaining -= count
            self._until_hold -= count
            if plan.hold_every and not self._until_hold:
                self._holds(plan.hold_phase, plan.hold_ms, plan.hold_spread, plan.hold_busy)
                self._until_hold = self._steps_until_hold()
        if plan.validation and self._is_on:
            self._validates(plan.validation)
        self._holds(TrainingPhase.BETWEEN_EPOCHS, plan.epoch_end_ms, 0.3)

    def _steps_until_hold(self) -> int:
        plan = self._plan
        return int(self._draws.skewed(plan.hold_every, plan.hold_every_spread, 1)[0])

    def _steps(self, epoch: int, count: int) -> None:
        draws, plan = self._draws, self._plan
        minute = min(self._training.at_ms // _MINUTE_MS, len(plan.clock) - 1)
        steps_ms = draws.around(plan.step_ms * plan.clock[minute], plan.step_spread, count)
        host_ms = draws.skewed(plan.host_ms, 0.3, count)
        if plan.costs_ms is None:
            steps = self._training.fed_steps(steps_ms, host_ms, until_ms=self._until_ms)
        else:
            costs_ms = plan.costs_ms(draws, epoch, count)
            steps = self._training.steps(
                self._loader, costs_ms, steps_ms, host_ms, until_ms=self._until_ms
            )
        self._diary.makes(steps, TrainingPhase.TRAIN_STEP, TrainingMode.TRAIN)

    def _validates(self, validation: Validation) -> None:
        self._training.finish()
        self._enters(TrainingPhase.VALIDATION, mode=TrainingMode.VALIDATION)
        draws, count = self._draws, validation.steps
        steps_ms = draws.around(validation.step_ms, 0.05, count)
        host_ms = draws.skewed(validation.host_ms, 0.3, count)
        training, until_ms = self._training, self._until_ms
        ahead, training.runs_ahead = training.runs_ahead, False
        if validation.costs_ms is None:
            steps = training.fed_steps(steps_ms, host_ms, until_ms=until_ms)
        else:
            workers = validation.workers
            since_ms = training.at_ms + validation.workers_start_ms
            loader = Loader(workers, 2 * workers, since_ms=since_ms)
            costs_ms = validation.costs_ms(draws, 0, count)
            steps = training.steps(loader, costs_ms, steps_ms, host_ms, until_ms=until_ms)
        training.runs_ahead = ahead
        self._diary.makes(steps, TrainingPhase.VALIDATION, TrainingMode.VALIDATION)

    def _holds(
        self, phase: TrainingPhase, mean_ms: float, spread: float, busy: float = 0.0
    ) -> None:
        if not self._is_on or mean_ms <= 0:
            return
        training, draws, piece_ms = self._training, self._draws, self._plan.hold_piece_ms
        training.finish()
        self._enters(phase)
        length_ms = int(draws.skewed(mean_ms, spread, 1)[0])
        ends_ms = training.at_ms + length_ms
        count = round(length_ms * busy / piece_ms)
        if count:
            works_ms = draws.skewed(piece_ms, 0.4, count)
            host_ms = draws.waits(max(1.0, (1 - busy) / busy * piece_ms), count)
            ahead, training.runs_ahead = training.runs_ahead, False
            steps = training.fed_steps(works_ms, host_ms, until_ms=self._until_ms)
            training.runs_ahead = ahead
            self._diary.makes(steps, phase, TrainingMode.TRAIN)
        training.hold(max(0, ends_ms - training.at_ms))

    def _enters(
        self,
        phase: TrainingPhase,
        at_ms: int | None = None,
        mode: TrainingMode = TrainingMode.TRAIN,
    ) -> None:
        self._diary.enters(self._training.at_ms if at_ms is None else at_ms, phase, mode)


def _spinning(truth: GpuTruth) -> GpuTruth:
    """The same GPU, which reads busy while it waits for its peers."""
    return replace(truth, busy=truth.jobs, starved=no_spans(), spins=truth.lost)


def one_after_the_other(truths: Sequence[GpuTruth]) -> GpuTruth:
    """The truth of a GPU that these used in turn."""

    def columns(name: str) -> NDArray[np.int64]:
        return np.concatenate([getattr(truth, name) for truth in truths])

    marks = (np.concatenate(column) for column in zip(*(one.marks for one in truths), strict=True))
    return GpuTruth(
        busy=columns("busy"),
        starved=columns("starved"),
        jobs=columns("jobs"),
        held=columns("held"),
        spins=columns("spins"),
        marks=Marks(*marks),
        memory_mib=max(truth.memory_mib for truth in truths),
    )
