"""Specification of the probe: what every function answers here, and what asking it costs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pynvml
import pytest

from gpumon.sources.nvml.fields.table import (
    NVML_FIELDS,
    nvml_options,
)
from gpumon.sources.nvml.probe.probe import NvmlProbe, ProbeLimits
from gpumon.sources.nvml.probe.probed import (
    ProbedCall,
    ProbedDriver,
    ProbedField,
    ProbedGpu,
    ProbedRing,
)
from gpumon.sources.system_clock import SystemClock
from tests.builders.driver import Fake
from tests.builders.driver_faults import DRAIN, LIST, POWER
from tests.fakenvml import codes
from tests.fakenvml.control import FakeNvml
from tests.fakenvml.signals import clock_offset_us

ENERGY, PCIE = "nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetPcieThroughput"


def asked(
    *, on: Sequence[str] = (), off: Sequence[str] = ("activity",), **limits: Any
) -> ProbedDriver:
    """What a probe finds of all GPUs; GPM takes time, between its two samples, and is left out."""
    within = ProbeLimits(**{"times": 3, "budget_s": 5.0, **limits})
    probe = NvmlProbe(SystemClock(), options=nvml_options(on=on, off=off), limits=within)
    try:
        return probe.ask_all()
    finally:
        probe.close()


def asked_of_everything(**limits: Any) -> ProbedDriver:
    return asked(on=[field.name for field in NVML_FIELDS if field.opt_in], off=(), **limits)


def field_of(gpu: ProbedGpu, name: str) -> ProbedField:
    found = gpu.field(name)
    assert found is not None
    return found


def call_of(gpu: ProbedGpu, field: str, function: str) -> ProbedCall:
    return next(call for call in field_of(gpu, field).calls if call.function == function)


class TestEveryField:
    def test_is_asked_of_every_gpu_as_the_driver_wants_it_and_says_something(
        self, fake: Fake
    ) -> None:
        fake.run(0, 4711)
        fake.run(1, 4712)

        found = asked_of_everything()

        assert [gpu.index for gpu in found.gpus] == [0, 1]
        for gpu in found.gpus:
            calls = [call for field in gpu.fields for call in field.calls]
            assert [call.function for call in calls if call.code == codes.INVALID_ARGUMENT] == []
            assert {one.field.name for one in gpu.fields if one.works} == {
                field.name for field in NVML_FIELDS
            }
        assert fake.gpm_samples_held == fake.event_sets_held == 0, "nothing is left behind"

    def test_is_asked_by_each_of_its_functions(self, fake: Fake) -> None:
        gpu = asked_of_everything(times=1, dear_too=True).gpus[0]

        calls = [call for field in gpu.fields for call in field.calls]
        assert [call.function for call in calls if not call.durations_us] == []
        assert {call.function for call in calls} == {
            function for field in NVML_FIELDS for function in field.functions
        }

    @pytest.mark.parametrize(
        ("field", "said"),
        [
            ("power", "310.5 W"),
            ("persistence_mode", "on"),
            ("throttle_reasons", "sw power cap"),
            ("fan", "30 %"),
        ],
    )
    def test_says_what_the_board_says(self, fake: Fake, field: str, said: str) -> None:
        fake.throttle(0, 0x4)

        value = field_of(asked(on=["fan"]).gpus[0], field).value

        assert value is not None
        assert value.startswith(said)

    def test_of_gpm_tells_what_worked_between_its_two_samples(self, fake: Fake) -> None:
        fake.wave(0, period_s=1.0, busy_ratio=1.0)
        fake.gpm(0, sm=0.25, tensor=0.5)

        gpu = asked(off=()).gpus[0]

        assert gpu.has_gpm is True
        assert str(field_of(gpu, "activity").value).startswith("SM 25 %")

    @pytest.mark.parametrize(
        ("field", "function", "off"),
        [
            ("pcie", PCIE, ["activity"]),
            ("energy", ENERGY, ["energy", "activity"]),
        ],
        ids=["opt-in", "switched off"],
    )
    def test_is_asked_only_where_it_is_wanted(
        self, fake: Fake, field: str, function: str, off: list[str]
    ) -> None:
        unasked = field_of(asked(off=off).gpus[0], field)

        assert (unasked.calls, unasked.works, unasked.wanted) == ((), False, False)
        assert fake.calls(function) == 0
        assert field_of(asked(on=["pcie"]).gpus[0], field).works


class TestWhatDoesNotWork:
    @pytest.mark.parametrize(
        ("code", "meaning"),
        [
            (codes.NOT_SUPPORTED, "not supported by this board"),
            (codes.NO_PERMISSION, "not permitted for this user"),
            (codes.FUNCTION_NOT_FOUND, "not in this driver"),
            (codes.GPU_IS_LOST, "the GPU is lost"),
            (pynvml.NVML_ERROR_IN_USE, "the GPU is in use by another program"),
            (pynvml.NVML_ERROR_MEMORY, "the driver has too little memory"),
        ],
    )
    def test_is_told_with_the_code_and_in_words(self, fake: Fake, code: int, meaning: str) -> None:
        fake.fail("nvmlDeviceGetEnforcedPowerLimit", code, gpu=0)
        fake.fail("nvmlDeviceGetPowerManagementLimit", code, gpu=0)

        broken, whole = asked().gpus
        trouble = field_of(broken, "power_limit").trouble

        assert trouble is not None
        assert (trouble.code, trouble.meaning) == (code, meaning)
        assert trouble.answer.endswith(f"({code})")
        assert field_of(whole, "power_limit").works

    def test_is_asked_once_where_asking_again_cannot_help(self, fake: Fake) -> None:
        fake.fail(POWER, codes.NOT_SUPPORTED, gpu=0)

        call = call_of(asked().gpus[0], "power", POWER)

        assert len(call.durations_us) == 1

    def test_of_an_old_driver_does_not_hide_what_it_has_instead(
        self, fake_nvml_of_both_generations: FakeNvml
    ) -> None:
        gpu = asked(off=()).gpus[0]
        is_old = "nvmlDeviceGetMemoryInfo_v2" in fake_nvml_of_both_generations.driver.lacks

        assert field_of(gpu, "memory").used[0].function == (
            "nvmlDeviceGetMemoryInfo" if is_old else "nvmlDeviceGetMemoryInfo_v2"
        )
        assert field_of(gpu, "activity").works is not is_old
        assert gpu.has_gpm is (not is_old)

    def test_of_a_board_without_gpm_is_not_put_down_to_the_driver(
        self, fake_nvml_of_both_generations: FakeNvml
    ) -> None:
        fake = fake_nvml_of_both_generations
        is_old = "nvmlGpmQueryDeviceSupport" in fake.driver.lacks
        fake.gpm(0, supported=False)

        call = call_of(asked(off=()).gpus[0], "activity", "nvmlGpmSampleGet")

        assert call.code == (codes.FUNCTION_NOT_FOUND if is_old else codes.NOT_SUPPORTED)


class TestThePrice:
    def test_of_pcie_is_not_a_window_of_20_ms_where_the_driver_counts_bytes(
        self, fake: Fake
    ) -> None:
        fake.delay(PCIE, 20_000)

        field = field_of(asked(on=["pcie"]).gpus[0], "pcie")

        assert field.used[0].function == "nvmlDeviceGetFieldValues"
        assert fake.calls(PCIE) == 0

    def test_is_paid_once_where_it_is_high(self, fake: Fake) -> None:
        fake.delay(LIST, 5_000)
        asked(times=5)

        assert fake.calls(LIST) == 2  # one a GPU
        assert fake.calls(POWER) == 10

    def test_is_paid_once_for_each_function_when_the_time_is_up(self, fake: Fake) -> None:
        asked(times=50, budget_s=0.0)

        assert fake.calls(POWER) == 2

    def test_is_what_gpumon_then_really_spends(self, fake: Fake) -> None:
        for function in (
            DRAIN, POWER, LIST, "nvmlDeviceGetClockInfo", "nvmlDeviceGetTotalEccErrors"
        ):  # fmt: skip
            fake.delay(function, 8_000)  # far more than a busy machine adds to it

        promised = sum(gpu.seconds_per_second for gpu in asked().gpus)
        story = fake.tell(off=["activity"], after_s=5)
        before_s = story.state.call_seconds
        story.tick(20)

        spent_s = sum(s for _, s in story.state.call_seconds) - sum(s for _, s in before_s)
        assert spent_s / 20 == pytest.approx(promised, rel=0.4)


def ring_of(gpu: ProbedGpu, name: str) -> ProbedRing:
    return next(one for one in gpu.rings if one.name == name)


class TestTheRings:
    def test_are_told_with_depth_cadence_span_and_type(self, fake: Fake) -> None:
        fake.wave(0, period_s=1.0, busy_ratio=0.5, window_s=0.2)
        fake.gpu(0).ring_depth = 40

        ring = ring_of(asked().gpus[0], "gpu_utilization")

        assert (ring.count, ring.value_type) == (40, "unsigned int")
        assert ring.cadence_s == pytest.approx(0.2)
        assert ring.span_s == pytest.approx(39 * 0.2)

    @pytest.mark.measured
    def test_tell_how_late_samples_come(self, fake: Fake) -> None:
        fake.publish_late(0, by_s=0.5)

        assert 0.5 <= (ring_of(asked().gpus[0], "gpu_utilization").newest_age_s or 0) < 1.0

    @pytest.mark.parametrize(
        ("clock", "names"),
        [
            (time.CLOCK_REALTIME, {"realtime"}),
            # They differ by the time that the machine was asleep.
            (time.CLOCK_MONOTONIC, {"monotonic", "boottime"}),
        ],
    )
    def test_tell_which_clock_stamps_them(self, fake: Fake, clock: int, names: set[str]) -> None:
        fake.stamps_count(clock_offset_us(clock))

        assert asked().stamp_clock in names

    def test_that_the_board_does_not_keep_are_told_with_the_answer(self, fake: Fake) -> None:
        ring = ring_of(asked().gpus[0], "ofa_utilization")

        assert (ring.count, ring.answer) == (0, "Not Supported (3)")


class TestTheDriver:
    def test_names_the_events_that_a_board_reports(self, fake: Fake) -> None:
        fake.gpu(0).supported_events = 0x8 | 0x100 | 0x8000

        told = asked().gpus[0].event_types
        assert told == ("XID", "MIG configuration", "recovery action")

    def test_is_told_of_before_each_question(self, fake: Fake) -> None:
        told: list[str] = []
        probe = NvmlProbe(SystemClock(), limits=ProbeLimits(times=1), beat=told.append)
        probe.ask_all()
        probe.close()

        assert told[0] == "nvmlInit"
        assert "GPU 1: nvmlDeviceGetPowerUsage" in told
