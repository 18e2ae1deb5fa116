"""What a phase ring says, once it has been read and found trustworthy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from gpumon.core.phase import TrainingPhase


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
    """Something worth a mark. ``value``: ``TRAINING_OVER``, or the number of a change of shares."""


TRAINING_OVER: Final = 1 << 32
"""``value`` of an EVENT: the training is over, and its process may live on with other things."""


class RingEvent(NamedTuple):
    """One record. ``at_ns`` is CLOCK_MONOTONIC; ``value`` as its kind says."""

    kind: RingKind
    at_ns: int
    phase: TrainingPhase
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What a training process says of itself once, in its ring's first page.

    Attributes:
        run: Label: name, and ``-r<rank>`` where there are several ranks.
        job: Job id that the ranks of one job share.
        rank: Rank within the job, from 0.
        world_size: Ranks of the job.
        pid: Process id as the process sees it.
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
    """

    run: str
    job: str
    rank: int = 0
    world_size: int = 1
    pid: int
    framework: str = "loop"
    gpus: tuple[str, ...] | None = None
    visible_devices: str | None = None
    boot_id: str
    started_ns: int
    loader: dict[str, str | int | float | bool | None] = field(default_factory=dict)
    callback_ns: dict[str, int] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    ratio_changes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RingReading:
    """What one ring said in one tick.

    Attributes:
        key: Stable name of the ring, its own among all folders and over time.
        facts: What the process says of itself.
        alive: Whether the ring's lock is held.
        host_pid: The lock holder's pid as this host sees it (from the lock
            while it was held); ``facts.pid`` where the lock was never seen held.
        owner_uid: Who owns the file.
        read_at_ns: CLOCK_MONOTONIC of the read.
        ended_ns: When the run ended: the last instant at which the lock was
            seen held, or the last record; ``None`` while it lives.
        events: Records new since the last read, oldest first.
        lost_events: Records overrun or torn since the last read.
        phase_ns: Cumulative time in each phase, without the present one.
        steps: Cumulative training steps, as the totals or a newer record tell.
        samples: Cumulative samples, likewise.
        epoch: Epoch under way; ``None`` before the first.
    """

    key: str
    facts: RunFacts
    alive: bool
    host_pid: int
    owner_uid: int
    read_at_ns: int
    ended_ns: int | None
    events: Sequence[RingEvent]
    lost_events: int
    phase_ns: dict[TrainingPhase, int]
    steps: int
    samples: int
    epoch: int | None


class RingCounts(NamedTuple):
    """What a living run's ring says between two ticks, for a report that is asked for just then.

    Attributes:
        steps: Cumulative training steps.
        wall_ns: From the run's start to its newest change.
        samples: Samples trained on, as many as the training tells.
    """

    steps: int
    wall_ns: int
    samples: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RingsReading:
    """What all rings said in one tick.

    Attributes:
        rings: One entry for each trustworthy ring.
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
