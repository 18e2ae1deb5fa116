"""Each fault of ``builders.driver_faults`` on the real source and monitor, for both drivers.

The test moves the clock. ``DriverStory`` checks its laws at each tick: sums add up, counters never
fall, no time is invented. Two GPUs are always busy, so neither may ever be idle.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from gpumon.errors import SourceUnavailableError
from tests.builders.driver import DriverStory
from tests.builders.driver_faults import (
    BOTH,
    BY_INDEX,
    BY_UUID,
    DRAIN,
    FAULTS,
    FIRST,
    INIT,
    POWER,
    SECOND,
    DriverFault,
)
from tests.fakenvml import codes
from tests.fakenvml.control import FakeNvml

Begin = Callable[[FakeNvml], DriverStory]
SHUT = [fault for fault in FAULTS if fault.refuses]
ANY_FAULT = pytest.mark.parametrize("fault", FAULTS, ids=str)


def drains_power(fake: FakeNvml) -> bool:
    """Whether the power of its boards is read from a ring."""
    return bool(fake.gpu(FIRST).compute_capability <= 80)


def assert_back_within(story: DriverStory, seconds: int) -> None:
    """Verify that both GPUs are observed again, and all the time from then on."""
    assert story.ticks_until_read(BOTH, most=seconds), story.message
    assert story.gained_s(*BOTH, ticks=10) == pytest.approx([10, 10], abs=0.5)
    assert story.message is None
    assert story.uuids == [story.uuid(slot) for slot in BOTH]
    story.tick(60)
    story.fake.forget_calls()
    story.tick(5)
    assert story.fake.calls(DRAIN) == 2 * 5 * (1 + drains_power(story.fake))
    assert story.fake.calls(POWER) == 2 * 5 * (not drains_power(story.fake))
    for slot in BOTH:
        assert story.sample(slot).power_watts is not None
        assert story.sample(slot).energy_joules is not None


def assert_reported(story: DriverStory, fault: DriverFault) -> None:
    if fault.message:
        assert re.search(fault.message, story.message or "")
    else:
        assert story.message is None


class TestAFault:
    @ANY_FAULT
    def test_leaves_its_gpus_unobserved_and_is_reported_until_it_ends(
        self, story: DriverStory, fault: DriverFault
    ) -> None:
        fake = story.fake
        before_joules = [story.sample(slot).energy_joules or 0.0 for slot in BOTH]
        fake.forget_calls()
        fault.begin(fake)
        story.tick(12)

        gained_s = story.gained_s(*BOTH, ticks=30)

        for slot in BOTH:
            if slot in fault.blind:
                assert gained_s[slot] == 0
            else:
                costs_s = 2.5 if fault.reopens else 0.5
                assert story.observed_s(slot) >= story.seconds_passed - costs_s
        assert_reported(story, fault)
        assert bool(fake.calls(INIT)) is fault.reopens
        assert fake.calls(INIT) <= (12 + 30) / 4 + 2  # soon at first, then every four seconds
        fault.end(fake)
        assert_back_within(story, 6)
        for slot, joules in enumerate(before_joules):
            assert (story.sample(slot).energy_joules or 0.0) > joules
            if slot in fault.blind and fault.reopens:
                # Not even of what its ring may still hold: that could be of any time.
                assert story.observed_s(slot) <= story.seconds_passed - 30

    @pytest.mark.parametrize("fault", SHUT, ids=str)
    def test_of_the_driver_is_an_error_of_a_new_source_until_it_ends(
        self, two_busy: FakeNvml, begin: Begin, fault: DriverFault
    ) -> None:
        fault.begin(two_busy)
        with pytest.raises(SourceUnavailableError, match=fault.refuses):
            begin(two_busy)

        fault.end(two_busy)

        assert_back_within(begin(two_busy), 1)


class TestADriver:
    @pytest.mark.parametrize("code_by_uuid", [codes.SUCCESS, codes.GPU_IS_LOST])
    def test_that_was_reloaded_gets_no_call_with_an_old_handle(
        self, story: DriverStory, code_by_uuid: int
    ) -> None:
        fake = story.fake
        fake.lose(SECOND)
        fake.fail(BY_UUID, code_by_uuid)
        fake.reload_driver()
        story.tick(10)
        fake.forget_calls()

        gained_s = story.gained_s(*BOTH, ticks=10)

        assert fake.calls(DRAIN) == 10 * (1 + drains_power(fake))  # of the other
        assert re.match(r"GPU 1: .*\(NVML 15\)", story.message or "")
        assert gained_s[FIRST] > 5
        assert gained_s[SECOND] == 0
        fake.fail(BY_UUID, codes.SUCCESS)
        fake.find(SECOND)
        assert_back_within(story, 8)


class TestAGpu:
    def test_that_was_reset_may_restart_its_stamps(self, story: DriverStory) -> None:
        fake = story.fake
        fake.lose(FIRST, codes.RESET_REQUIRED)
        story.tick(3)
        fake.reset(FIRST)
        fake.find(FIRST)
        fake.ring(FIRST, [(1_000_000 + 166_667 * k, 100) for k in range(8)])
        fake.gpu(FIRST).rates_percent = 100

        assert story.gained_s(FIRST, ticks=30)[0] > 20

    def test_without_ring_entries_stays_unobserved_for_the_time_it_was_lost(
        self, story: DriverStory
    ) -> None:
        fake = story.fake
        fake.ring(FIRST, [])
        fake.gpu(FIRST).rates_percent = 100
        story.tick(3)
        fake.lose(FIRST)
        story.tick(3)
        lost_ns = fake.now_ns()

        fake.find(FIRST)
        gained_s = story.gained_s(FIRST, ticks=3)

        assert gained_s == pytest.approx([3.0], abs=0.2)
        assert story.busy(FIRST, since_ns=lost_ns)[0].start_ns == lost_ns

    @pytest.mark.parametrize("by_s", [3600, -3600])
    def test_is_still_observed_after_its_stamps_jump(self, story: DriverStory, by_s: int) -> None:
        story.fake.stamps_jump(by_s * 1_000_000)

        assert min(story.gained_s(*BOTH, ticks=8)) >= 6

    def test_of_another_container_is_no_fault(self, two_busy: FakeNvml, begin: Begin) -> None:
        two_busy.fail(BY_INDEX, codes.NO_PERMISSION, gpu=FIRST)
        story = begin(two_busy)
        story.tick(20)

        assert story.message is None
        assert story.uuids == [two_busy.uuid(SECOND)]
        assert story.observed_s(SECOND) == pytest.approx(20, abs=0.5)


class TestACallThatFails:
    def test_does_not_hide_that_a_gpu_is_lost(self, story: DriverStory) -> None:
        for function in (DRAIN, POWER):
            story.fake.fail(function, codes.NOT_SUPPORTED)
        story.tick(5)
        story.fake.lose(FIRST)
        story.tick(2)

        assert story.sample(FIRST).error is not None
        assert story.sample(SECOND).error is None
        for slot in BOTH:
            story.fake.lose(slot, codes.UNKNOWN)
        story.tick(2)
        assert isinstance(story.trouble, SourceUnavailableError)
