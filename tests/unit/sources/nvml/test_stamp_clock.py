"""Tests of the stamp clock: the driver's stamps, placed on the monotonic clock."""

from __future__ import annotations

import time

import pytest

from gpumon.core.clock import NS_PER_S
from gpumon.sources.nvml.stamp_clock import StampClock, StampDomain
from tests.builders.time import HandClock

HOUR_NS = 3600 * NS_PER_S
MS = 1_000_000


class Host:
    """A machine whose clocks are set by hand: all ahead of the monotonic one by so much."""

    def __init__(self) -> None:
        self.hand = HandClock()
        self.ahead_ns = {
            time.CLOCK_REALTIME: 1_790_000_000 * NS_PER_S,
            time.CLOCK_MONOTONIC: 0,
            time.CLOCK_BOOTTIME: 700 * NS_PER_S,
        }
        self.stamps = StampClock(self.hand, self.read_clock_ns)

    def read_clock_ns(self, clock_id: int) -> int:
        return self.hand.now_ns + self.ahead_ns[clock_id]

    def stamp_us(self, ahead_ns: int, age_ns: int = 100 * MS) -> int:
        """What a driver stamps whose clock is that far ahead, some time ago."""
        return (self.hand.now_ns - age_ns + ahead_ns) // 1000

    def stamp(self, ahead_ns: int, age_ns: int = 100 * MS) -> None:
        """One tick, a second later, that brings one new stamp."""
        self.hand.pass_seconds(1)
        self.stamps.tick()
        self.stamps.learn([self.stamp_us(ahead_ns, age_ns)], self.hand.now_ns)

    def set_wall_clock(self, by_ns: int) -> int:
        """Someone sets it, within a second; gives by how much that is noticed."""
        self.ahead_ns[time.CLOCK_REALTIME] += by_ns
        self.hand.pass_seconds(1)
        return self.stamps.tick()

    def error_ns(self, ahead_ns: int) -> int:
        """How far off a stamp of this instant is placed."""
        assert self.stamps.offset_ns is not None
        return self.stamp_us(ahead_ns, 0) * 1000 - self.stamps.offset_ns - self.hand.now_ns


@pytest.fixture
def host() -> Host:
    return Host()


class TestTheClockOfTheStamps:
    @pytest.mark.parametrize(
        ("clock_id", "domain"),
        [
            (time.CLOCK_REALTIME, StampDomain.REALTIME),
            (time.CLOCK_MONOTONIC, StampDomain.MONOTONIC),
            (time.CLOCK_BOOTTIME, StampDomain.BOOTTIME),
        ],
    )
    def test_is_the_one_near_the_newest_stamp(
        self, host: Host, clock_id: int, domain: StampDomain
    ) -> None:
        host.stamp(host.ahead_ns[clock_id])

        assert host.stamps.domain is domain
        assert abs(host.error_ns(host.ahead_ns[clock_id])) < 1000

    def test_is_not_guessed_from_old_entries(self, host: Host) -> None:
        realtime_ns = host.ahead_ns[time.CLOCK_REALTIME]

        host.stamp(realtime_ns, age_ns=90 * NS_PER_S)
        assert host.stamps.domain is None
        host.stamp(realtime_ns)

        assert host.stamps.domain is StampDomain.REALTIME

    def test_is_found_despite_an_invalid_stamp(self, host: Host) -> None:
        host.stamps.tick()
        good_us = host.stamp_us(host.ahead_ns[time.CLOCK_BOOTTIME])

        host.stamps.learn([1 << 60, good_us], host.hand.now_ns)

        assert host.stamps.domain is StampDomain.BOOTTIME

    def test_is_corrected_after_a_suspend(self, host: Host) -> None:
        host.ahead_ns[time.CLOCK_BOOTTIME] = 0
        domains = []
        for ahead_ns in (0, HOUR_NS):
            host.ahead_ns[time.CLOCK_BOOTTIME] = ahead_ns
            host.stamp(ahead_ns)
            domains.append(host.stamps.domain)

        assert domains == [StampDomain.MONOTONIC, StampDomain.BOOTTIME]
        assert abs(host.error_ns(HOUR_NS)) < 1000


