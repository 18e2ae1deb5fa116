"""Stack samples come at random times: each half second of idle time, and each second otherwise."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from statistics import mean

import pytest

from gpumon.core.clock import NS_PER_S
from gpumon.core.sample import BusySample
from gpumon.core.stacks.sample_times import SampleTimes

TICK_NS = NS_PER_S // 20


def taken(times: SampleTimes, idle: list[bool]) -> dict[int, int]:
    """The ticks of 50 ms at which a sample was due, and the time that each stands for."""
    due = {
        tick: times.due_for_ns((tick + 1) * TICK_NS, is_idle=is_idle)
        for tick, is_idle in enumerate(idle)
    }
    return {tick: for_ns for tick, for_ns in due.items() if for_ns is not None}


def windows_of(ratio: float, count: int) -> tuple[BusySample, ...]:
    return tuple(BusySample(at * TICK_NS, (at + 1) * TICK_NS, ratio) for at in range(count))


@pytest.mark.parametrize(("is_idle", "every_s"), [(True, 0.5), (False, 1.0)])
def test_they_stand_for_the_time_between_them(is_idle: bool, every_s: float) -> None:
    due = taken(SampleTimes(Random(1)), [is_idle] * 20_000)
    apart_s = [(later - sooner) / 20 for sooner, later in pairwise(due)]

    assert next(iter(due)) == 0  # at once
    assert mean(apart_s) == pytest.approx(every_s, rel=0.02)
    assert min(apart_s) < 0.8 * every_s
    assert max(apart_s) > 1.2 * every_s
    assert set(due.values()) == {round(every_s * NS_PER_S)}


def test_what_they_stand_for_adds_up_whatever_the_gpu_does() -> None:
    random = Random(2)
    idle = [random.random() < 0.3 for _ in range(40_000)]
    due = taken(SampleTimes(Random(1)), idle)

    stood_for_s = sum(for_ns for tick, for_ns in due.items() if idle[tick]) / NS_PER_S
    assert stood_for_s == pytest.approx(sum(idle) / 20, rel=0.05)


def test_pauses_too_short_for_a_window_are_met_twice_as_often() -> None:
    times = SampleTimes(Random(1))
    times.ingest(windows_of(0.6, 20))

    assert 110 <= len(taken(times, [False] * 1_200)) <= 130  # of a minute


def test_a_read_that_took_long_is_not_followed_by_many() -> None:
    times = SampleTimes(Random(1))
    times.due_for_ns(0, is_idle=True)
    times.due_for_ns(60 * NS_PER_S, is_idle=True)

    due = [times.due_for_ns(60 * NS_PER_S + tick, is_idle=True) for tick in range(10)]
    assert sum(for_ns is not None for for_ns in due) <= 1
