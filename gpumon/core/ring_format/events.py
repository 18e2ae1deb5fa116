"""What a phase ring says, once it has been read and found trustworthy."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import compress
from typing import Final, NamedTuple, TypeAlias

from gpumon.core.clock import NS_PER_S
from gpumon.core.phase import PHASE_NUMBER, PHASES, TrainingPhase

KEEP_ENDED_NS: Final = 15 * 60 * NS_PER_S
"""For how long a run that ended is still told of, and a MIG instance that was destroyed."""

_LOWEST_BYTE: Final = 7 if sys.byteorder == "big" else 0


class RingKind(IntEnum):
    """Kinds of record in a phase ring, version 1."""

    ENTER = 1
    """The phase begins and the one before it ends; value: the ``TrainingMode``."""
    AMOUNT = 2
    """``value`` nanoseconds of ``phase`` were spent inside the present phase."""
    DEVICE_DONE = 3
    """The device finished training step number ``value``."""
    STEP = 4
    """Training steps done so far: ``value``."""
    SAMPLES = 5
    """Samples trained on so far: ``value``."""
    EPOCH = 6
    """Epoch ``value`` begins, counted from 0."""
    EVENT = 7
    """Something worth a mark. ``value``: ``TRAINING_OVER``, ``LOOP_BEGAN``, ``LOOP_ENDED``, or the
    number of a change of shares."""


TRAINING_OVER: Final = 1 << 32
"""``value`` of an EVENT: the training is over, and its process may live on with other things."""

LOOP_BEGAN: Final = 1 << 33
"""``value`` of an EVENT: a loop over batches begins, which will say where it ends."""
LOOP_ENDED: Final = LOOP_BEGAN + 1
"""``value`` of an EVENT: the newest of these loops has had its last batch."""

_ONLY: Final = {kind: bytes(int(byte == kind) for byte in range(256)) for kind in RingKind}


class RingEvent(NamedTuple):
    """One record. ``at_ns`` is CLOCK_MONOTONIC; ``value`` as its kind says."""

    kind: RingKind
    at_ns: int
    phase: TrainingPhase
    value: int


@dataclass(frozen=True, slots=True)
class RingRecords:
    """Consecutive records as columns: thousands a tick, used without an object for each.

    Attributes:
        kinds: A byte a record: its ``RingKind``.
        phases: A byte a record: its phase, in ring order.
        stamps_ns: CLOCK_MONOTONIC of each.
        values: What each is worth, as its kind says; 64 bits.
    """

    kinds: bytes
    phases: bytes
    stamps_ns: list[int]
    values: array[int]

    @classmethod
    def of(cls, events: Iterable[RingEvent]) -> RingRecords:
        """These records, in the order in which they come."""
        rows = list(events)
        return cls(
            bytes(row.kind for row in rows),
            bytes(PHASE_NUMBER[row.phase] for row in rows),
            [row.at_ns for row in rows],
            array("Q", [row.value for row in rows]),
        )

    def __len__(self) -> int:
        return len(self.kinds)

    def __iter__(self) -> Iterator[RingEvent]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, at: int) -> RingEvent:
        kind, phase = RingKind(self.kinds[at]), PHASES[self.phases[at]]
        return RingEvent(kind, self.stamps_ns[at], phase, self.values[at])

    @property
    def modes(self) -> bytes:
        """A byte a record: the lowest of its value, which is an ENTER's mode."""
        return self.values.tobytes()[_LOWEST_BYTE::8]

    @property
    def is_in_order(self) -> bool:
        """Whether no stamp is older than the one before it."""
        return self.stamps_ns == sorted(self.stamps_ns)

    def selected(self, kind: RingKind) -> bytes:
        """A byte a record: 1 where it is of that kind, else 0. For ``itertools.compress``."""
        return self.kinds.translate(_ONLY[kind])

    def positions(self, *kinds: RingKind) -> list[int]:
        """Where the records of these kinds are."""
        if not any(kind in self.kinds for kind in kinds):  # as mostly of an AMOUNT
            return []
        return [at for at, kind in enumerate(self.kinds) if kind in kinds]

    def newest(self, kind: RingKind) -> RingEvent | None:
        """The newest record of that kind, if there is one."""
        at = self.kinds.rfind(kind)
        return self[at] if at >= 0 else None

    def where(self, kept: Iterable[object]) -> RingRecords:
        """Those of which ``kept`` says so, one after the other."""
        mask = list(kept)
        return RingRecords(
            bytes(compress(self.kinds, mask)),
            bytes(compress(self.phases, mask)),
            list(compress(self.stamps_ns, mask)),
            array("Q", compress(self.values, mask)),
        )


NO_RECORDS: Final = RingRecords.of(())

