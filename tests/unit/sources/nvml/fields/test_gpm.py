"""Tests of the activity by GPM."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from gpumon.core.clock import NS_PER_S
from gpumon.core.sample import ActivitySample
from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.fields.gpm import SHORTEST_NS, Gpm, GpmTrack
from tests.builders.driver import DriverStory, Fake
from tests.fakenvml import codes
from tests.fakenvml.control import FakeNvml

SAMPLE_GET, METRICS_GET = "nvmlGpmSampleGet", "nvmlGpmMetricsGet"
QUERY, ALLOCATE, FREE = "nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleFree"


@pytest.fixture
def track(fake: Fake, library: NvmlLibrary, handle: int) -> Iterator[GpmTrack]:
    """The first GPU's activity, on a clock that the test moves."""
    fake.stop_clock()
    gpm = Gpm(library, fake.now_ns)
    yield gpm.track(handle)
    gpm.close()


def activities(story: DriverStory, ticks: int) -> list[ActivitySample]:
    """Every activity of the first GPU in so many ticks, each once."""
    found: list[ActivitySample] = []
    for _ in range(ticks):
        story.tick()
        activity = story.sample(0).activity
        if activity is not None and not (found and activity is found[-1]):
            found.append(activity)
    return found


class TestTheActivityOfAGpu:
    def test_is_exact_and_read_every_few_seconds(self, fake: Fake) -> None:
        fake.wave(0, period_s=0.7, busy_ratio=0.6)
        fake.gpm(0, sm=0.5, occupancy=0.25, tensor=0.2, dram=0.1)

        found = activities(fake.story(), 61)

        assert [one.end_ns - one.start_ns for one in found] == [
            seconds * NS_PER_S for seconds in (13, 15, 15, 15)
        ]
        for one in found:
            busy_ratio = fake.busy_ns(0, *one[:2]) / (one.end_ns - one.start_ns)
            assert one[2:] == pytest.approx(
                [busy_ratio * share for share in (1.0, 0.5, 0.25, 0.2, 0.1)]
            )

    def test_covers_all_time_with_two_samples_a_gpu(self, fake: Fake) -> None:
        found = activities(fake.story(period_s=0.3), 600)

        assert all(late.start_ns == early.end_ns for early, late in pairwise(found))
        assert found[-1].end_ns - found[0].start_ns >= 150 * NS_PER_S
        assert fake.calls(ALLOCATE) == fake.gpm_samples_held == 2 * 2
        assert fake.calls(SAMPLE_GET) <= 2 * 14


class TestABoardThatHasNoGpm:
    def test_is_asked_once(self, fake: Fake) -> None:
        fake.gpm(0, supported=False)
        story = fake.story()

        assert activities(story, 20) == []

        assert (fake.calls(QUERY), fake.calls(ALLOCATE)) == (2, 2)
        assert story.message is None
        assert story.sample(1).activity is not None


class TestAValueOfGpm:
    def test_slightly_above_100_percent_is_100_percent(self, fake: Fake) -> None:
        fake.wave(0, period_s=1.0, busy_ratio=1.0)
        fake.gpm(0, sm=1.004)

        assert {one.sm_active_ratio for one in activities(fake.story(), 32)} == {1.0}

    @pytest.mark.parametrize("share", [1.5, -0.5, math.nan, math.inf])
    def test_that_is_impossible_is_refused_and_counted(self, fake: Fake, share: float) -> None:
        fake.wave(0, period_s=0.1, busy_ratio=0.8)
        fake.gpm(0, sm=share)
        story = fake.story()

        *_, last = activities(story, 32)

        assert last.sm_active_ratio is None
        assert last.graphics_ratio == pytest.approx(0.8)
        assert sum(frame.rejected for frame in story.frames) == 2


class TestTwoSamples:
    def test_are_at_least_100_ms_apart(self, fake: Fake, track: GpmTrack) -> None:
        track.read()
        first_ns = fake.now_ns()
        fake.advance(0.05)

        assert track.read() is None
        assert fake.calls(SAMPLE_GET) == 1

        fake.advance(0.05)
        activity = track.read()

        assert activity is not None
        assert activity[:2] == (first_ns, first_ns + SHORTEST_NS)

    def test_do_not_span_a_stop_of_the_sampler(self, fake: Fake, track: GpmTrack) -> None:
        track.read()
        woken_ns = fake.advance(60.0)

        assert track.read(since_ns=woken_ns) is None

        fake.advance(0.5)
        activity = track.read(since_ns=woken_ns)
        assert activity is not None
        assert activity.start_ns == woken_ns


class TestASampleThatFails:
    @pytest.mark.parametrize("code", [codes.UNKNOWN, codes.INVALID_ARGUMENT])
    def test_restarts_the_window(self, fake: Fake, track: GpmTrack, code: int) -> None:
        track.read()
        reported = []
        for answers in (code, 0, 0):
            fake.advance(1.0)
            fake.fail(SAMPLE_GET, answers)
            reported.append(track.read())

        failed, first_again, activity = reported
        assert (failed, first_again) == (None, None)
        assert activity is not None
        assert activity.start_ns == fake.now_ns() - NS_PER_S


class TestTheSamples:
    @pytest.mark.parametrize(
        ("begin", "lasts_s", "held"),
        [
            pytest.param(FakeNvml.lose, 1, 4, id="lost for a moment"),
            pytest.param(FakeNvml.lose, 6, 2, id="lost, and then its samples are freed"),
            pytest.param(FakeNvml.reset, 0, 4, id="reset"),
        ],
    )
    def test_from_before_a_fault_are_not_compared_with_later_ones(
        self, fake: Fake, begin: Callable[..., None], lasts_s: int, held: int
    ) -> None:
        story = fake.story()
        assert activities(story, 14)

        begin(fake, 0)
        began_ns = fake.now_ns()
        story.tick(lasts_s)
        assert fake.gpm_samples_held == held
        fake.find(0)
        over_ns = fake.now_ns()
        found = activities(story, 60)

        assert found[-1].start_ns >= over_ns
        assert all(one.start_ns >= over_ns or one.end_ns <= began_ns for one in found)
        assert fake.gpm_samples_held == 4

    def test_are_freed_once_before_nvml_is_opened_again(self, fake: Fake) -> None:
        story = fake.story()
        for _ in range(3):
            story.tick(6)
            fake.fail_everything(codes.UNKNOWN)
            story.tick()
            fake.fail_everything(0)
            fake.reload_driver()
            story.tick(12)

        # A driver that answers nothing takes nothing back either; what it has
        # done with its samples meanwhile no one knows, so they are not touched again.
        assert story.message is None
        assert fake.calls(ALLOCATE) == 4 * 4
        assert fake.calls(FREE) == 3 * 4
