"""What becomes of the figures while a driver is replaced, reloaded, reset, lost and found.

Each story is told to the real source and the real monitor on both generations
of the driver, by a clock that the test moves; the laws that ``DriverStory``
looks at hold at each of its ticks: sums close, counters rise, no time is made
up. Two busy GPUs: whatever happens, neither has ever been idle.
"""

from __future__ import annotations

import pytest

from gpumon.errors import RestartNeededError, SourceUnavailableError
from tests.builders_driver import DriverStory
from tests.fakenvml.control import (
    DRIVER_NOT_LOADED,
    GPU_IS_LOST,
    NO_PERMISSION,
    OPERATING_SYSTEM,
    UNKNOWN,
    VERSION_MISMATCH,
    FakeNvml,
)
from tests.faults.two_busy_gpus import FIRST, SECOND, assert_back_within, observed_s

INIT, DRAIN, RATES = "nvmlInitWithFlags", "nvmlDeviceGetSamples", "nvmlDeviceGetUtilizationRates"
POWER = "nvmlDeviceGetPowerUsage"


class TestADriverThatIsReplacedInMidRun:
    def test_is_said_to_need_a_new_process_when_it_has_lasted(self, story: DriverStory) -> None:
        story.fake.reload_driver()
        story.fake.fail(INIT, VERSION_MISMATCH)
        story.tick(2)
        assert "reboot or reload the driver" in (story.message or "")
        assert not isinstance(story.trouble, RestartNeededError)

        story.tick(8)

        assert isinstance(story.trouble, RestartNeededError)
        assert "start gpumon again" in str(story.trouble)
        story.fake.fail(INIT, 0)
        assert_back_within(story, 6)


class TestADriverThatIsReloadedInMidRun:
    def test_has_its_gpus_back_as_soon_as_it_is_loaded(self, story: DriverStory) -> None:
        story.fake.reload_driver()
        story.fake.fail(INIT, DRIVER_NOT_LOADED)
        before_s = observed_s(story, FIRST)
        story.tick(60)
        assert observed_s(story, FIRST) == before_s
        assert "modprobe nvidia" in (story.message or "")

        story.fake.fail(INIT, 0)

        assert_back_within(story, 6)
        # Not even of what its ring may still hold: that could be of any time.
        assert observed_s(story, FIRST) - before_s <= story.seconds_passed - 10 - 60

    def test_costs_no_more_than_a_second_where_it_is_there_at_once(
        self, story: DriverStory
    ) -> None:
        story.fake.reload_driver()

        assert_back_within(story, 3)

    def test_is_not_asked_for_more_often_than_every_four_seconds(self, story: DriverStory) -> None:
        story.fake.reload_driver()
        story.fake.fail(INIT, UNKNOWN)
        story.tick(10)
        story.fake.forget_calls()

        story.tick(600)

        assert story.fake.calls(INIT) <= 150
        story.fake.fail(INIT, 0)
        assert_back_within(story, 6)

    def test_may_come_back_without_one_of_its_gpus(self, story: DriverStory) -> None:
        story.fake.lose(SECOND)
        story.fake.reload_driver()
        story.tick(10)
        before_s = observed_s(story, SECOND)

        story.tick(10)

        assert observed_s(story, SECOND) == before_s
        assert "the GPU is lost" in (story.message or "")
        assert observed_s(story, FIRST) > 15
        story.fake.find(SECOND)
        assert_back_within(story, 12)

    def test_is_asked_nothing_by_handles_of_before(self, story: DriverStory) -> None:
        story.fake.lose(SECOND)
        story.fake.fail("nvmlDeviceGetHandleByUUID", GPU_IS_LOST)
        story.fake.reload_driver()
        story.tick(10)
        story.fake.forget_calls()

        story.tick(10)

        assert story.fake.calls(DRAIN) == 2 * 10  # utilisation and power of the other
        assert "the GPU is lost" in (story.message or "")
        story.fake.fail("nvmlDeviceGetHandleByUUID", 0)
        story.fake.find(SECOND)
        assert_back_within(story, 8)

    def test_may_lose_one_gpu_then_the_others_and_come_back_with_all(
        self, story: DriverStory
    ) -> None:
        story.fake.lose(FIRST)
        story.fake.reload_driver()
        story.tick(2)
        story.fake.reorder([])
        story.tick(6)

        story.fake.reload_driver()
        story.fake.reorder([FIRST, SECOND])
        story.fake.find(FIRST)

        assert_back_within(story, 20)


class TestAContainerThatLosesItsGpus:
    @pytest.mark.parametrize("code", [UNKNOWN, OPERATING_SYSTEM])
    def test_is_to_be_made_anew(self, story: DriverStory, code: int) -> None:
        story.fake.fail_everything(code)
        story.fake.fail(INIT, code)
        story.tick(60)

        assert isinstance(story.trouble, SourceUnavailableError)
        assert "systemctl daemon-reload" in (story.message or "")
        assert "anew" in (story.message or "")
        story.fake.fail_everything(0)
        story.fake.fail(INIT, 0)
        assert_back_within(story, 6)


class TestAUserWhoMayNot:
    def test_open_the_driver_is_told_so(self, two_busy: FakeNvml) -> None:
        two_busy.fail(INIT, NO_PERMISSION)

        with pytest.raises(SourceUnavailableError, match="/dev/nvidiactl"):
            DriverStory(two_busy)

    def test_open_any_gpu_is_told_so(self, two_busy: FakeNvml) -> None:
        two_busy.fail("nvmlDeviceGetHandleByIndex_v2", NO_PERMISSION)

        with pytest.raises(SourceUnavailableError, match="read and write access"):
            DriverStory(two_busy)

    def test_read_one_gpu_is_told_so_until_it_may(self, story: DriverStory) -> None:
        for function in (DRAIN, RATES, POWER):
            story.fake.fail(function, NO_PERMISSION, gpu=FIRST)
        story.tick(30)
        assert (story.message or "").startswith("GPU 0: this user may not read the GPU")
        assert observed_s(story, SECOND) == pytest.approx(story.seconds_passed, abs=0.5)

        for function in (DRAIN, RATES, POWER):
            story.fake.fail(function, 0, gpu=FIRST)

        assert_back_within(story, 7)
        assert story.sample(story.fake.uuid(FIRST)).power_watts is not None


class TestADriverThatListsNoGpu:
    def test_from_the_start_cannot_be_read(self, two_busy: FakeNvml) -> None:
        two_busy.reorder([])

        with pytest.raises(SourceUnavailableError, match="lists no GPU"):
            DriverStory(two_busy)

    def test_any_more_says_so_until_it_does(self, story: DriverStory) -> None:
        story.fake.reorder([])
        story.tick(12)
        assert "lists no GPU" in (story.message or "")

        story.fake.reorder([FIRST, SECOND])

        assert_back_within(story, 6)
