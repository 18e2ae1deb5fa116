"""One training run from its ring, and the reasons of what its GPUs lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Final

from gpumon.core.attribution.first_waits import NEVER
from gpumon.core.attribution.idle_bounds import IdleBounds
from gpumon.core.attribution.idle_sharing import SharedIdle, WindowParts, merge_parts
from gpumon.core.attribution.span_labels import parts_of_span
from gpumon.core.attribution.timeline import SEVERAL, PhaseTimeline
from gpumon.core.clock import NS_PER_S
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
_MAX_LAG_NS: Final = 5 * NS_PER_S
"""ours: as the driver's samples may be late, so that what is shown stays together."""
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
    """A run, from the first reading of its ring on.

    Attributes:
        ended_ns: When it ended; ``None`` while it lives.
        job_key: Key of its job: the same id of two users is two jobs.
        over_ns: When training ended; ``None`` while it trains. Its process may still live.
            Without marks, it is over after a minute without a record.
        is_over: Whether training is over; if the run marks the end of its loop, only by that mark.
        silence: How long it has counted no step; ``None``: not long, or it is suspended.
        is_hanging: Whether it probably hangs.
        suspended_since_ns: Since when its process cannot run; ``None``: it can.
        stands_still: Whether it hangs, or is suspended.
        holds_job_up: Whether its job counts no step because of what it does, which is no hang.
    """

    def __init__(self, reading: RingReading) -> None:
        self.reading = reading
        self.timeline = PhaseTimeline()
        self.wanted_uuids: frozenset[str] = frozenset()
        self.used_uuids: set[str] = set()  # GPUs that were active during the run
        self.bindings: dict[str, GpuBinding] = {}  # by GPU, of those decided
        self.undecided_on: set[str] = set()  # GPUs that worked before a list decided
        self.left_ns: dict[str, int] = {}  # by GPU: the end of the run, once passed
        self.label: str | None = None
        self.time_label = ""  # its last label: whose time its GPUs' time is
        self.is_superseded = False  # a newer run took its label
        self.started_wall_time_s = 0.0  # seconds since the epoch
        self._present = PresentPhase(reading.facts.started_ns)
        self._shown_ns: dict[TrainingPhase, int] = {}
        self._pace = StepPace()
        self._median_ns: int | None = None
        self.reasons = RunReasons()
        self.balance = StepBalance()
        self.bounds = IdleBounds()
        self.shares: dict[str, float] = {}  # by UUID, of GPUs that are watched
        self.joined_by: tuple[object, ...] = ()  # what its wanted GPUs and shares depended on
        self._last_state: RunState | None = None
        self._made_of: tuple[object, ...] = ()  # of what the last state was made, besides time
        self._state_ends_ns = 0  # until when it holds
        self._process: ProcessState | None = None
        self._clock = StepClock()
        self._is_job_held_up = False
        self._works_from_ns = _first_work_ns(reading)  # its first step or step phase
        self._written_ns = 0
        self._is_released = False  # of everything but its last state
        self.started_ns = reading.facts.started_ns
        self.ended_ns, self._until_ns = reading.ended_ns, reading.known_until_ns
        self.job_key: JobKey = (reading.facts.job, reading.owner_uid)
        self.over_ns: int | None = None
        self.silence: RunSilence | None = None
        self.suspended_since_ns: int | None = None
        self.is_over = self.is_hanging = self.stands_still = self.holds_job_up = False
        self.update(reading)

    def is_under_way_in(self, sample: BusySample) -> bool:
        """Whether the run existed during any of the sample."""
        return self.timeline.is_known_in(sample.start_ns, sample.end_ns)

    def goes_on(self, sample: BusySample) -> bool:
        """Whether it neither stands still nor was over before that sample."""
        return not self.stands_still and (self.over_ns is None or self.over_ns > sample.start_ns)

    def began_by(self, at_ns: int) -> bool:
        return self.started_ns < at_ns

    def goes_on_throughout(self, start_ns: int, end_ns: int) -> bool:
        """Whether it existed all that time, and neither stands still nor is over."""
        if self.stands_still or self.over_ns is not None:
            return False
        return self.timeline.covered_ns(start_ns, end_ns) == end_ns - start_ns

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

    def is_surely_on(self, uuid: str) -> bool:
        """Whether it used the GPU, names it, or is listed there by the driver."""
        is_named = self.reading.facts.gpus is not None and uuid in self.wanted_uuids
        return uuid in self.used_uuids or is_named or self.bindings.get(uuid) is GpuBinding.SEEN

    def is_working_on(self, uuid: str) -> bool:
        """Whether it trains on the GPU now."""
        if uuid not in self.used_uuids or self.is_over or self.is_hanging:
            return False
        return self.reading.steps > 0 and self.suspended_since_ns is None

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
        is_first = reading is self.reading
        if self.bounds is _NO_BOUNDS:
            self.bounds, self.timeline.keeps_steps = IdleBounds(), True  # it lives again
        ran_until_ns, until_ns = self._until_ns, reading.known_until_ns
        before, self.reading, self._process = self.reading, reading, process
        self.ended_ns, self._until_ns = reading.ended_ns, until_ns
        if is_first or reading.facts is not before.facts:
            self.job_key = reading.facts.job, reading.owner_uid
            self.balance.update(reading)
        if process is not None and process.is_stopped:
            self.timeline.suspend(ran_until_ns)
        else:
            stamps_ns = reading.events.stamps_ns
            self.timeline.resume(stamps_ns[0] if stamps_ns else until_ns)
        self.timeline.extend(reading.events, until_ns)
        if reading.events:
            self._pace.ingest(reading.events, self.timeline.suspended_ns)
            self._median_ns = self._pace.median_ns
            self._present.ingest(reading.events)
            self._written_ns = reading.events.stamps_ns[-1]
        if reading.events or _counted(reading) != _counted(before):
            self._state_ends_ns = 0
            if self._works_from_ns is None:
                self._works_from_ns = _first_work_ns(reading)
        stopped_ns = max(0, until_ns - ran_until_ns)
        self._is_job_held_up = is_job_held_up
        if not is_job_held_up:
            stopped_ns = self.timeline.suspended_ns(ran_until_ns, until_ns)
        self._clock.update(
            reading,
            median_ns=self._median_ns,
            first_wait_since_ns=self.timeline.first_wait_since_ns,
            stopped_ns=stopped_ns,
            is_over=self._find_end(),
        )
        if reading.events:
            self._find_end()  # the clock now knows whether the loop goes on
        self._find_standstill()

    def _find_end(self) -> bool:
        """Update ``over_ns`` and ``is_over``; return the latter."""
        marks_loop_end = not (self._clock.may_be_over or self.timeline.is_marked_over)
        self.over_ns = self.ended_ns
        if self.over_ns is None and not marks_loop_end:
            self.over_ns = self.timeline.over_since_ns(_SETTINGS.idle_job_ends_after_ns)
        self.is_over = self.over_ns is not None or self.timeline.is_marked_over
        return self.is_over

    def _find_standstill(self) -> None:
        silence, self.suspended_since_ns = self._clock.silence, self.timeline.suspended_since_ns
        is_suspended = self.suspended_since_ns is not None
        if is_suspended or self._is_job_held_up:
            silence = None
        elif silence is not None and self._process is not None:
            silence = silence._replace(sleeps_in=self._process.sleeps_in)
        self.silence = silence
        self.is_hanging = silence is not None and silence.is_hanging
        self.stands_still = is_suspended or self.is_hanging
        is_untimed = self._clock.is_untimed and not self.is_hanging
        self.holds_job_up = not self.is_over and (is_untimed or is_suspended)

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
            if self.reading.is_gone and self._state_ends_ns == NEVER:
                self._release()

    def _release(self) -> None:
        self._is_released = True
        self.timeline, self.reasons, self.balance = _NO_TIMELINE, _NO_REASONS, _NO_BALANCE
        self._pace, self._clock = _NO_PACE, _NO_CLOCK
        self.shares = _NO_SHARES
        self._present, self._shown_ns, self.wanted_uuids = _NO_PRESENT, _NO_TIMES, _NOTHING_WANTED
        self.undecided_on, self.bindings, self.left_ns = _NO_UUIDS, _NO_BINDINGS, _NO_ENDS

    def state(self, began_ns: int = 0) -> RunState:
        """State of the run; observation began at ``began_ns``.

        There may be a hundred runs that do nothing. If only time has passed, a state holds for a
        tenth of the time since the last record, at most for ``_MAX_LAG_NS``.
        """
        last, until_ns = self._last_state, self._until_ns
        if last is not None and last.run == self.label and self._holds_until(until_ns):
            return last
        self._last_state = state = self._state(began_ns)
        self._made_of = self._state_inputs()
        self._state_ends_ns = until_ns
        if self.is_settled:
            self._state_ends_ns = NEVER
        elif self.ended_ns is None:
            quiet_ns = until_ns - max(self._written_ns, self.started_ns)
            self._state_ends_ns += min(_MAX_LAG_NS, quiet_ns // 10)
        return state

    def _holds_until(self, until_ns: int) -> bool:
        """Whether the last state still holds then."""
        if self._state_ends_ns == NEVER:
            return True
        return until_ns < self._state_ends_ns and self._made_of == self._state_inputs()

    def _state_inputs(self) -> tuple[object, ...]:
        """All that a state of a quiet run is made of, besides what only grows with time."""
        return (
            self.reading.facts,
            frozenset(self.used_uuids),
            self.refused_uuids,
            len(self.undecided_on),
            self.is_hanging,
            self.suspended_since_ns,
            self.shares,
        )

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
            step_ns=self._median_ns,
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
            suspended_since_ns=self.suspended_since_ns if reading.alive else None,
            silence=self.silence,
            written_ns=self._written_ns,
            on_cpu=facts.on_cpu,
            job_id=facts.launched_job,
            started_wall_time_s=self.started_wall_time_s,
        )


