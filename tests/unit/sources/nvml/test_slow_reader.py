"""Tests of slow fields, which another thread reads: a call that hangs delays no sample."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator

import pytest

from gpumon.core.sample import GpuDetails
from gpumon.sources.nvml.slow_reader import SlowThread
from tests.builders.driver import EVERY_FIELD, DriverStory, Fake, answered
from tests.builders.driver_faults import BOTH, INIT, LIST, RATES
from tests.fakenvml import codes
from tests.waiting import PATIENCE_S, wait_until

FOREVER_US = 60_000_000
HANGS = "has not returned"
ALWAYS = {
    "device", "busy", "xid_errors", "faults", "utilization_ratio", "power_watts", "details",
    "read_at_ns",
}  # fmt: skip


def answers(story: DriverStory, slot: int) -> set[str]:
    """The slow fields that a GPU has an answer for."""
    return answered(story.sample(slot)) - ALWAYS


@pytest.fixture
def story(fake: Fake) -> Iterator[DriverStory]:
    fake.keep_busy(*BOTH)
    others = set(threading.enumerate())
    reported = DriverStory(fake, options=EVERY_FIELD, slow_patience_s=0.5)
    reported.tick(18)
    yield reported
    come_back(reported)
    reported.close()
    wait_until(lambda: others.issuperset(threading.enumerate()))


def hang(story: DriverStory, gpu: int | None = None) -> None:
    """Let the process list hang, and wait until it does."""
    story.fake.delay(LIST, FOREVER_US, gpu=gpu)
    wait_until(lambda: bool(story.tick()) and story.fake.waiting(LIST) == 1)


def come_back(story: DriverStory) -> None:
    story.fake.delay(LIST, 0)
    story.fake.delay(LIST, 0, gpu=0)
    wait_until(lambda: story.fake.waiting(LIST) == 0)


def test_an_error_of_a_slow_reading_is_raised_by_the_next_tick() -> None:
    def fail() -> None:
        raise MemoryError("no room")

    thread = SlowThread()
    with pytest.raises(MemoryError, match="no room"):
        thread.run([fail], PATIENCE_S)
    thread.run([lambda: None], PATIENCE_S)
    thread.close()


class TestACallThatHangs:
    def test_delays_no_sample_and_is_not_repeated(self, story: DriverStory) -> None:
        hang(story)
        threads = threading.active_count()

        assert story.gained_s(*BOTH, ticks=30) == pytest.approx([30.0, 30.0], abs=0.2)
        assert story.fake.waiting(LIST) == 1
        assert threading.active_count() <= threads

    def test_leaves_no_value_older_than_three_periods(self, story: DriverStory) -> None:
        well = [answers(story, slot) for slot in BOTH]
        assert all(set(GpuDetails._fields) - {"read_at_ns"} <= reported for reported in well)
        assert all({"memory_used_bytes", "processes", "activity"} <= reported for reported in well)
        hang(story)

        story.tick(4)
        assert [answers(story, slot) for slot in BOTH] == well
        story.tick(100)

        for slot in BOTH:
            assert answers(story, slot) == set()
            assert story.sample(slot).utilization_ratio == 1.0
            assert story.sample(slot).power_watts is not None
            assert story.gpu(slot).present

    def test_is_reported_until_it_returns(self, story: DriverStory) -> None:
        well = answers(story, 0)
        hang(story, gpu=0)
        story.tick(20)
        assert re.match(rf"GPU 0: .* processes .*{HANGS}", story.message or "")

        come_back(story)
        wait_until(lambda: bool(story.tick()) and answers(story, 0) == well)
        story.tick(2)

        assert story.message is None

    @pytest.mark.measured
    def test_does_not_delay_the_closing_of_the_source(self, story: DriverStory) -> None:
        hang(story)
        began_s = time.monotonic()

        story.close()

        assert time.monotonic() - began_s < 1.0
        assert story.fake.calls("nvmlShutdown") == 0, "a call is inside"
        come_back(story)
        wait_until(lambda: story.fake.calls("nvmlShutdown") == 1)

    def test_delays_the_reopening_of_nvml(self, story: DriverStory) -> None:
        hang(story)
        opened = story.fake.calls(INIT)
        story.fake.reload_driver()
        story.tick(20)
        assert story.fake.calls(INIT) == opened
        assert HANGS in (story.message or "")

        come_back(story)
        time.sleep(0.05)
        assert story.ticks_until_read(BOTH, most=10)


class TestUtilisationThatCannotBeRead:
    @pytest.mark.parametrize("what", ["beyond 100 %", "calls that fail"])
    def test_is_none_after_three_seconds(self, story: DriverStory, what: str) -> None:
        fake = story.fake
        if what == "calls that fail":
            fake.ring(0, [])
            fake.fail(RATES, codes.UNKNOWN, gpu=0)
        else:
            start_us = fake.stamp_us(fake.now_ns())
            fake.ring(0, [(start_us + 500_000 * k, 101) for k in range(1, 60)])
        story.tick(12)

        seen = [frame.gpus[0].utilization_ratio for frame in story.frames[-12:]]
        assert seen[3:] == [None] * 9
        assert story.sample(1).utilization_ratio == 1.0
        assert story.gpu(0).present

    def test_is_valid_for_three_periods(self, fake: Fake) -> None:
        fake.wave(0, period_s=1.0, busy_ratio=1.0)
        story = fake.story(period_s=4.0, after_s=12)
        fake.ring(0, [(fake.stamp_us(fake.now_ns()) + 9_000_000, 101)])
        story.tick(4)

        first, *_, last_but_one, last = (
            frame.gpus[0].utilization_ratio for frame in story.frames[-4:]
        )
        assert (first, last_but_one, last) == (1.0, None, None)
