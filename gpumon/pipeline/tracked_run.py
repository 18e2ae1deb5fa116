"""One training run from its ring, and the reasons of what its GPUs lost."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final

from gpumon.core.attribution.idle_bounds import IdleBounds
from gpumon.core.attribution.idle_sharing import SharedIdle, WindowParts, merge_parts
from gpumon.core.attribution.timeline import PhaseTimeline
from gpumon.core.phase import WORK_PHASES, IdleCause, InputWaitReason, TrainingPhase
from gpumon.core.report.report import JobKey
from gpumon.core.ring_format.events import PresentPhase, RingKind, RingReading
from gpumon.core.ring_format.silence import RunSilence, StepClock
from gpumon.core.sample import BusySample
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.state import RunState
from gpumon.core.waits.evidence import ProcessState
from gpumon.core.waits.reasons import WITH_REASONS, RunReasons
from gpumon.pipeline.run_steps import StepBalance, StepPace

_SETTINGS: Final = DEFAULT_SETTINGS
_MAY_HOLD_COMPILING = frozenset(
    {TrainingPhase.TRAIN_STEP, TrainingPhase.VALIDATION, TrainingPhase.PREDICT}
)


class GpuBinding(Enum):
    """What was decided of one run and one GPU; before that the binding is open."""

    UNOPPOSED = "unopposed"
    """There is no process list, or one without names: the run counts until a list opposes it."""
    SEEN = "seen"
    """A list named the run's process or its user: the run counts for the rest of its life."""
    REFUSED = "refused"
    """A list named only other users, or hides them: the run does not count until one names it."""


