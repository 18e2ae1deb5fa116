"""Tests of the mean power draw between two ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest

from gpumon.core.clock import NS_PER_S
from gpumon.sources.nvml.binding import NvmlLibrary
from gpumon.sources.nvml.power import PowerTrack
from gpumon.sources.nvml.stamp_clock import Entry
from tests.builders.driver import Fake
from tests.builders.driver_faults import POWER
from tests.builders.nvml import Refusals

TICK_NS = NS_PER_S
PRESENT_MW = 310_500  # what the fake's nvmlDeviceGetPowerUsage answers


def tick(track: PowerTrack, entries: Iterable[Entry], now_ns: int) -> float | None:
    """Ingest new entries as a tick does; return milliwatts."""
    track.begin_tick()
    return track.ingest(entries, now_ns)


@pytest.fixture
def track(library: NvmlLibrary, handle: int, refused: Refusals) -> PowerTrack:
    """A track whose ring is known up to 1,000 us."""
    track = PowerTrack(library, handle, refused)
    assert tick(track, [(1_000, 100_000)], 0) == PRESENT_MW, "before anything is known of the ring"
    return track


class TestTheMeanDraw:
    def test_includes_bursts_between_two_ticks(self, fake: Fake) -> None:
        fake.wave(0, period_s=0.1, busy_ratio=0.2)  # no tick's instant shows that
        fake.draw(0, busy_watts=700, idle_watts=100)
        story = fake.story(after_s=13)

        watts = [frame.gpus[0].power_watts for frame in story.frames[-10:]]
        assert watts == pytest.approx([220] * 10, rel=0.01)

    def test_weighs_each_sample_by_its_time(self, track: PowerTrack) -> None:
        # A second of idling, then work: boards measure more often at work.
        entries = [(901_000, 50_000), (951_000, 600_000), (1_001_000, 600_000)]

        assert tick(track, entries, TICK_NS) == pytest.approx(0.9 * 50_000 + 0.1 * 600_000)

    def test_of_a_tick_with_two_drains_is_since_the_last_tick(self, track: PowerTrack) -> None:
        # 700 W, and 100 W in the last tenth of each second: what is slow held the third tick up.
        rings = [
            [(stamp_us, 700_000 if (stamp_us // 1000) % 1000 < 900 else 100_000)
             for stamp_us in range(from_us, until_us + 1, 20_000)]
            for from_us, until_us in
            ((20_000, 1_000_000), (1_020_000, 2_000_000), (2_020_000, 2_900_000),
             (2_920_000, 3_000_000), (3_020_000, 4_000_000))
        ]  # fmt: skip
        tick(track, rings[0], TICK_NS)

        assert tick(track, rings[1], 2 * TICK_NS) == pytest.approx(640_000)
        tick(track, rings[2], 29 * TICK_NS // 10)
        assert track.ingest(rings[3], 3 * TICK_NS) == pytest.approx(640_000)
        assert track.ingest([], 3 * TICK_NS) == pytest.approx(640_000), (
            "nothing new changes nothing"
        )
        assert tick(track, rings[4], 4 * TICK_NS) == pytest.approx(640_000)

    def test_is_unknown_after_an_unusable_first_drain(self, track: PowerTrack) -> None:
        assert tick(track, [(9_000_000, 100_000)], 9 * NS_PER_S) == PRESENT_MW
        assert track.ingest([(9_100_000, 100_000)], 9 * NS_PER_S + TICK_NS // 10) == PRESENT_MW
        assert tick(track, [(10_000_000, 123_000)], 10 * NS_PER_S) == 123_000

    def test_is_unknown_for_the_rest_of_a_tick_with_an_impossible_entry(
        self, track: PowerTrack
    ) -> None:
        assert tick(track, [(21_000, -1)], TICK_NS) is None
        assert track.ingest([(41_000, 123_000)], TICK_NS) == PRESENT_MW

    def test_is_refused_if_impossible(self, track: PowerTrack, refused: Refusals) -> None:
        for number, insane in enumerate((-1, 2**32 - 1, math.nan, math.inf), start=1):
            stamp_us = 1_000 + 20_000 * number
            assert tick(track, [(stamp_us, insane)], TICK_NS * number) is None
            assert refused.count == number

        assert tick(track, [(101_000, 250_000)], 5 * TICK_NS) == 250_000


class TestThePresentDraw:
    @pytest.mark.parametrize(
        ("entries", "after_s"),
        [
            pytest.param([], 4, id="the ring is silent"),
            pytest.param([(9_000_000, 1)], 9, id="it was silent for long"),
            pytest.param([(2_000, 1), (1_500, 1)], 1, id="stamps run back: a clock was set"),
        ],
    )
    def test_is_read_if_the_ring_has_no_recent_entry(
        self, fake: Fake, track: PowerTrack, entries: list[tuple[int, float]], after_s: int
    ) -> None:
        asked = fake.calls(POWER)

        assert tick(track, entries, after_s * NS_PER_S) == PRESENT_MW
        assert fake.calls(POWER) == asked + 1


class TestARing:
    def test_is_used_again_after_its_stamps_restarted(self, track: PowerTrack) -> None:
        tick(track, [(9_000_000, 100_000)], TICK_NS)

        asked_from_us = []
        for second in range(5, 17):
            asked_from_us.append(track.position_us)
            tick(track, [], TICK_NS * second)
        assert 0 in asked_from_us, "all of the ring is asked for now and then"

        track.forget_position()
        tick(track, [(40_000, 1)], 17 * TICK_NS)
        assert tick(track, [(60_000, 123_000)], 18 * TICK_NS) == 123_000
