"""Specification of what a board says every few seconds: in base units, or not at all."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from gpumon.core.sample import GpuDetails, GpuSample
from gpumon.errors import SourceUnavailableError
from gpumon.sources.nvml.fields.table import NVML_FIELDS, nvml_options
from tests.builders_nvml import open_at_a_standstill, read_for, samples_of, total_ns
from tests.fakenvml.control import FUNCTION_NOT_FOUND, NOT_SUPPORTED, UNKNOWN, FakeNvml

OPT_INS = [field.name for field in NVML_FIELDS if field.opt_in]
EVERYTHING = nvml_options(on=OPT_INS)
ALL_ONES = (1 << 64) - 1
TEMPERATURE_V = "nvmlDeviceGetTemperatureV"
TEMPERATURE = "nvmlDeviceGetTemperature"


def details_of(sample: GpuSample) -> GpuDetails:
    assert sample.details is not None
    return sample.details


def first_sample(fake: FakeNvml, *, wants: list[str] | None = None) -> GpuSample:
    source = open_at_a_standstill(fake, nvml_options(on=wants or []))
    sample = source.read().gpus[0]
    source.close()
    return sample


class TestTheDetails:
    def test_are_in_base_units(self, fake_nvml: FakeNvml) -> None:
        gpu = fake_nvml.gpu(0)
        gpu.enforced_limit_mw, gpu.power_limit_mw = 650_000, 700_000
        gpu.performance_state = 2
        gpu.throttle_reasons = 0x24
        gpu.ecc_corrected, gpu.ecc_uncorrected = 7, 1
        gpu.ecc_corrected_before = 1_000

        told = details_of(first_sample(fake_nvml))

        assert told == GpuDetails(
            read_at_ns=told.read_at_ns,
            power_limit_watts=650.0,
            sm_clock_max_hertz=1.98e9,
            memory_clock_hertz=2.619e9,
            performance_state=2,
            throttle_reasons=("sw_power_cap", "sw_thermal_slowdown"),
            ecc_corrected_errors=7,
            ecc_uncorrected_errors=1,
            persistence_mode=True,
        )

    def test_have_what_costs_more_only_where_it_is_wanted(self, fake_nvml: FakeNvml) -> None:
        gpu = fake_nvml.gpu(0)
        gpu.fan_percent, gpu.encoder_percent, gpu.decoder_percent = 30, 12, 0

        told = details_of(first_sample(fake_nvml, wants=["fan", "encoder"]))

        assert (told.fan_speed_ratio, told.encoder_ratio, told.decoder_ratio) == (0.3, 0.12, 0.0)

    def test_are_the_same_object_until_they_are_read_again(self, fake_nvml: FakeNvml) -> None:
        source = open_at_a_standstill(fake_nvml)
        first = source.read().gpus[0].details
        fake_nvml.gpu(0).performance_state = 8
        fake_nvml.advance(1.0)

        second = source.read().gpus[0].details
        fake_nvml.advance(5.0)
        third = details_of(source.read().gpus[0])
        source.close()

        assert second is first
        assert third.performance_state == 8

    def test_are_read_of_each_gpu_at_a_moment_of_its_own(self, fake_nvml: FakeNvml) -> None:
        fake_nvml.reorder([0, 1, 2, 3])
        source = open_at_a_standstill(fake_nvml)
        newest = [gpu.details for gpu in source.read().gpus]
        read_at_once = []
        for _ in range(20):
            fake_nvml.advance(0.5)
            told = [gpu.details for gpu in source.read().gpus]
            read_at_once.append(sum(a is not b for a, b in zip(told, newest, strict=True)))
            newest = told
        source.close()

        assert max(read_at_once) == 1
        assert sum(read_at_once) == pytest.approx(4 * 10 / 5, abs=1)

    def test_ask_for_the_highest_clock_only_once(self, fake_nvml: FakeNvml) -> None:
        source = open_at_a_standstill(fake_nvml)
        for _ in range(4):
            source.read()
            fake_nvml.advance(5.0)
        source.close()

        assert fake_nvml.calls("nvmlDeviceGetMaxClockInfo") == 2
        assert fake_nvml.calls("nvmlDeviceGetClockInfo") == 4 * 2 * 2


class TestThrottleReasons:
    def test_are_none_at_all_where_the_clocks_are_free(self, fake_nvml: FakeNvml) -> None:
        assert details_of(first_sample(fake_nvml)).throttle_reasons == ()

    def test_leave_out_idleness_and_what_nobody_knows(self, fake_nvml: FakeNvml) -> None:
        fake_nvml.gpu(0).throttle_reasons = 1 | 0x40 | 1 << 40

        assert details_of(first_sample(fake_nvml)).throttle_reasons == ("hw_thermal_slowdown",)


class TestAnOlderDriver:
    @pytest.mark.parametrize("code", [NOT_SUPPORTED, FUNCTION_NOT_FOUND])
    @pytest.mark.parametrize(
        ("newer", "older", "field", "value"),
        [
            ("EnforcedPowerLimit", "PowerManagementLimit", "power_limit_watts", 600.0),
            (
                "CurrentClocksEventReasons",
                "CurrentClocksThrottleReasons",
                "throttle_reasons",
                ("sw_power_cap",),
            ),
        ],
    )
    def test_is_asked_by_the_older_function(
        self, fake_nvml: FakeNvml, code: int, newer: str, older: str, field: str, value: object
    ) -> None:
        gpu = fake_nvml.gpu(0)
        gpu.power_limit_mw, gpu.throttle_reasons = 600_000, 4
        fake_nvml.fail(f"nvmlDeviceGet{newer}", code)
        source = open_at_a_standstill(fake_nvml)
        for _ in range(3):
            told = details_of(source.read().gpus[0])
            fake_nvml.advance(5.0)
        source.close()

        assert getattr(told, field) == value
        assert fake_nvml.calls(f"nvmlDeviceGet{newer}") == 2
        assert fake_nvml.calls(f"nvmlDeviceGet{older}") == 3 * 2

    def test_tells_the_temperature_by_the_older_function(self, fake_nvml: FakeNvml) -> None:
        fake_nvml.fail(TEMPERATURE_V, FUNCTION_NOT_FOUND)

        assert first_sample(fake_nvml).temperature_celsius == 54.0

    def test_that_only_fails_for_now_is_asked_by_the_newer_one_again(
        self, fake_nvml: FakeNvml
    ) -> None:
        fake_nvml.fail(TEMPERATURE_V, UNKNOWN)
        source = open_at_a_standstill(fake_nvml)
        failed = source.read().gpus[0].temperature_celsius
        fake_nvml.fail(TEMPERATURE_V, 0)
        fake_nvml.advance(5.0)
        well = source.read().gpus[0].temperature_celsius
        source.close()

        assert (failed, well) == (None, 54.0)
        assert fake_nvml.calls(TEMPERATURE) == 0

    def test_that_knows_neither_is_asked_once_each(self, fake_nvml: FakeNvml) -> None:
        for function in (TEMPERATURE_V, TEMPERATURE):
            fake_nvml.fail(function, NOT_SUPPORTED)
        source = open_at_a_standstill(fake_nvml)
        for _ in range(3):
            gpu = source.read().gpus[0]
            fake_nvml.advance(5.0)
        source.close()

        assert gpu.temperature_celsius is None
        assert (fake_nvml.calls(TEMPERATURE_V), fake_nvml.calls(TEMPERATURE)) == (2, 2)


INSANE: list[tuple[str, int, str]] = [
    ("temperature_c", 255, "temperature_celsius"),
    ("temperature_c", 0xFFFF_FFFF, "temperature_celsius"),
    ("sm_clock_mhz", 0xFFFF_FFFF, "sm_clock_hertz"),
    ("mem_clock_mhz", 0xFFFF_FFFF, "memory_clock_hertz"),
    ("max_sm_clock_mhz", 0, "sm_clock_max_hertz"),
    ("energy_mj", 1 << 63, "energy_joules"),
    ("enforced_limit_mw", 0, "power_limit_watts"),
    ("enforced_limit_mw", 0xFFFF_FFFF, "power_limit_watts"),
    ("performance_state", 99, "performance_state"),
    ("throttle_reasons", ALL_ONES, "throttle_reasons"),
    ("ecc_corrected", ALL_ONES, "ecc_corrected_errors"),
    ("ecc_uncorrected", ALL_ONES, "ecc_uncorrected_errors"),
    ("persistence_mode", 7, "persistence_mode"),
    ("fan_percent", 0xFFFF_FFFF, "fan_speed_ratio"),
    ("encoder_percent", 101, "encoder_ratio"),
    ("decoder_percent", 0xFFFF_FFFF, "decoder_ratio"),
    ("memory_used", 1 << 50, "memory_used_bytes"),
    ("power_mw", 0xFFFF_FFFF, "power_watts"),
]


class TestAValueThatNoBoardCanMean:
    @pytest.mark.parametrize(("field", "value", "told_as"), INSANE)
    def test_is_no_answer_and_counted(
        self, fake_nvml: FakeNvml, field: str, value: int, told_as: str
    ) -> None:
        setattr(fake_nvml.gpu(0), field, value)
        source = open_at_a_standstill(fake_nvml, EVERYTHING)
        frame = source.read()
        source.close()

        odd, well = [
            getattr(gpu if told_as in GpuSample._fields else details_of(gpu), told_as)
            for gpu in frame.gpus
        ]
        assert odd is None
        assert well is not None
        assert frame.rejected == 1

    @pytest.mark.parametrize(("state", "told"), [(15, 15), (32, None)])
    def test_is_neither_the_slowest_p_state_nor_an_unknown_one(
        self, fake_nvml: FakeNvml, state: int, told: int | None
    ) -> None:
        fake_nvml.gpu(0).performance_state = state
        source = open_at_a_standstill(fake_nvml)
        frame = source.read()
        source.close()

        assert details_of(frame.gpus[0]).performance_state == told
        assert frame.rejected == 0

    def test_is_not_a_fan_that_is_louder_than_it_should_be(self, fake_nvml: FakeNvml) -> None:
        fake_nvml.gpu(0).fan_percent = 130

        assert details_of(first_sample(fake_nvml, wants=["fan"])).fan_speed_ratio == 1.3

    def test_is_counted_again_each_time_it_comes(self, fake_nvml: FakeNvml) -> None:
        fake_nvml.gpu(0).temperature_c = 255
        source = open_at_a_standstill(fake_nvml)
        rejected = []
        for _ in range(3):
            rejected.append(source.read().rejected)
            fake_nvml.advance(5.0)
        source.close()

        assert rejected == [1, 1, 1]


SHARED = {"nvmlDeviceGetFieldValues"}
"""Asked for pcie and for nvlink."""


class TestAFieldThatIsSwitchedOff:
    @pytest.mark.parametrize(
        "name", [field.name for field in NVML_FIELDS if field.name != "utilization"]
    )
    def test_is_never_asked_for_and_all_others_are(self, fake_nvml: FakeNvml, name: str) -> None:
        def asked_with(without: list[str]) -> dict[str, int]:
            fake_nvml.forget_calls()
            on = [field for field in OPT_INS if field not in without]
            source = open_at_a_standstill(fake_nvml, nvml_options(on=on, off=without))
            for _ in range(3):
                source.read()
                fake_nvml.advance(11.0)
            source.close()
            return fake_nvml.all_calls()

        fake_nvml.run(0, 4000)
        fake_nvml.control.newest_field = 196  # a driver that does not count PCIe has to measure
        (field,) = [field for field in NVML_FIELDS if field.name == name]
        with_it, without_it = asked_with([]), asked_with([name])

        assert set(without_it).isdisjoint(set(field.functions) - SHARED)
        for other in NVML_FIELDS:
            if other.name not in (name, "processes", "process_names", "events"):
                asked = set(other.functions) & set(with_it)
                assert asked, other.name
                assert asked <= set(without_it)

    def test_has_no_value(self, fake_nvml: FakeNvml) -> None:
        off = ["memory", "temperature", "clocks", "energy", "power", "ecc"]
        source = open_at_a_standstill(fake_nvml, nvml_options(off=off))
        gpu = source.read().gpus[0]
        source.close()

        assert gpu.memory_used_bytes is gpu.device.memory_capacity_bytes is None
        assert gpu.temperature_celsius is gpu.sm_clock_hertz is None
        assert gpu.energy_joules is gpu.power_watts is None
        assert details_of(gpu).sm_clock_max_hertz is None
        assert details_of(gpu).ecc_corrected_errors is None
        assert details_of(gpu).power_limit_watts == 700.0

    def test_leaves_no_details_where_all_of_them_are_off(self, fake_nvml: FakeNvml) -> None:
        off = ["clocks", "throttle_reasons", "power_limit", "performance_state", "ecc",
               "persistence_mode"]  # fmt: skip
        source = open_at_a_standstill(fake_nvml, nvml_options(off=off))
        gpu = source.read().gpus[0]
        source.close()

        assert gpu.details is None
        assert gpu.temperature_celsius == 54.0


class TestAFieldThatIsSlow:
    def test_changes_nothing_of_what_is_said_of_other_gpus(self, fake_nvml: FakeNvml) -> None:
        for slot in (0, 1):
            fake_nvml.wave(slot, period_s=0.1, busy_ratio=0.5, window_s=0.02)
        source = open_at_a_standstill(fake_nvml, slow_period_s=0.4)
        fake_nvml.start_clock()
        frames = [source.read()]
        fake_nvml.delay(TEMPERATURE_V, 300_000, gpu=0)
        frames += read_for(source, 1.0, 0.05)
        source.close()

        assert max(late.taken_at_ns - early.taken_at_ns for early, late in pairwise(frames)) > 3e8
        samples = samples_of(iter(frames), index=1)
        assert total_ns(samples) == samples[-1].end_ns - samples[0].start_ns
        assert frames[-1].gpus[1].temperature_celsius == 54.0

    def test_is_followed_by_another_look_at_the_rings(self, fake_nvml: FakeNvml) -> None:
        for slot in (0, 1):
            fake_nvml.wave(slot, period_s=0.1, busy_ratio=0.5, window_s=0.02)
        source = open_at_a_standstill(fake_nvml, slow_period_s=0.01)
        fake_nvml.start_clock()
        source.read()
        fake_nvml.delay(TEMPERATURE_V, 200_000, gpu=0)
        time.sleep(0.6)

        frame = source.read()
        source.close()

        assert frame.taken_at_ns - frame.gpus[1].busy[-1].end_ns < 150_000_000

    def test_is_asked_less_often_and_its_last_answer_stays(self, fake_nvml: FakeNvml) -> None:
        fake_nvml.delay(TEMPERATURE_V, 200_000, gpu=0)
        source = open_at_a_standstill(fake_nvml)
        source.read()
        fake_nvml.gpu(0).performance_state = 5
        fake_nvml.advance(6.0)
        resting = source.read().gpus[0]
        calls_while_it_rests = fake_nvml.calls(TEMPERATURE_V)
        fake_nvml.advance(60.0)
        source.read()
        source.close()

        assert calls_while_it_rests == 2 + 1
        assert fake_nvml.calls(TEMPERATURE_V) == 2 + 1 + 2
        assert resting.temperature_celsius == 54.0
        assert details_of(resting).performance_state == 5


class TestEnergy:
    def test_goes_on_over_a_reload_of_the_driver(self, fake_nvml: FakeNvml) -> None:
        fake_nvml.gpu(0).power_mw = 500_000
        source = open_at_a_standstill(fake_nvml)
        before = source.read().gpus[0].energy_joules
        fake_nvml.gpu(0).energy_mj = 0
        fake_nvml.control.origin_ns = fake_nvml.now_ns()
        fake_nvml.reload_driver()
        with pytest.raises(SourceUnavailableError):
            source.read()

        fake_nvml.advance(1.0)
        after = source.read().gpus[0].energy_joules
        fake_nvml.advance(10.0)
        later = source.read().gpus[0].energy_joules
        source.close()

        assert before is not None
        assert after == before
        assert later == pytest.approx(before + 10 * 500.0)

    def test_goes_on_over_a_reset_of_the_gpu(self, fake_nvml: FakeNvml) -> None:
        source = open_at_a_standstill(fake_nvml)
        told = [source.read().gpus[0].energy_joules]
        fake_nvml.reset(0)
        for _ in range(40):
            fake_nvml.advance(0.5)
            told.append(source.read().gpus[0].energy_joules)
        source.close()

        known = [joules for joules in told if joules is not None]
        assert known == sorted(known)
        assert known[-1] == pytest.approx(known[0] + 20 * 310.5, rel=0.2)
