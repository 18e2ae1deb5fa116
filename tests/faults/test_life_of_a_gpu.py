"""What becomes of the figures while a GPU is reset, lost, found, taken out and put back.

Each story is told to the real source and the real monitor on both generations
of the driver, by a clock that the test moves; the laws that ``DriverStory``
looks at hold at each of its ticks: sums close, counters rise, no time is made
up. Two busy GPUs: whatever happens, neither has ever been idle.
"""

from __future__ import annotations

import pytest

from gpumon.errors import SourceUnavailableError
from tests.builders_driver import DriverStory
from tests.fakenvml.control import (
    NO_PERMISSION,
    NOT_SUPPORTED,
    RESET_REQUIRED,
    TIMEOUT,
    UNKNOWN,
    FakeNvml,
)
from tests.faults.two_busy_gpus import FIRST, SECOND, assert_back_within, observed_s

INIT, DRAIN, RATES = "nvmlInitWithFlags", "nvmlDeviceGetSamples", "nvmlDeviceGetUtilizationRates"
POWER = "nvmlDeviceGetPowerUsage"


class TestAGpuThatIsReset:
    def test_says_what_to_do_and_goes_on_where_it_was(self, story: DriverStory) -> None:
        uuid = story.fake.uuid(FIRST)
        story.fake.lose(FIRST, RESET_REQUIRED)
        story.tick(30)
        assert "--gpu-reset" in (story.message or "")
        before_s = observed_s(story, FIRST)

        story.fake.reset(FIRST)
        story.fake.find(FIRST)

        assert_back_within(story, 6)
        assert observed_s(story, FIRST) >= before_s
        assert story.gpu(uuid).device.index == FIRST
        assert observed_s(story, SECOND) == pytest.approx(story.seconds_passed, abs=0.5)

    def test_counts_its_energy_on(self, story: DriverStory) -> None:
        uuid = story.fake.uuid(FIRST)
        before_joules = story.sample(uuid).energy_joules
        story.fake.reset(FIRST)

        story.tick(30)  # that it never falls is among the laws

        after_joules = story.sample(uuid).energy_joules
        assert before_joules is not None
        assert after_joules is not None
        assert after_joules > before_joules

    def test_may_begin_its_stamps_anew(self, story: DriverStory) -> None:
        fake = story.fake
        fake.lose(FIRST, RESET_REQUIRED)
        story.tick(3)
        fake.reset(FIRST)
        fake.find(FIRST)
        fake.ring(FIRST, [(1_000_000 + 166_667 * k, 100) for k in range(8)])
        fake.gpu(FIRST).rates_percent = 100
        before_s = observed_s(story, FIRST)

        story.tick(30)

        assert observed_s(story, FIRST) - before_s > 20


class TestAGpuThatIsLost:
    def test_costs_the_others_nothing_and_is_found_again(self, story: DriverStory) -> None:
        story.fake.lose(FIRST)
        story.tick(120)
        assert "Xid 79" in (story.message or "")
        assert observed_s(story, SECOND) == pytest.approx(story.seconds_passed, abs=0.5)

        story.fake.find(FIRST)

        assert_back_within(story, 6)

    def test_with_an_unknown_error_does_not_blame_the_container(self, story: DriverStory) -> None:
        story.fake.lose(FIRST, UNKNOWN)
        story.tick(20)

        assert "container" not in (story.message or "")
        assert "dmesg" in (story.message or "")
        assert observed_s(story, SECOND) == pytest.approx(story.seconds_passed, abs=0.5)

    def test_while_another_call_takes_long_is_as_lost(self, story: DriverStory) -> None:
        story.fake.delay("nvmlDeviceGetEnforcedPowerLimit", 30_000)
        story.fake.lose(FIRST)

        story.tick(6)

        assert story.sample(story.fake.uuid(FIRST)).error is not None
        assert story.sample(story.fake.uuid(SECOND)).error is None


class TestAllGpusThatAreLost:
    def test_are_looked_for_by_a_fresh_nvml_and_found(self, story: DriverStory) -> None:
        for slot in (FIRST, SECOND):
            story.fake.lose(slot)
        story.tick(5)
        assert "GPU 0: the GPU is lost" in (story.message or "")
        story.fake.forget_calls()

        story.tick(10)

        assert story.fake.calls(INIT) >= 1
        assert "every GPU is lost" in (story.message or "")
        for slot in (FIRST, SECOND):
            story.fake.find(slot)
        assert_back_within(story, 6)

    def test_with_a_code_of_no_meaning_are_looked_for_too(self, story: DriverStory) -> None:
        for slot in (FIRST, SECOND):
            story.fake.lose(slot, TIMEOUT)
        story.fake.forget_calls()

        story.tick(15)

        assert story.fake.calls(INIT) >= 1
        for slot in (FIRST, SECOND):
            story.fake.find(slot)
        assert_back_within(story, 6)


