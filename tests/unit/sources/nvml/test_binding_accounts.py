"""Specification of NVML's errors, counted: what fails, and not what a board has not got."""

from __future__ import annotations

import threading

import pytest

from gpumon.sources.nvml.binding import CallAccounts
from tests.builders_driver import DriverStory
from tests.builders_mig import Tell
from tests.fakenvml.control import (
    FUNCTION_NOT_FOUND,
    NO_PERMISSION,
    NOT_FOUND,
    NOT_SUPPORTED,
    UNKNOWN,
    FakeNvml,
)

CALL = "nvmlDeviceGetTemperatureV"
SHARES = "nvmlDeviceGetProcessesUtilizationInfo"
NO_DATA = 21


def errors(story: DriverStory) -> dict[tuple[str, int], int]:
    return {(name, code): count for name, code, count in story.state.call_errors}


class TestAnErrorOfTheDriver:
    @pytest.mark.parametrize("ring", [NOT_SUPPORTED, NOT_FOUND], ids=["no-ring", "a-dry-ring"])
    @pytest.mark.parametrize(
        ("function", "field"),
        [
            ("nvmlDeviceGetPowerUsage", "power"),
            (CALL, "temperature"),
            ("nvmlDeviceGetMemoryInfo_v2", "memory"),
            ("nvmlDeviceGetTotalEccErrors", "ecc"),
            ("nvmlDeviceGetClockInfo", "clocks"),
            ("nvmlDeviceGetComputeRunningProcesses_v3", "processes"),
            ("nvmlGpmSampleGet", "activity"),
        ],
    )
    def test_is_counted_and_makes_its_field_a_fault_until_it_is_over(
        self, fake_nvml: FakeNvml, tell: Tell, function: str, field: str, ring: int
    ) -> None:
        fake_nvml.wave(0, period_s=1.0, busy_ratio=1.0)
        story = tell()
        story.tick(2)
        assert errors(story) == {}
        fake_nvml.fail("nvmlDeviceGetSamples", ring)
        fake_nvml.fail(function, UNKNOWN, gpu=0)
        began_ns = fake_nvml.now_ns()

        story.tick(20)

        assert set(errors(story)) == {(function, UNKNOWN)}
        assert errors(story)[function, UNKNOWN] >= 3
        assert story.state.collectors[0].errors_total == sum(errors(story).values())
        (fault,) = story.sample(fake_nvml.uuid(0)).faults
        assert fault.field == field
        assert fault.since_ns - began_ns <= 6e9
        assert story.sample(fake_nvml.uuid(1)).faults == ()
        said = story.message
        assert said == f"GPU 0: reading its {field} fails: {fault.reason}"

        fake_nvml.fail(function, 0, gpu=0)
        counted = errors(story)
        story.tick(8)

        assert story.sample(fake_nvml.uuid(0)).faults == ()
        assert story.message is None
        assert errors(story) == counted

    @pytest.mark.parametrize("code", [NOT_SUPPORTED, NOT_FOUND, FUNCTION_NOT_FOUND, NO_DATA, 25])
    def test_is_not_that_a_board_or_a_driver_has_nothing_to_tell(
        self, fake_nvml: FakeNvml, tell: Tell, code: int
    ) -> None:
        fake_nvml.run(0, 4000)
        story = tell()
        for function in (CALL, SHARES, "nvmlDeviceGetProcessUtilization"):
            fake_nvml.fail(function, code)

        story.tick(20)

        assert errors(story) == {}
        assert story.message is None

    def test_that_forbids_is_counted_and_is_no_trouble_that_lasts(
        self, fake_nvml: FakeNvml, tell: Tell
    ) -> None:
        fake_nvml.fail(CALL, NO_PERMISSION, gpu=0)
        story = tell()

        story.tick(20)

        assert errors(story) == {(CALL, NO_PERMISSION): 1}
        assert story.message is None


class TestSumsOfTwoThreads:
    def test_lose_nothing(self) -> None:
        accounts = CallAccounts()

        def add() -> None:
            for _ in range(20_000):
                accounts.took("f", 1, 999)

        threads = [threading.Thread(target=add) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert dict(accounts.so_far()["call_counts"]) == {"f": 40_000}
        assert accounts.so_far()["call_errors"] == (("f", 999, 40_000),)