class TrackedRun:
    """A run, from the first reading of its ring on."""

    def __init__(self, reading: RingReading) -> None:
        self.reading = reading
        self.timeline = PhaseTimeline()
        self.wanted_uuids: frozenset[str] = frozenset()
        self.used_uuids: set[str] = set()  # GPUs that were active during the run
        self.bindings: dict[str, GpuBinding] = {}  # by GPU, of those decided
        self.undecided_on: set[str] = set()  # GPUs that worked before a list decided
        self.left_ns: dict[str, int] = {}  # by GPU: the end of the run, once passed
        self.label: str | None = None
        self.is_superseded = False  # a newer run took its label
        self._present = PresentPhase(reading.facts.started_ns)
        self._shown_ns: dict[TrainingPhase, int] = {}
        self._pace = StepPace()
        self.reasons = RunReasons()
        self.balance = StepBalance()
        self.bounds = IdleBounds()
        self.shares: dict[str, float] = {}  # by UUID, of GPUs that are watched
        self._last_state: RunState | None = None  # once it is final
        self._process: ProcessState | None = None
        self._clock = StepClock()
        self._is_job_held_up = False
        self._works_from_ns: int | None = None  # its first step or step phase
        self._written_ns = 0
        self._is_released = False  # of everything but its last state
        self.update(reading)

    @property
    def started_ns(self) -> int:
        return self.reading.facts.started_ns

    @property
    def ended_ns(self) -> int | None:
        return self.reading.ended_ns

    def is_under_way_in(self, sample: BusySample) -> bool:
        """Whether the run existed during any of the sample."""
        return self.timeline.covered_ns(sample.start_ns, sample.end_ns) > 0

    def began_by(self, at_ns: int) -> bool:
        return self.reading.facts.started_ns < at_ns

    def works_by(self, at_ns: int) -> bool:
        """Whether it had counted a step, or entered a phase of ``WORK_PHASES``, by then."""
        return self._works_from_ns is not None and self._works_from_ns <= at_ns

    def is_bound_to(self, uuid: str) -> bool:
        """Whether it counts on that GPU."""
        return self.bindings.get(uuid) in (GpuBinding.UNOPPOSED, GpuBinding.SEEN)

    def bind(self, uuid: str, binding: GpuBinding) -> None:
        """Record what was decided of it and that GPU."""
        self.bindings[uuid] = binding
        self.undecided_on.discard(uuid)
        if binding is GpuBinding.REFUSED:
            self.used_uuids.discard(uuid)
            self.shares.pop(uuid, None)
            self.balance.forget(uuid)

    @property
    def needs_process_list(self) -> bool:
        """Whether a process list is yet to decide on a GPU of it."""
        if self.undecided_on:
            return True
        return self.ended_ns is None and bool(self.wanted_uuids) and not self.bindings

    @property
    def refused_uuids(self) -> frozenset[str]:
        """GPUs that it names, and only others are on them."""
        refused = [uuid for uuid, one in self.bindings.items() if one is GpuBinding.REFUSED]
        return self.wanted_uuids.intersection(refused)

    @property
    def job_key(self) -> JobKey:
        """Key of its job: the same id of two users is two jobs."""
        return self.reading.facts.job, self.reading.owner_uid

    def over_ns(self, patience_ns: int) -> int | None:
        """When training ended; ``None`` while it trains. Its process may still live.

        Without marks, it is over after ``patience_ns`` without a record.
        """
        if (
            self.ended_ns is None
            and not self._clock.may_be_over
            and (not self.timeline.is_marked_over)
        ):
            return None  # it marks the end of its loop, and has not yet
        return self.ended_ns or self.timeline.over_since_ns(patience_ns)

    @property
    def is_over(self) -> bool:
        """Whether training is over; if the run marks the end of its loop, only by that mark."""
        if self.reading.ended_ns is not None or self.timeline.is_marked_over:
            return True
        return self.over_ns(_SETTINGS.idle_job_ends_after_ns) is not None

    @property
    def silence(self) -> RunSilence | None:
        """How long it has counted no step; ``None``: not long, or it is suspended."""
        silence = self._clock.silence
        if silence is None or self.timeline.suspended_since_ns is not None or self._is_job_held_up:
            return None
        sleeps_in = None if self._process is None else self._process.sleeps_in
        return silence._replace(sleeps_in=sleeps_in)

    @property
    def holds_job_up(self) -> bool:
        """Whether its job counts no step because of what it does, which is no hang."""
        if self.is_over:
            return False
        is_untimed = self._clock.is_untimed and not self.is_hanging
        return is_untimed or self.timeline.suspended_since_ns is not None

    @property
    def is_hanging(self) -> bool:
        """Whether it probably hangs."""
        silence = self.silence
        return silence is not None and silence.is_hanging

    @property
    def stands_still(self) -> bool:
        """Whether it hangs, or is suspended."""
        return self.timeline.suspended_since_ns is not None or self.is_hanging

    def is_surely_on(self, uuid: str) -> bool:
        """Whether it used the GPU, names it, or is listed there by the driver."""
        is_named = self.reading.facts.gpus is not None and uuid in self.wanted_uuids
        return uuid in self.used_uuids or is_named or self.bindings.get(uuid) is GpuBinding.SEEN

    def is_working_on(self, uuid: str) -> bool:
        """Whether it trains on the GPU now."""
        if uuid not in self.used_uuids or self.is_over or self.is_hanging:
            return False
        return self.reading.steps > 0 and self.timeline.suspended_since_ns is None

    @property
    def is_settled(self) -> bool:
        """Whether it is final: it has ended, and the samples of its GPUs have passed its end."""
        ended_ns = self.ended_ns
        return (
            ended_ns is not None
            and not self.undecided_on
            and all(self.left_ns.get(uuid) == ended_ns for uuid in self.wanted_uuids)
        )

    def update(
        self,
        reading: RingReading,
        process: ProcessState | None = None,
        *,
        is_job_held_up: bool = False,
    ) -> None:
        """Update with this tick's reading of the ring and state of the process.

        While any rank of its job is stopped, validates, saves or compiles, no other rank can
        count a step either.
        """
        if self._is_released:
            self.reading = reading  # which does not change any more
            return
        if self.bounds is _NO_BOUNDS:
            self.bounds, self.timeline.keeps_steps = IdleBounds(), True  # it lives again
        ran_until_ns = self.reading.known_until_ns
        self.reading, self._last_state, self._process = reading, None, process
        if process is not None and process.is_stopped:
            self.timeline.suspend(ran_until_ns)
        else:
            stamps_ns = reading.events.stamps_ns
            self.timeline.resume(stamps_ns[0] if stamps_ns else reading.known_until_ns)
        self.timeline.extend(reading.events, reading.known_until_ns)
        self._pace.ingest(reading.events, self.timeline.suspended_ns)
        if reading.events:
            self._written_ns = reading.events.stamps_ns[-1]
        if self._works_from_ns is None:
            self._works_from_ns = _first_work_ns(reading)
        until_ns = reading.known_until_ns
        stopped_ns = max(0, until_ns - ran_until_ns)
        self._is_job_held_up = is_job_held_up
        if not is_job_held_up:
            stopped_ns = self.timeline.suspended_ns(ran_until_ns, until_ns)
        self._clock.update(
            reading,
            median_ns=self._pace.median_ns,
            first_wait_since_ns=self.timeline.first_wait_since_ns,
            stopped_ns=stopped_ns,
            is_over=self.is_over,
        )
        self.balance.update(reading)
        self._present.ingest(reading.events)

    def forget_before(self, time_ns: int) -> None:
        """Forget what was before, and all but the last state of a run that is gone.

        Such a run is listed for minutes, in which there may be hundreds of short ones.
        """
        if self._is_released:
            return
        self.timeline.forget_before(time_ns)
        self.reasons.forget_before(time_ns)
        ended_ns = self.ended_ns
        if ended_ns is not None and ended_ns < time_ns and self.is_settled:
            self.bounds = _NO_BOUNDS  # the largest part: windows that might be narrowed later
            if self.reading.is_gone:
                self._release()

    def _release(self) -> None:
        self._is_released = True
        self.timeline, self.reasons, self.balance = _NO_TIMELINE, _NO_REASONS, _NO_BALANCE
        self._pace, self._clock = _NO_PACE, _NO_CLOCK
        self.shares = _NO_SHARES
        self._present, self._shown_ns, self.wanted_uuids = _NO_PRESENT, _NO_TIMES, _NOTHING_WANTED
        self.undecided_on, self.bindings, self.left_ns = _NO_UUIDS, _NO_BINDINGS, _NO_ENDS

    def state(self, began_ns: int = 0) -> RunState:
        """State of the run; observation began at ``began_ns``."""
        if self._last_state is not None and self._last_state.run == self.label:
            return self._last_state
        state = self._state(began_ns)
        self._last_state = state if self.is_settled else None
        return state

    def _state(self, began_ns: int) -> RunState:
        reading, facts = self.reading, self.reading.facts
        until_ns = reading.known_until_ns
        phase_ns = dict(reading.phase_ns)
        # The ring's sums leave the present phase out. Part of a step may turn out to have been
        # compilation, so it is not counted until it ends: no sum may ever fall.
        present = self._present.phase
        is_settled = reading.ended_ns is not None or present not in _MAY_HOLD_COMPILING
        if present is not None and is_settled:
            open_ns = max(0, until_ns - self._present.since_ns)
            phase_ns[present] = phase_ns.get(present, 0) + open_ns
        # The ring's sums lag by some milliseconds: a phase that was shown while it was under way
        # may not be in them yet when the next one begins.
        for phase, shown_ns in self._shown_ns.items():
            phase_ns[phase] = max(shown_ns, phase_ns.get(phase, 0))
        self._shown_ns = dict(phase_ns)
        return RunState(
            run=self.label or facts.run,
            job=facts.job,
            rank=facts.rank,
            pid=reading.host_pid,
            framework=facts.framework,
            alive=reading.alive,
            phase=present if reading.alive else None,
            phase_ns=phase_ns,
            steps=reading.steps,
            samples=reading.samples,
            epoch=reading.epoch,
            gpu_uuids=tuple(sorted(self.used_uuids)),
            wall_ns=max(0, until_ns - facts.started_ns),
            loader=facts.loader,
            callback_ns=facts.callback_ns,
            step_ns=self._pace.median_ns,
            shares=self.shares or _NO_SHARES,
            ratio_changes=facts.ratio_changes,
            step_busy_ratios=self.balance.busy_ratios or _NO_SHARES,
            ended_before=reading.ended_ns is not None and reading.ended_ns < began_ns,
            first_input_wait_ns=self.timeline.first_input_wait_ns,
            named_gpus=facts.gpus,
            owner_uid=reading.owner_uid,
            refused_uuids=tuple(sorted(self.refused_uuids)),
            world_size=facts.world_size,
            is_undecided=bool(self.undecided_on),
            reasons=self.reasons.report(),
            suspended_since_ns=self.timeline.suspended_since_ns if reading.alive else None,
            silence=self.silence,
            written_ns=self._written_ns,
            on_cpu=facts.on_cpu,
        )