def _counted(reading: RingReading) -> tuple[object, ...]:
    """What a ring counts, and whether its run lives: the same while the run does nothing."""
    return reading.phase_ns, reading.steps, reading.samples, reading.epoch, reading.alive


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


def parts_of(
    runs: Sequence[TrackedRun],
    start_ns: int,
    end_ns: int,
    code_of: Mapping[TrackedRun, int] = MappingProxyType({}),
) -> WindowParts:
    """What these runs did between two times.

    ``code_of`` has the phases of those that are known to have been in one throughout.
    """
    if len(runs) == 1:
        return runs[0].timeline.parts(start_ns, end_ns)
    # There may be a hundred that do nothing, in the same phase.
    codes = [code_of.get(run, SEVERAL) for run in runs]
    alike = sorted(set(codes) - {SEVERAL})
    parts = [parts_of_span(code, end_ns - start_ns) for code in alike]
    counts = [codes.count(code) for code in alike]
    for run, code in zip(runs, codes, strict=True) if SEVERAL in codes else ():
        if code == SEVERAL:
            parts.append(run.timeline.parts(start_ns, end_ns))
            counts.append(1)
    return merge_parts(parts, end_ns - start_ns, counts)


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
    is_wait = cause is IdleCause.INPUT_WAIT
    of_code: dict[int, int] = {}
    weights = []
    for run in runs:
        code = run.timeline.sole_code(start_ns, end_ns)
        if code == SEVERAL or code not in of_code:
            part = run.timeline.parts(start_ns, end_ns)
            of_code[code] = part.input_wait_ns if is_wait else part.step_ns
        weights.append(of_code[code])
    return weights
