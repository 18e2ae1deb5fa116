"""Specification of idle bounds: which loops have exact figures, and which a range.

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
    WAIT,
    FollowedLoop,
    asynchronous,
    device_done,
    followed,
    synchronous,
    true_idle_ns,
)

INPUT_WAIT, CALLBACKS = IdleCause.INPUT_WAIT, IdleCause.CALLBACKS
ROUNDING = 0.005
"""So much of the idle time may be out by whole percents of a window."""


def last_end_ns(rank: Rank) -> int:
    return rank.windows(167 * NS_PER_MS, 0)[-1].end_ns


def follow_from(loop: FollowedLoop, from_ns: int, rank: Rank, windows: int | None = None) -> int:
    """Continue ``loop`` with the windows of another one; return when they end."""
    later = [
        BusySample(from_ns + one.start_ns, from_ns + one.end_ns, one.busy_ratio)
        for one in rank.windows(167 * NS_PER_MS, 0)[:windows]
    ]
    loop.follow(later, [event._replace(at_ns=from_ns + event.at_ns) for event in rank.events])
    return later[-1].end_ns


class TestASynchronousLoop:
    @pytest.mark.parametrize(
        ("wait_ms", "step_ms", "grain_ms"),
        [
            (40, 60, 20),
            (10, 90, 167),
            (90, 10, 167),
            (30, 70, 1000),
        ],
    )
    def test_has_its_shares_as_certain_figures(
        self, wait_ms: float, step_ms: float, grain_ms: float
    ) -> None:
        rank = synchronous(round(40_000 / (wait_ms + step_ms)), wait_ms=wait_ms, step_ms=step_ms)

        loop = followed(rank, grain_ms)

        low_ns, best_ns, high_ns = loop.totals
        assert loop.bounds.is_exact
        assert +low_ns == +best_ns == +loop.shared_ns
        assert +high_ns == +loop.shared_ns

    def test_has_a_range_before_enough_windows(self) -> None:
        rank = synchronous(300, wait_ms=40, step_ms=60)
        loop = FollowedLoop()
        loop.follow(rank.windows(167 * NS_PER_MS, 0)[:5], rank.events)

        low_ns, best_ns, _ = loop.totals
        assert low_ns[INPUT_WAIT] < best_ns[INPUT_WAIT]


class TestAnAsynchronousLoop:
    @pytest.mark.parametrize("grain_ms", [20, 167, 1000])
    def test_has_the_truth_between_its_bounds(self, grain_ms: float) -> None:
        rank = asynchronous(60)

        loop = followed(rank, grain_ms)

        low_ns, _, high_ns = loop.totals
        slack_ns = ROUNDING * loop.idle_ns
        for cause, true_ns in true_idle_ns(rank, grain_ms).items():
            assert low_ns[cause] - slack_ns <= true_ns <= high_ns[cause] + slack_ns, cause
        assert not loop.bounds.is_exact

    def test_after_a_synchronous_one_leaves_a_range_again(self) -> None:
        loop = followed(before := synchronous(300, wait_ms=40, step_ms=60))
        was_exact = loop.bounds.is_exact
        follow_from(loop, last_end_ns(before), asynchronous(60))

        low_ns, best_ns, _ = loop.totals
        assert was_exact
        assert not loop.bounds.is_exact
        assert low_ns[INPUT_WAIT] < best_ns[INPUT_WAIT]


class TestDeviceMarks:
    def test_decide_where_they_exist(self) -> None:
        rank = asynchronous(40, counts_batches=True)
        marks = [device_done(end_ns, step) for step, (_, end_ns) in enumerate(rank.busy, 1)]

        loop = followed(rank, marks=marks)

        low_ns, best_ns, high_ns = loop.totals
        true_ns = true_idle_ns(rank)
        assert +low_ns == +best_ns == +high_ns
        for cause in (INPUT_WAIT, CALLBACKS):
            assert best_ns[cause] == pytest.approx(true_ns[cause], abs=ROUNDING * loop.idle_ns)


class TestALoopThatTagsOnlyItsWaits:
    @staticmethod
    def loop() -> Rank:
        rank = Rank(1, 0.05)
        for _ in range(400):
            with rank.phase(WAIT):
                rank.work(40)
            rank.launch(60)
            rank.synchronise()
        return rank

    def test_is_no_longer_believed_to_once_its_waits_overlap_with_work(self) -> None:
        loop = followed(first := self.loop())
        end_ns = follow_from(loop, last_end_ns(first), asynchronous(120))
        low_before_ns, best_before_ns, _ = loop.totals

        follow_from(loop, end_ns, self.loop(), windows=5)

        low_ns, best_ns, _ = loop.totals
        assert (low_ns - low_before_ns)[INPUT_WAIT] < (best_ns - best_before_ns)[INPUT_WAIT]

    def test_claims_no_more_than_the_truth_as_soon_as_its_waits_overlap(self) -> None:
        loop, overlaps = followed(first := self.loop()), asynchronous(1)
        low_before_ns = loop.totals.low_ns

        follow_from(loop, last_end_ns(first), overlaps)

        claimed_ns = loop.totals.low_ns - low_before_ns
        assert claimed_ns[INPUT_WAIT] <= true_idle_ns(overlaps)[INPUT_WAIT]

    def test_idles_in_its_waits_alone_once_they_are_as_long_as_its_idle_time(self) -> None:
        loop = followed(rank := self.loop())

        low_ns, best_ns, high_ns = loop.totals
        assert low_ns[INPUT_WAIT] > 0.9 * loop.idle_ns
        assert best_ns[INPUT_WAIT] > loop.shared_ns[INPUT_WAIT]
        assert low_ns[INPUT_WAIT] <= true_idle_ns(rank)[INPUT_WAIT] <= 1.01 * high_ns[INPUT_WAIT]


class TestALoopThatBecomesSynchronous:
    @pytest.mark.parametrize("busy_windows", [1, 3, 6])
    def test_is_exact_soon_after_windows_that_were_busy_throughout(self, busy_windows: int) -> None:
        rank = synchronous(600, wait_ms=40, step_ms=60)
        windows = rank.windows(167 * NS_PER_MS, 0)
        busy = [window._replace(busy_ratio=1.0) for window in windows[4 : 4 + busy_windows]]
        loop = FollowedLoop()
        loop.follow([*windows[:4], *busy, *windows[4 + busy_windows : 40]], rank.events)

        assert loop.bounds.is_exact


def early(rank: Rank) -> list[RingEvent]:
    return [device_done(start_ns, step) for step, (start_ns, _) in enumerate(rank.busy, 1)]


def of_steps_to_come(rank: Rank) -> list[RingEvent]:
    return [device_done(end_ns, 1 << 60) for _, end_ns in rank.busy]


class TestFalseDeviceMarks:
    @pytest.mark.parametrize("lie", [early, of_steps_to_come])
    def test_decide_nothing_if_the_driver_contradicts_them(
        self, lie: Callable[[Rank], list[RingEvent]]
    ) -> None:
        rank = asynchronous(60, counts_batches=True)

        loop = followed(rank, marks=lie(rank))

        assert not loop.timeline.has_marks
        assert loop.totals.low_ns[INPUT_WAIT] <= true_idle_ns(rank)[INPUT_WAIT]

    def test_decide_nothing_64_steps_after_they_stop(self) -> None:
        rank = synchronous(300, wait_ms=40, step_ms=60)
        marks = [device_done(end_ns, step) for step, (_, end_ns) in enumerate(rank.busy[:20], 1)]
        loop = followed(rank, marks=marks)

        assert not loop.timeline.has_marks
        assert loop.totals.low_ns[INPUT_WAIT] <= true_idle_ns(rank)[INPUT_WAIT]
        assert loop.totals.best_ns[INPUT_WAIT] > 0.6 * true_idle_ns(rank)[INPUT_WAIT]


def random_events(draw: random.Random, until_ns: int) -> list[RingEvent]:
    """Phases, steps, amounts and marks at random; some contradict the others."""
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