class TestACallThatIsNotSupportedForAWhile:
    @pytest.mark.parametrize("functions", [(DRAIN,), (DRAIN, RATES), (DRAIN, RATES, POWER)])
    def test_does_not_silence_a_gpu_for_good(
        self, story: DriverStory, functions: tuple[str, ...]
    ) -> None:
        for function in functions:
            story.fake.fail(function, NOT_SUPPORTED)
        story.tick(10)
        for function in functions:
            story.fake.fail(function, 0)

        assert_back_within(story, 7)
        story.tick(60)
        story.fake.forget_calls()
        story.tick(5)
        assert story.fake.calls(DRAIN) == 2 * 2 * 5  # utilisation and power
        assert story.fake.calls(POWER) == 0

    @pytest.mark.parametrize("code", [2, TIMEOUT, UNKNOWN, 77])
    def test_leaves_a_gpu_that_tells_otherwise_alone(self, story: DriverStory, code: int) -> None:
        story.fake.fail(DRAIN, code)
        story.fake.forget_calls()
        story.tick(30)

        assert story.message is None
        assert story.fake.calls(INIT) == 0
        for slot in (FIRST, SECOND):
            assert observed_s(story, slot) == pytest.approx(story.seconds_passed, abs=1.5)
        assert story.fake.calls(DRAIN) < 4 * 12  # at each look at the slow fields, not at each tick
        story.fake.fail(DRAIN, 0)
        assert_back_within(story, 7)

    def test_notices_a_lost_gpu_by_what_is_left(self, story: DriverStory) -> None:
        for function in (DRAIN, POWER):
            story.fake.fail(function, NOT_SUPPORTED)
        story.tick(5)
        story.fake.lose(FIRST)
        story.tick(2)

        assert story.sample(story.fake.uuid(FIRST)).error is not None
        assert story.sample(story.fake.uuid(SECOND)).error is None
        story.fake.lose(SECOND, UNKNOWN)
        story.fake.lose(FIRST, UNKNOWN)
        story.tick(2)
        assert isinstance(story.trouble, SourceUnavailableError)


class TestOneOfTwoGpus:
    def test_changes_places_with_the_other_and_stays_itself(self, story: DriverStory) -> None:
        uuids = [story.fake.uuid(slot) for slot in (FIRST, SECOND)]
        story.fake.wave(SECOND, period_s=1.0, busy_ratio=1.0)
        story.fake.draw(SECOND, busy_watts=111)

        story.fake.reorder([SECOND, FIRST])
        story.tick(8)

        assert [story.gpu(uuid).device.index for uuid in uuids] == [1, 0]
        assert story.sample(uuids[SECOND]).power_watts == pytest.approx(111)
        assert story.frame is not None
        assert [gpu.device.uuid for gpu in story.frame.gpus] == uuids[::-1]
        for slot in (FIRST, SECOND):
            assert observed_s(story, slot) == pytest.approx(story.seconds_passed, abs=0.5)

    def test_is_taken_out_and_put_back(self, story: DriverStory) -> None:
        story.fake.reorder([SECOND])
        story.tick(20)
        before_s = observed_s(story, FIRST)
        story.tick(20)
        assert observed_s(story, FIRST) == before_s
        assert observed_s(story, SECOND) == pytest.approx(story.seconds_passed, abs=0.5)

        story.fake.reorder([FIRST, SECOND])
        story.tick(6)

        assert_back_within(story, 2)

    def test_counts_its_energy_on_where_it_was_reset_outside(self, story: DriverStory) -> None:
        story.fake.reorder([SECOND])
        story.tick(10)
        story.fake.reset(FIRST)
        story.fake.reorder([FIRST, SECOND])

        story.tick(20)  # that it never falls is among the laws

        assert story.sample(story.fake.uuid(FIRST)).energy_joules is not None

    def test_that_was_lost_from_the_start_is_told_of_and_appears_when_it_is_back(
        self, two_busy: FakeNvml
    ) -> None:
        two_busy.lose(FIRST)
        story = DriverStory(two_busy)
        story.tick(10)
        assert [gpu.device.uuid for gpu in story.state.gpus] == [two_busy.uuid(SECOND)]
        assert (story.message or "").startswith("GPU 0: the GPU is lost")

        two_busy.find(FIRST)

        assert_back_within(story, 8)
        story.close()

    def test_that_belongs_to_another_container_is_nobodys_trouble(self, two_busy: FakeNvml) -> None:
        two_busy.fail("nvmlDeviceGetHandleByIndex_v2", NO_PERMISSION, gpu=FIRST)
        story = DriverStory(two_busy)
        story.tick(20)

        assert story.message is None
        assert observed_s(story, SECOND) == pytest.approx(20, abs=0.5)
        story.close()
