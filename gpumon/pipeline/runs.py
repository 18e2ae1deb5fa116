"""Training runs, as their rings tell of them, and the GPUs that count for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpumon.core.phase import TrainingPhase
from gpumon.core.report import JobKey
from gpumon.core.ring_events import RingEvent, RingKind, RingReading, RingsReading
from gpumon.core.ring_records import RingRecords
from gpumon.core.sample import GpuSample
from gpumon.core.state import RunState
from gpumon.core.timeline import PhaseTimeline
from gpumon.pipeline.gpu_claims import Claim
from gpumon.pipeline.gpu_join import GpuJoin
from gpumon.pipeline.step_balance import StepBalance
from gpumon.pipeline.step_pace import StepPace

_NONE: frozenset[str] = frozenset()
_MAY_HOLD_COMPILING = frozenset(
    {TrainingPhase.TRAIN_STEP, TrainingPhase.VALIDATION, TrainingPhase.PREDICT}
)


class Run:
    """One ring, from the first reading on."""

    def __init__(self, reading: RingReading) -> None:
        self.reading = reading
        self.timeline = PhaseTimeline()
        self.wanted_uuids: frozenset[str] = frozenset()
        self.used_uuids: set[str] = set()  # GPUs that were active during the run
        self.claims: dict[str, Claim] = {}  # by GPU, of those decided
        self.undecided_on: set[str] = set()  # GPUs that worked, and the next list decides
        self.left_ns: dict[str, int] = {}  # by GPU: which end of a training its samples have passed
        self.label: str | None = None
        self.is_superseded = False  # a newer run has taken the label
        self._phase: TrainingPhase | None = None
        self._phase_from_ns = reading.facts.started_ns
        self._told_ns: dict[TrainingPhase, int] = {}
        self._pace = StepPace()
        self.balance = StepBalance()
        self.shares: dict[str, float] = {}  # by UUID, of GPUs that are watched
        self._last_state: RunState | None = None  # once nothing of it will change
        self.take(reading)

    @property
    def started_ns(self) -> int:
        """When the ring was made."""
        return self.reading.facts.started_ns

    @property
    def ended_ns(self) -> int | None:
        """When the run ended; ``None`` while it lives."""
        return self.reading.ended_ns

    def counts_on(self, uuid: str) -> bool:
        """Whether its claim to that GPU was decided, and stands."""
        return self.claims.get(uuid) in (Claim.UNOPPOSED, Claim.SEEN)

    def decide(self, uuid: str, claim: Claim) -> None:
        """Note what has become of its claim to that GPU."""
        self.claims[uuid] = claim
        self.undecided_on.discard(uuid)
        if claim is Claim.REFUSED:
            self.used_uuids.discard(uuid)
            self.shares.pop(uuid, None)
            self.balance.forget(uuid)

    @property
    def refused_uuids(self) -> frozenset[str]:
        """GPUs that it names, and only others are on them."""
        refused = [uuid for uuid, claim in self.claims.items() if claim is Claim.REFUSED]
        return self.wanted_uuids.intersection(refused) if refused else _NONE

    @property
    def job_key(self) -> JobKey:
        """Its job: of two users that give one id, each has a job of his own."""
        return self.reading.facts.job, self.reading.owner_uid

    def over_ns(self, patience_ns: int) -> int | None:
        """Since when its training is over; its process may live on. ``None`` while it trains.

        Args:
            patience_ns: For how long it may say nothing.
        """
        return self.ended_ns or self.timeline.over_since_ns(patience_ns)

    @property
    def is_settled(self) -> bool:
        """Whether it has ended and the samples of its GPUs have passed that: nothing changes."""
        ended_ns = self.ended_ns
        return (
            ended_ns is not None
            and not self.undecided_on
            and all(self.left_ns.get(uuid) == ended_ns for uuid in self.wanted_uuids)
        )

    def supersede(self) -> None:
        """A newer run of the same name takes the label over."""
        self.label, self.is_superseded = None, True

    def take(self, reading: RingReading) -> None:
        """Take what the ring said in this tick."""
        self.reading, self._last_state = reading, None
        until_ns = reading.read_at_ns if reading.ended_ns is None else reading.ended_ns
        self.timeline.extend(reading.events, until_ns)
        self._pace.take(reading.events)
        self.balance.take(reading)
        for event in _since_newest_phase(reading.events):
            if event.kind is RingKind.ENTER:
                self._phase, self._phase_from_ns = event.phase, event.at_ns
            elif event.kind is RingKind.AMOUNT:
                self._phase_from_ns += event.value  # the ring's sums hold it already

    def state(self, label: str, began_ns: int = 0) -> RunState:
        """The run as outlets show it; observation began at ``began_ns``."""
        if self._last_state is not None and self._last_state.run == label:
            return self._last_state
        state = self._state(label, began_ns)
        self._last_state = state if self.is_settled else None
        return state

    def _state(self, label: str, began_ns: int) -> RunState:
        reading, facts = self.reading, self.reading.facts
        until_ns = reading.read_at_ns if reading.ended_ns is None else reading.ended_ns
        phase_ns = dict(reading.phase_ns)
        # The ring's sums leave the present phase out. Of a step, part may yet turn out to have
        # been compiling: until it ends it is not counted, for no sum may ever fall.
        is_settled = reading.ended_ns is not None or self._phase not in _MAY_HOLD_COMPILING
        if self._phase is not None and is_settled:
            open_ns = max(0, until_ns - self._phase_from_ns)
            phase_ns[self._phase] = phase_ns.get(self._phase, 0) + open_ns
        # The ring's sums lag by some milliseconds: a phase that was told while it was under way
        # may not be in them yet when the next one is.
        for phase, told_ns in self._told_ns.items():
            phase_ns[phase] = max(told_ns, phase_ns.get(phase, 0))
        self._told_ns = dict(phase_ns)
        return RunState(
            run=label,
            job=facts.job,
            rank=facts.rank,
            world_size=facts.world_size,
            pid=reading.host_pid,
            framework=facts.framework,
            alive=reading.alive,
            phase=self._phase if reading.alive else None,
            phase_ns=phase_ns,
            steps=reading.steps,
            samples=reading.samples,
            epoch=reading.epoch,
            gpu_uuids=tuple(sorted(self.used_uuids)),
            wall_ns=max(0, until_ns - facts.started_ns),
            loader=facts.loader,
            callback_ns=facts.callback_ns,
            step_ns=self._pace.median_ns,
            shares=self.shares,
            ratio_changes=facts.ratio_changes,
            step_busy_ratios=self.balance.busy_ratios,
            ended_before=reading.ended_ns is not None and reading.ended_ns < began_ns,
            first_input_wait_ns=self.timeline.first_input_wait_ns,
            named_gpus=facts.gpus,
            owner_uid=reading.owner_uid,
            refused_uuids=tuple(sorted(self.refused_uuids)),
            is_undecided=bool(self.undecided_on),
        )


class RunRegistry:
    """All runs whose rings exist, joined with the GPUs they may use."""

    def __init__(self, *, simulated: bool) -> None:
        self._simulated = simulated
        self._runs: dict[str, Run] = {}

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def runs(self) -> tuple[Run, ...]:
        """All of them, oldest first."""
        return tuple(self._runs.values())

    def take(self, rings: RingsReading, gpus: Sequence[GpuSample]) -> None:
        """Take what the rings said; those no longer listed are forgotten."""
        join = GpuJoin(gpus, simulated=self._simulated)
        listed = {reading.key for reading in rings.rings}
        for key in [key for key in self._runs if key not in listed]:
            del self._runs[key]
        for reading in rings.rings:
            run = self._runs.get(reading.key)
            if run is None:
                run = self._runs[reading.key] = Run(reading)
            elif reading is not run.reading:
                run.take(reading)
            elif run.is_settled:
                continue
            _join(run, join)
        self._give_labels()

    def on(self, uuid: str) -> tuple[Run, ...]:
        """Runs that may be on this GPU and whose end its samples have not passed."""
        return tuple(
            run
            for run in self._runs.values()
            if uuid in run.wanted_uuids
            and run.claims.get(uuid) is not Claim.REFUSED
            and (run.ended_ns is None or run.left_ns.get(uuid) != run.ended_ns)
        )

    def states(self, began_ns: int = 0) -> tuple[RunState, ...]:
        """Every run as outlets show it, under a label of its own, oldest first.

        Args:
            began_ns: When observation began.
        """
        labelled = [(run.started_ns, run.label, run) for run in self._runs.values() if run.label]
        labelled.sort(key=_age_and_label)
        return tuple(run.state(label, began_ns) for _, label, run in labelled)

    def _give_labels(self) -> None:
        """Give each new run a label, which it keeps: a counter must not change hands.

        A run that ended gives its label up to a newer one of the same name and user; beside
        one that lives, or one of another user, the newcomer is told apart by its pid. What
        anybody can copy, a ring that nobody holds, never has the name of a run that lives.
        """
        owners = {run.label: run for run in self._runs.values() if run.label}
        living = {run.reading.facts.run: run for run in self._runs.values() if run.reading.alive}
        new = [run for run in self._runs.values() if run.label is None and not run.is_superseded]
        for run in sorted(new, key=_age):
            label = name = run.reading.facts.run
            number = 1
            while (label in owners and not _may_follow(run, owners[label])) or (
                label in living and _is_behind(run, living[label])
            ):
                suffix = "" if number == 1 else f"-{number}"
                label = f"{name}-{run.reading.host_pid}{suffix}"
                number += 1
            if label in owners:
                owners[label].supersede()
            owners[label] = run
            run.label = label


def _join(run: Run, join: GpuJoin) -> None:
    """See which GPUs may count for the run now."""
    reading = run.reading
    wanted = join.gpus_of(reading)
    if reading.ended_ns is not None:
        # Its pid has left the process list with it; its last samples are still to come.
        wanted |= run.wanted_uuids
    run.wanted_uuids = wanted
    run.shares = join.shares_of(reading)
    for uuid in join.seen_on(reading) & wanted:
        run.decide(uuid, Claim.SEEN)
    for uuid in run.refused_uuids:
        # Who comes to use it later is one of its users from then on.
        run.decide(uuid, Claim.SEEN if join.names(uuid, reading) else Claim.REFUSED)


def _is_behind(run: Run, living: Run) -> bool:
    """Whether the run is over, and the name is that of another user's run that lives."""
    return not run.reading.alive and living.reading.owner_uid != run.reading.owner_uid


def _may_follow(run: Run, earlier: Run) -> bool:
    """Whether the run may take the other's label over, and go on with its counters."""
    return not earlier.reading.alive and earlier.reading.owner_uid == run.reading.owner_uid


def _age_and_label(labelled: tuple[int, str, Run]) -> tuple[int, str]:
    return labelled[:2]


def _age(run: Run) -> int:
    return run.started_ns


def _since_newest_phase(events: Sequence[RingEvent]) -> Iterable[RingEvent]:
    """The part of the records that says what is under way now."""
    if not isinstance(events, RingRecords):
        return events
    newest = max(events.kinds.rfind(RingKind.ENTER), 0)
    if RingKind.AMOUNT in events.kinds[newest:]:
        return events[newest:]
    return (events.event_at(newest),)