LoaderFacts: TypeAlias = dict[str, str | int | float | bool | None]
"""What is known of an input pipeline, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What a training process says of itself once, in its ring's first page.

    Attributes:
        run: Label: name, and ``-r<rank>`` where there are several ranks.
        job: Job id that the ranks of one job share.
        rank: Rank within the job, from 0.
        world_size: Ranks of the job.
        pid: Process id as the process sees it.
        tid: Id of the thread that trains as the process sees it, Linux's; ``None``: nobody told.
        framework: Such as ``"keras/jax"``, ``"loop"``.
        gpus: What the user said (indices or UUIDs); ``None``: nothing.
        visible_devices: ``$CUDA_VISIBLE_DEVICES``; ``None``: unset, or too long to tell.
        boot_id: Kernel boot id under which the stamps compare.
        started_ns: CLOCK_MONOTONIC when the ring was made.
        loader: Bounded facts about the input pipeline.
        callback_ns: Time in the methods of each class of callback, as restated
            now and then, nanoseconds.
        shares: The part, 0 to 1, of each batch of the job that each GPU of this
            process is given; a GPU as ``gpus`` would name it (its index on the
            machine as text, or its UUID). Empty: nobody told.
        ratio_changes: How often the shares became others than those told before.
        on_cpu: Whether the framework that trains has its model on the CPU, and sees no GPU.
    """

    run: str
    job: str
    rank: int = 0
    world_size: int = 1
    pid: int
    tid: int | None = None
    framework: str = "loop"
    gpus: tuple[str, ...] | None = None
    visible_devices: str | None = None
    boot_id: str
    started_ns: int
    loader: LoaderFacts = field(default_factory=dict)
    callback_ns: dict[str, int] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    ratio_changes: int = 0
    on_cpu: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RingReading:
    """What one ring said in one tick.

    Attributes:
        key: Stable name of the ring, its own among all folders and over time.
        alive: Whether the ring's lock is held, or the ring is written on without one.
        host_pid: The lock holder's pid as this host sees it (from the lock
            while it was held); ``facts.pid`` where the lock was never seen held.
        is_pid_seen: Whether the lock told ``host_pid``: a process of another pid namespace
            cannot be seen from here, and that number is somebody else's.
        ended_ns: When the run ended: the last instant at which it was
            seen alive, or the last record; ``None`` while it lives.
        events: Records new since the last read, oldest first.
        lost_events: Records overrun or torn since the last read.
        phase_ns: Cumulative time in each phase, without the present one.
        steps: Cumulative training steps, as the totals or a newer record tell.
        samples: Cumulative samples, likewise.
        epoch: Epoch under way; ``None`` before the first.
        is_gone: Whether it will certainly not be written again: its process has ended, or closed
            it. Where the process cannot be seen, a run that has ended may live again.
    """

    key: str
    facts: RunFacts
    alive: bool
    host_pid: int
    owner_uid: int
    read_at_ns: int
    ended_ns: int | None
    events: RingRecords
    lost_events: int
    phase_ns: dict[TrainingPhase, int]
    steps: int
    samples: int
    epoch: int | None
    is_pid_seen: bool = True
    is_gone: bool = False

    @property
    def known_until_ns(self) -> int:
        """Up to when it says what the run did: until it was read, or until the run ended."""
        return self.read_at_ns if self.ended_ns is None else self.ended_ns


class RingCounts(NamedTuple):
    """What a living run's ring says between two ticks, for a report that is asked for just then.

    Attributes:
        wall_ns: From the run's start to its newest change.
    """

    steps: int
    wall_ns: int
    samples: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RingsReading:
    """What all rings said in one tick.

    Attributes:
        rejected: Rings refused so far: hostile, torn, of another version or boot.
        message: Whose rings are not read now, as a sentence; where there are
            none, why the last one was refused.
        left_out: How many rings of which uid are not read now, for there are too
            many, the largest first; under ``None``, those of further owners.
        is_whole: Whether every owner has what is his part at least: one who has
            more rings than that cannot make it false, nor can what is no ring.
    """

    rings: tuple[RingReading, ...] = ()
    rejected: int = 0
    message: str | None = None
    left_out: tuple[tuple[int | None, int], ...] = ()
    is_whole: bool = True


class PresentPhase:
    """Follows one ring's records to the phase that is under way.

    Attributes:
        phase: The phase under way; ``None`` before anything is known.
        since_ns: CLOCK_MONOTONIC from which on it is in none of the ring's sums.
    """

    def __init__(self, since_ns: int) -> None:
        self.phase: TrainingPhase | None = None
        self.since_ns = since_ns

    def ingest(self, events: RingRecords) -> None:
        """Take the new records of the ring, oldest first."""
        entered = events.newest(RingKind.ENTER)
        if entered is not None:
            self.phase, self.since_ns = entered.phase, entered.at_ns
        last = events.kinds.rfind(RingKind.ENTER)
        for at in events.positions(RingKind.AMOUNT):
            if at > last:
                self.since_ns += events.values[at]  # already in the ring's sums