def _first_work_ns(reading: RingReading) -> int | None:
    """Start of its first step or phase of ``WORK_PHASES``; ``None``: it has had none."""
    if reading.steps or not WORK_PHASES.isdisjoint(reading.phase_ns):
        began_before_ns = reading.facts.started_ns
    else:
        began_before_ns = None
    for event in reading.events:
        enters_work = event.kind is RingKind.ENTER and event.phase in WORK_PHASES
        if enters_work or event.kind is RingKind.STEP:
            return event.at_ns
    return began_before_ns


# Placeholders of released runs, which are read but never changed.
_NO_TIMELINE: Final = PhaseTimeline()
_NO_REASONS: Final = RunReasons()
_NO_BALANCE: Final = StepBalance()
_NO_BOUNDS: Final = IdleBounds()
_NO_PACE: Final = StepPace()
_NO_CLOCK: Final = StepClock()
_NO_PRESENT: Final = PresentPhase(0)
_NO_TIMES: Final[dict[TrainingPhase, int]] = {}
_NO_BINDINGS: Final[dict[str, GpuBinding]] = {}
_NO_ENDS: Final[dict[str, int]] = {}
_NO_SHARES: Final[dict[str, float]] = {}
_NO_UUIDS: Final[set[str]] = set()
_NOTHING_WANTED: Final[frozenset[str]] = frozenset()


