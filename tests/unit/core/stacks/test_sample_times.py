"""Stack samples come often while the GPU is idle, and seldom while it works."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from gpumon.core.clock import NS_PER_S
from gpumon.core.sample import BusySample
from gpumon.core.stacks.sample_join import SampleKind
from gpumon.core.stacks.sample_times import SampleTimes

TICK_NS = NS_PER_S // 10


def taken(times: SampleTimes, idle: list[bool]) -> list[int]:
    """The ticks of a tenth of a second at which a sample was due."""
    return [
        tick
        for tick, is_idle in enumerate(idle)
        if times.is_due((tick + 1) * TICK_NS, is_idle=is_idle)
    ]


def windows_of(ratio: float, count: int) -> tuple[BusySample, ...]:
    return tuple(BusySample(at * TICK_NS, (at + 1) * TICK_NS, ratio) for at in range(count))


class TestWhileTheGpuIsIdle:
    def test_one_comes_each_half_second_of_idle_time(self) -> None:
        assert taken(SampleTimes(Random(1)), [True] * 16) == [0, 5, 10, 15]

    def test_short_pauses_add_up(self) -> None:
        pattern = [True, True, True, False, False] * 6
        due = taken(SampleTimes(Random(1)), pattern)

        assert [at for at in due if pattern[at]] == [0, 7, 16, 25]


class TestWhileTheGpuWorks:
    def test_one_comes_every_five_seconds(self) -> None:
        assert taken(SampleTimes(Random(1)), [False] * 120) == [0, 50, 100]


class TestPausesTooShortToWaitFor:
    def test_are_sampled_at_random_times(self) -> None:
        times = SampleTimes(Random(1))
        times.ingest(windows_of(0.6, 20))

        assert times.is_random
        due = taken(times, [False] * 600)
        assert 100 <= len(due) <= 140
        assert len({after - before for before, after in pairwise(due)}) > 3

    def test_are_known_by_samples_that_come_too_late(self) -> None:
        times = SampleTimes(Random(1))
        times.ingest(windows_of(0.0, 20))
        for _ in range(8):
            times.note(SampleKind.MIXED)

        assert times.is_random

    def test_are_not_assumed_of_a_gpu_with_long_ones(self) -> None:
        times = SampleTimes(Random(1))
        times.ingest((*windows_of(1.0, 20), BusySample(20 * TICK_NS, 21 * TICK_NS, 0.0)))

        assert not times.is_random
