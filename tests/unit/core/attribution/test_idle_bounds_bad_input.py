"""Specification of idle bounds on bad input: totals stay consistent, false marks decide nothing.

``FollowedLoop`` checks after each window that 0 <= low <= best <= high <= idle, and that low and
best only grow.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from gpumon.core.phase import IdleCause, TrainingMode, TrainingPhase
from gpumon.core.ring_format.events import RingEvent, RingKind
from gpumon.core.sample import BusySample
from tests.truth.loops.machine import NS_PER_MS, Rank
from tests.unit.core.attribution.builders_bounds import (
    FollowedLoop,
    asynchronous,
    device_done,
    followed,
    synchronous,
    true_idle_ns,
)

INPUT_WAIT = IdleCause.INPUT_WAIT


def early(rank: Rank) -> list[RingEvent]:
    return [device_done(start_ns, step) for step, (start_ns, _) in enumerate(rank.busy, 1)]


def late(rank: Rank) -> list[RingEvent]:
    return [device_done(end_ns + 10**9, step) for step, (_, end_ns) in enumerate(rank.busy, 1)]


def never(rank: Rank) -> list[RingEvent]:
    return [device_done(2 * rank.now_ns, step) for step, _ in enumerate(rank.busy, 1)]


def of_steps_to_come(rank: Rank) -> list[RingEvent]:
    return [device_done(end_ns, 1 << 60) for _, end_ns in rank.busy]


def before_all_work(rank: Rank) -> list[RingEvent]:
    return [device_done(0, 1 << 60)]


class TestDeviceMarks:
    @pytest.mark.parametrize("lie", [early, of_steps_to_come])
    def test_that_the_driver_contradicts_decide_nothing(
        self, lie: Callable[[Rank], list[RingEvent]]
    ) -> None:
        rank = asynchronous(60, counts_batches=True)

        loop = followed(rank, marks=lie(rank))

        assert not loop.timeline.has_marks
        assert loop.totals.low_ns[INPUT_WAIT] <= true_idle_ns(rank)[INPUT_WAIT]

    def test_that_are_late_under_waits_in_which_the_driver_saw_no_work_decide_nothing(self) -> None:
        rank = asynchronous(60, counts_batches=True)

        assert not followed(rank, marks=late(rank)).timeline.has_marks

    def test_that_stop_decide_nothing_64_steps_later(self) -> None:
        rank = synchronous(300, wait_ms=40, step_ms=60)
        marks = [device_done(end_ns, step) for step, (_, end_ns) in enumerate(rank.busy[:20], 1)]
        loop = followed(rank, marks=marks)

        assert not loop.timeline.has_marks
        assert loop.totals.low_ns[INPUT_WAIT] <= true_idle_ns(rank)[INPUT_WAIT]
        assert loop.totals.best_ns[INPUT_WAIT] > 0.6 * true_idle_ns(rank)[INPUT_WAIT]

    @pytest.mark.parametrize("lie", [late, never, before_all_work])
    def test_that_are_late_or_missing_leave_the_totals_consistent(
        self, lie: Callable[[Rank], list[RingEvent]]
    ) -> None:
        rank = asynchronous(40, counts_batches=True)

        loop = followed(rank, marks=lie(rank))

        assert loop.totals.best_ns.total() == loop.idle_ns


GRAIN_NS = 100 * NS_PER_MS
STEPPED: dict[str, Callable[[int, BusySample], BusySample]] = {
    "a window that starts before the last one ended": lambda at, one: one._replace(
        start_ns=max(0, one.start_ns - GRAIN_NS // 2) if at % 7 == 0 else one.start_ns
    ),
    "the same window twice": lambda at, one: BusySample(
        at // 2 * GRAIN_NS, (at // 2 + 1) * GRAIN_NS, one.busy_ratio
    ),
    "a clock that goes back for a second": lambda at, one: BusySample(
        max(0, one.start_ns - 10**9 * (at > 50)), max(1, one.end_ns - 10**9 * (at > 50)), 0.5
    ),
    "gaps": lambda at, one: one._replace(
        start_ns=one.start_ns + GRAIN_NS // 3 if at % 5 == 0 else one.start_ns
    ),
    "windows of a nanosecond": lambda at, one: one._replace(
        start_ns=one.end_ns - 1 if at % 5 == 0 else one.start_ns
    ),
}


class TestAClockThatSteps:
    @pytest.mark.parametrize("what", STEPPED)
    @pytest.mark.parametrize("is_synchronous", [True, False])
    def test_leaves_the_totals_consistent(self, what: str, is_synchronous: bool) -> None:
        rank = synchronous(150, wait_ms=40, step_ms=60) if is_synchronous else asynchronous(60)
        stepped = [STEPPED[what](at, one) for at, one in enumerate(rank.windows(GRAIN_NS, 0))]
        loop = FollowedLoop()

        loop.follow(stepped, rank.events)

        assert loop.totals.best_ns.total() == loop.idle_ns > 0


def random_events(draw: random.Random, until_ns: int) -> list[RingEvent]:
    """Phases, steps, amounts and marks at random, some of which contradict the others."""
    at_ns, steps, events = 0, 0, [RingEvent(RingKind.ENTER, 0, TrainingPhase.START_UP, 0)]
    kinds = [*draw.choices([*RingKind], k=3), RingKind.ENTER, RingKind.STEP]
    while at_ns < until_ns:
        at_ns += round(draw.expovariate(1 / (30 * NS_PER_MS)))
        kind, phase = draw.choice(kinds), draw.choice([*TrainingPhase])
        steps += kind is RingKind.STEP
        value = steps
        if kind is RingKind.ENTER:
            value = draw.choice([*TrainingMode]) if draw.random() < 0.1 else TrainingMode.TRAIN
        elif kind in (RingKind.DEVICE_DONE, RingKind.AMOUNT):
            value = draw.choice([steps, draw.getrandbits(30)])
        stamp_ns = max(0, at_ns + draw.choice([0, 0, 0, draw.randint(-(10**9), 10**9)]))
        events.append(RingEvent(kind, stamp_ns, phase, value))
    return events


class TestRandomWindows:
    @pytest.mark.parametrize("seed", range(50))
    def test_leave_the_totals_consistent(self, seed: int) -> None:
        draw = random.Random(seed)
        length_ns, level = draw.choice([20, 167]) * NS_PER_MS, draw.random()
        samples, at_ns = [], 0
        for _ in range(100):
            end_ns = at_ns + draw.choice([1, length_ns, length_ns, length_ns])
            ratio = draw.choice([0.0, 1.0, level, round(draw.random(), 2)])
            samples.append(BusySample(at_ns, end_ns, ratio))
            at_ns = max(0, end_ns + draw.choice([0, 0, 0, 0, length_ns, -length_ns]))
        loop = FollowedLoop()

        loop.follow(samples, random_events(draw, at_ns))

        assert loop.totals.best_ns.total() == loop.idle_ns