def parts_of(runs: Sequence[TrackedRun], start_ns: int, end_ns: int) -> WindowParts:
    """What these runs did between two times."""
    parts = [run.timeline.parts(start_ns, end_ns) for run in runs]
    return parts[0] if len(parts) == 1 else merge_parts(parts, end_ns - start_ns)


def with_reasons(
    shared: SharedIdle, runs: Sequence[TrackedRun], start_ns: int, end_ns: int
) -> SharedIdle:
    """Add reasons to the idle time of one window.

    Several runs are weighted by their parts of the waiting.
    """
    reasons_ns: dict[tuple[IdleCause, InputWaitReason], int] = {}
    for cause in WITH_REASONS:
        lost_ns = shared.idle_ns.get(cause, 0)
        if not lost_ns:
            continue
        weights = [1] if len(runs) == 1 else _weights(runs, cause, start_ns, end_ns)
        total = sum(weights) or 1
        passed = given_ns = 0
        for run, weight in zip(runs, weights, strict=True):
            passed += weight
            part_ns = lost_ns * passed // total - given_ns
            if not part_ns:
                continue
            given_ns += part_ns
            split = run.reasons.split(cause, start_ns, end_ns, part_ns)
            for reason, amount_ns in split.items():
                if reason is not InputWaitReason.UNKNOWN:
                    reasons_ns[cause, reason] = reasons_ns.get((cause, reason), 0) + amount_ns
    return shared._replace(reasons_ns=reasons_ns) if reasons_ns else shared


def _weights(runs: Sequence[TrackedRun], cause: IdleCause, start_ns: int, end_ns: int) -> list[int]:
    """For how long each of these runs was in phases of that cause."""
    parts = [run.timeline.parts(start_ns, end_ns) for run in runs]
    is_wait = cause is IdleCause.INPUT_WAIT
    return [part.input_wait_ns if is_wait else part.step_ns for part in parts]
