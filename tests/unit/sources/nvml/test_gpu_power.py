"""Specification of power: the mean of what the driver measured, wherever it keeps that."""

from __future__ import annotations

import math

import pytest

from gpumon.core.clock import NS_PER_S
from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.gpu import PowerTrack
from tests.builders_driver import Fake
from tests.builders_faults import DRAIN, POWER
from tests.builders_nvml import Refusals
from tests.fakenvml import codes

TICK_NS = NS_PER_S
PRESENT_MW = 310_500  # what the fake's nvmlDeviceGetPowerUsage answers


@pytest.fixture
def track(library: NvmlLibrary, handle: int, refused: Refusals) -> PowerTrack:
    """A track whose ring is known up to 1,000 us."""
    track = PowerTrack(library, handle, refused)
    assert track.take([(1_000, 100_000)], 0) == PRESENT_MW, "before anything is known of the ring"
    return track


class TestTheMean:
    def test_is_of_all_that_was_drawn_between_two_ticks(self, fake: Fake) -> None:
        fake.wave(0, period_s=0.1, busy_ratio=0.2)  # no tick's instant tells that
        fake.draw(0, busy_watts=700, idle_watts=100)
        story = fake.tell(after_s=13)

        watts = [frame.gpus[0].power_watts for frame in story.frames[-10:]]
        assert watts == pytest.approx([220] * 10, rel=0.01)

    def test_weighs_each_sample_by_the_time_it_speaks_for(self, track: PowerTrack) -> None:
        # A second of idling, then work: boards measure more often at work.
        entries = [(901_000, 50_000), (951_000, 600_000), (1_001_000, 600_000)]

        assert track.take(entries, TICK_NS) == pytest.approx(0.9 * 50_000 + 0.1 * 600_000)

    def test_stays_where_nothing_is_new_for_a_moment(self, track: PowerTrack) -> None:
        track.take([(21_000, 200_000)], TICK_NS // 10)

        assert track.take([], TICK_NS // 5) == 200_000

    def test_is_refused_where_no_board_can_draw_it(
        self, track: PowerTrack, refused: Refusals
    ) -> None:
        for number, insane in enumerate((-1, 2**32 - 1, math.nan, math.inf), start=1):
            stamp_us = 1_000 + 20_000 * number
            assert track.take([(stamp_us, insane)], TICK_NS * number) is None
            assert refused.count == number

        assert track.take([(101_000, 250_000)], 5 * TICK_NS) == 250_000


class TestThePresentDraw:
    @pytest.mark.parametrize(
        ("entries", "after_s"),
        [
            pytest.param([], 4, id="the ring is silent"),
            pytest.param([(9_000_000, 1)], 9, id="it was silent for long"),
            pytest.param([(2_000, 1), (1_500, 1)], 1, id="stamps run back: a clock was set"),
        ],
    )
    def test_is_asked_where_the_ring_tells_nothing_of_now(
        self, fake: Fake, track: PowerTrack, entries: list[tuple[int, float]], after_s: int
    ) -> None:
        asked = fake.calls(POWER)

        assert track.take(entries, after_s * NS_PER_S) == PRESENT_MW
        assert fake.calls(POWER) == asked + 1

    def test_is_asked_where_the_driver_keeps_no_samples(self, fake: Fake) -> None:
        fake.fail(DRAIN, codes.NOT_SUPPORTED)
        story = fake.tell(after_s=5)
        fake.forget_calls()
        story.tick(5)

        assert story.sample(0).power_watts == 310.5
        assert fake.calls(POWER) == 5 * len(story.uuids)
        assert fake.calls(DRAIN) == 0


class TestARing:
    def test_whose_stamps_began_anew_is_found_again(self, track: PowerTrack) -> None:
        track.take([(9_000_000, 100_000)], TICK_NS)

        asked_from_us = []
        for second in range(5, 17):
            asked_from_us.append(track.position_us)
            track.take([], TICK_NS * second)
        assert 0 in asked_from_us, "all of the ring is asked for now and then"

        track.forget_position()
        track.take([(40_000, 1)], 17 * TICK_NS)
        assert track.take([(60_000, 123_000)], 18 * TICK_NS) == 123_000

    @pytest.mark.parametrize("code", [codes.UNKNOWN, codes.GPU_IS_LOST])
    def test_that_fails_alone_leaves_the_gpu_where_it_is(self, fake: Fake, code: int) -> None:
        story = fake.tell(after_s=3)
        fake.cut(0, 1)  # then only its power is asked
        story.tick(7)
        fake.fail(DRAIN, code, gpu=0)
        story.tick(3)

        assert story.sample(0).error is None
        assert story.sample(0).power_watts == 310.5