class TestStampsOfNoClockOfThisHost:
    AHEAD_NS = 123_456 * NS_PER_S

    def test_are_placed_by_the_earliest_arrival(self, host: Host) -> None:
        for age_ms in (160, 90, 20, 130):
            host.stamp(self.AHEAD_NS, age_ns=age_ms * MS)

        assert host.stamps.domain is StampDomain.ESTIMATED
        assert host.error_ns(self.AHEAD_NS) == pytest.approx(20 * MS, abs=1000)

    def test_forget_an_arrival_after_sixty_ticks(self, host: Host) -> None:
        host.stamp(self.AHEAD_NS, age_ns=5 * MS)
        host.stamp(self.AHEAD_NS, age_ns=5 * MS)
        for _ in range(60):
            host.stamp(self.AHEAD_NS, age_ns=80 * MS)

        assert host.error_ns(self.AHEAD_NS) == pytest.approx(80 * MS, abs=1000)

    def test_are_followed_when_they_jump(self, host: Host) -> None:
        for _ in range(3):
            host.stamp(self.AHEAD_NS)
        for _ in range(3):
            host.stamp(self.AHEAD_NS + HOUR_NS)

        assert abs(host.error_ns(self.AHEAD_NS + HOUR_NS)) < 200 * MS


class TestAWallClockThatIsSet:
    @pytest.mark.parametrize("by_ns", [HOUR_NS, -HOUR_NS, 200 * MS])
    def test_is_noticed(self, host: Host, by_ns: int) -> None:
        host.stamp(host.ahead_ns[time.CLOCK_REALTIME])

        assert host.set_wall_clock(by_ns) == by_ns
        assert host.stamps.was_set
        assert abs(host.error_ns(host.ahead_ns[time.CLOCK_REALTIME])) < 1000

    @pytest.mark.parametrize("by_ns", [HOUR_NS, -HOUR_NS])
    def test_keeps_older_stamps_at_their_time(self, host: Host, by_ns: int) -> None:
        realtime_ns = host.ahead_ns[time.CLOCK_REALTIME]
        host.stamp(realtime_ns)
        old_us = host.stamp_us(realtime_ns, age_ns=-300 * MS)
        host.set_wall_clock(by_ns)
        new_us = host.stamp_us(realtime_ns + by_ns)

        straight = host.stamps.straightened([(old_us, 1), (new_us, 2)], host.hand.now_ns)

        assert straight == [(old_us + by_ns // 1000, 1), (new_us, 2)]

    def test_is_not_confused_with_slewing(self, host: Host) -> None:
        host.stamp(host.ahead_ns[time.CLOCK_REALTIME])

        assert host.set_wall_clock(500_000) == 0
        assert abs(host.error_ns(host.ahead_ns[time.CLOCK_REALTIME])) < 1000

    def test_is_forgotten_after_five_minutes(self, host: Host) -> None:
        host.stamp(host.ahead_ns[time.CLOCK_REALTIME])
        host.set_wall_clock(HOUR_NS)

        host.hand.pass_seconds(301)
        host.stamps.tick()

        assert not host.stamps.was_set


def test_an_interrupted_reading_is_repeated() -> None:
    hand = HandClock()
    delays_ns = [0, 3 * MS, 0, 0]

    def interrupted(_clock_id: int) -> int:
        there_ns = hand.now_ns + HOUR_NS
        hand.now_ns += delays_ns.pop(0) if delays_ns else 0
        return there_ns

    stamps = StampClock(hand, interrupted)
    stamps.tick()
    stamps.learn([(hand.now_ns + HOUR_NS) // 1000], hand.now_ns)

    stamps.tick()

    assert stamps.offset_ns == HOUR_NS
