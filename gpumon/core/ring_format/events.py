"""Contents of a phase ring that was read and found trustworthy."""

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
"""How long an ended run, or a destroyed MIG instance, is still listed."""

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
    """An event: ``value`` is ``TRAINING_OVER``, ``LOOP_BEGAN``, ``LOOP_ENDED``, or the
    number of a change of shares."""


TRAINING_OVER: Final = 1 << 32
"""``value`` of an EVENT: training is over, though its process may live on."""

LOOP_BEGAN: Final = 1 << 33
"""``value`` of an EVENT: a loop over batches begins, whose end will be recorded."""
LOOP_ENDED: Final = LOOP_BEGAN + 1
"""``value`` of an EVENT: the newest of these loops has had its last batch."""

_ONLY: Final = {kind: bytes(int(byte == kind) for byte in range(256)) for kind in RingKind}


class RingEvent(NamedTuple):
    """One record. ``at_ns`` is CLOCK_MONOTONIC; ``RingKind`` explains ``value``."""

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
        values: The value of each, as ``RingKind`` explains it; 64 bits.
    """

    kinds: bytes
    phases: bytes
    stamps_ns: list[int]
    values: array[int]

    @classmethod
    def of(cls, events: Iterable[RingEvent]) -> RingRecords:
        """These records as columns, in the same order."""
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
        """A byte a record: the lowest byte of its value, which is the mode of an ENTER."""
        return self.values.tobytes()[_LOWEST_BYTE::8]

    @property
    def is_in_order(self) -> bool:
        return self.stamps_ns == sorted(self.stamps_ns)

    def selected(self, kind: RingKind) -> bytes:
        """A byte a record: 1 where it is of that kind, else 0. For ``itertools.compress``."""
        return self.kinds.translate(_ONLY[kind])

    def positions(self, *kinds: RingKind) -> list[int]:
        if not any(kind in self.kinds for kind in kinds):  # most readings have no AMOUNT
            return []
        return [at for at, kind in enumerate(self.kinds) if kind in kinds]

    def newest(self, kind: RingKind) -> RingEvent | None:
        """The newest record of that kind, if there is one."""
        at = self.kinds.rfind(kind)
        return self[at] if at >= 0 else None

    def where(self, kept: Iterable[object]) -> RingRecords:
        """The records whose item in ``kept`` is true."""
        mask = list(kept)
        return RingRecords(
            bytes(compress(self.kinds, mask)),
            bytes(compress(self.phases, mask)),
            list(compress(self.stamps_ns, mask)),
            array("Q", compress(self.values, mask)),
        )


NO_RECORDS: Final = RingRecords.of(())

LoaderFacts: TypeAlias = dict[str, str | int | float | bool | None]
"""Facts about an input pipeline, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What a training process states about itself in its ring's first page.

    Attributes:
        run: Label: name, and ``-r<rank>`` where there are several ranks.
        job: Job id that the ranks of one job share.
        rank: Rank within the job, from 0.
        pid: Process id as the process sees it.
        tid: Linux id of the training thread as the process sees it; ``None``: unknown.
        framework: Such as ``"keras/jax"``, ``"loop"``.
        gpus: GPUs that the user named (indices or UUIDs); ``None``: none.
        visible_devices: ``$CUDA_VISIBLE_DEVICES``; ``None``: unset, or too long.
        boot_id: Kernel boot id under which the stamps compare.
        started_ns: CLOCK_MONOTONIC when the ring was made.
        loader: Bounded facts about the input pipeline.
        callback_ns: Time in the methods of each callback class, updated now and then.
        shares: The part, 0 to 1, of each batch of the job that each GPU of this
            process is given, by its name as in ``gpus``. Empty: unknown.
        ratio_changes: How often the shares have changed.
        on_cpu: Whether the framework has its model on the CPU, and sees no GPU.
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

    @property
    def launched_job(self) -> str:
        """The job id, if a launcher named it; empty: it is the run's name and a pid.

        >>> from dataclasses import replace
        >>> facts = RunFacts(run="train", job="4711.0", pid=7, boot_id="", started_ns=0)
        >>> facts.launched_job, replace(facts, job="train-7").launched_job
        ('4711.0', '')
        """
        name = self.run.removesuffix(f"-r{self.rank}") if self.world_size > 1 else self.run
        number = self.job.removeprefix(f"{name}-")
        return "" if number != self.job and number.isdecimal() else self.job


class RingReading(NamedTuple):
    """One reading of one ring.

    Attributes:
        key: Name of the ring that is unique among all folders and over time.
        alive: Whether the ring's lock is held, or the ring is written without one.
        host_pid: The lock holder's pid on this host; ``facts.pid`` if the lock was never held.
        is_pid_seen: Whether ``host_pid`` is from the lock. A process of another pid namespace is
            not visible from here, and its own pid is another process's.
        ended_ns: When the run ended: the last time it was
            seen alive, or its last record; ``None`` while it lives.
        events: New records since the last read, oldest first.
        lost_events: Records overwritten or torn since the last read.
        phase_ns: Cumulative time in each phase, without the one under way.
        steps: Cumulative training steps, from the totals or a newer record.
        samples: Cumulative samples, likewise.
        epoch: Epoch under way; ``None`` before the first.
        is_gone: Whether it will certainly not be written again: its process has ended, or closed
            it. Where the process is not visible, an ended run may live again.
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
        """Time up to which the run is known: the read, or the end of the run."""
        return self.read_at_ns if self.ended_ns is None else self.ended_ns


class RingCounts(NamedTuple):
    """Counts of a living run between two ticks, for a report that is requested then.

    Attributes:
        wall_ns: From the run's start to its newest change.
    """

    steps: int
    wall_ns: int
    samples: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RingsReading:
    """One reading of all rings.

    Attributes:
        rejected: Rings refused so far: hostile, torn, of another version or boot.
        message: Whose rings are not read now, as a sentence; if none, why the last one was
            refused.
        left_out: How many rings of each uid are not read because there are too
            many, the largest first; under ``None``, those of further owners.
        is_whole: Whether every owner has at least its guaranteed share of the rings that are
            read. An owner of more rings than that cannot make it false.
        is_watched: Whether a user's heartbeat beside the rings is recent: a user looks now.
    """

    rings: tuple[RingReading, ...] = ()
    rejected: int = 0
    message: str | None = None
    left_out: tuple[tuple[int | None, int], ...] = ()
    is_whole: bool = True
    is_watched: bool = False


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
