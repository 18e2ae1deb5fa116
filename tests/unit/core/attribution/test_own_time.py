"""Specification of own time: whether what a rank does between its steps delays its job."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from gpumon.core.attribution.own_time import OwnTime
from gpumon.core.phase import TrainingMode, TrainingPhase
from gpumon.core.ring_format.events import NO_RECORDS, RingEvent, RingKind, RingRecords

WAIT, STEP, OTHER = TrainingPhase.INPUT_WAIT, TrainingPhase.TRAIN_STEP, TrainingPhase.OTHER
NS_PER_MS = 1_000_000

StepOf = Callable[[float], float]
"""How long a step is, ms, after so much time between two steps, ms."""


class Rank:
    """One rank's tags: it waits for a batch, and ends its step together with the others."""

    def __init__(self, seed: int = 1) -> None:
        self.own_time, self.random = OwnTime(), random.Random(seed)
        self.events: list[RingEvent] = []
        self._now_ns = self._steps = 0

    def enter(self, phase: TrainingPhase, length_ms: float, mode: int = TrainingMode.TRAIN) -> None:
        self.events.append(RingEvent(RingKind.ENTER, self._now_ns, phase, mode))
        self._now_ns += round(length_ms * NS_PER_MS)

    def mark(self, kind: RingKind) -> None:
        self._steps += kind is RingKind.STEP
        self.events.append(RingEvent(kind, self._now_ns, OTHER, self._steps))

    def step(self, own_ms: float, step_ms: float) -> None:
        self.enter(WAIT, own_ms)
        self.enter(STEP, step_ms)
        self.mark(RingKind.STEP)

    def steps(
        self, count: int, step_of: StepOf, *, own_ms: float = 20, spread_ms: float = 3
    ) -> Rank:
        for _ in range(count):
            own = max(0.0, self.random.gauss(own_ms, spread_ms))
            self.step(own, step_of(own))
        return self

    def delays(self, *, records_per_tick: int = 30) -> bool | None:
        for at in range(0, len(self.events), records_per_tick):
            self.own_time.ingest(RingRecords.of(self.events[at : at + records_per_tick]))
        self.events = []
        return self.own_time.delays


def waited_for(own_ms: float) -> float:
    return 30


def early(own_ms: float) -> float:
    return 60 - own_ms


class TestTheOtherRanks:
    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize("jitter_ms", [0, 1])
    @pytest.mark.parametrize(("step_of", "expected"), [(waited_for, True), (early, False)])
    def test_wait_for_a_rank_whose_step_does_not_absorb_its_own_time(
        self, step_of: StepOf, expected: bool, jitter_ms: float, seed: int
    ) -> None:
        rank = Rank(seed)
        rank.steps(300, lambda own_ms: step_of(own_ms) + rank.random.gauss(0, jitter_ms))

        assert rank.delays() is expected

    def test_wait_or_not_whatever_phase_the_time_between_steps_is_tagged_as(self) -> None:
        rank = Rank()
        for _ in range(100):
            rank.enter(TrainingPhase.CALLBACKS, rank.random.uniform(5, 15))
            rank.enter(WAIT, rank.random.uniform(5, 15))
            rank.enter(STEP, 20)
            rank.enter(TrainingPhase.DEVICE_SYNC, 10)
            rank.mark(RingKind.STEP)

        assert rank.delays() is True


NOTHING_KNOWN: dict[str, Callable[[Rank], object]] = {
    "before the first records": lambda rank: rank.own_time.ingest(NO_RECORDS),
    "of few steps": lambda rank: rank.steps(16, waited_for),
    "if the time between steps does not vary": lambda rank: rank.steps(
        100, waited_for, spread_ms=0
    ),
    "if steps absorb about half": lambda rank: rank.steps(100, lambda own_ms: 60 - own_ms / 2),
    "if steps vary for other reasons": lambda rank: rank.steps(
        50, lambda own_ms: rank.random.gauss(300, 60)
    ),
    "if all time is one stamp": lambda rank: rank.steps(100, lambda _: 0, own_ms=0, spread_ms=0),
}


class TestTheEffectOnTheJob:
    @pytest.mark.parametrize("when", NOTHING_KNOWN)
    def test_is_unknown(self, when: str) -> None:
        rank = Rank()
        NOTHING_KNOWN[when](rank)

        assert rank.delays() is None


class TestNoPartOfTheRhythm:
    def test_is_a_checkpoint_between_two_steps(self) -> None:
        rank = Rank()
        for _ in range(10):
            rank.steps(20, early)
            rank.step(2_000, 60)

        assert rank.delays() is False

    def test_is_what_passes_between_two_epochs(self) -> None:
        rank = Rank()
        for _ in range(40):
            rank.steps(5, early)
            rank.enter(OTHER, rank.random.uniform(10, 70))
            rank.mark(RingKind.EPOCH)

        assert rank.delays() is False

    def test_is_a_step_of_validation(self) -> None:
        rank = Rank()
        for _ in range(100):
            rank.enter(STEP, rank.random.uniform(5, 15), TrainingMode.VALIDATION)
            rank.step(10, 30)

        assert rank.delays() is True


class TestRecords:
    @pytest.mark.parametrize("records_per_tick", [1, 7, 300])
    def test_may_be_split_between_ticks_in_any_way(self, records_per_tick: int) -> None:
        assert Rank().steps(100, early).delays(records_per_tick=records_per_tick) is False

    def test_leave_no_part_of_a_step_if_skipped(self) -> None:
        rank = Rank().steps(1, early)
        rank.delays()
        for _ in range(1_000):
            rank.enter(OTHER, 1)
        rank.steps(80, early)

        assert rank.delays(records_per_tick=len(rank.events)) is False

    def test_out_of_order_do_not_raise(self) -> None:
        rank = Rank().steps(100, waited_for)
        rank.random.shuffle(rank.events)

        rank.delays()

    def test_follow_a_loop_that_changes(self) -> None:
        rank = Rank().steps(200, waited_for)
        before = rank.delays()
        rank.steps(12_000, early)

        assert (before, rank.delays()) == (True, False)

    def test_follow_a_new_rhythm_after_eight_steps_that_are_much_longer(self) -> None:
        rank = Rank()
        for _ in range(200):
            own_ms = max(0.1, rank.random.gauss(2, 0.3))
            rank.step(own_ms, 50 - own_ms)
        for _ in range(300):
            rank.step(max(0.1, rank.random.gauss(30, 5)), 20 + rank.random.gauss(0, 0.1))

        assert rank.delays() is True
