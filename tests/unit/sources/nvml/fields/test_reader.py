"""Tests of the fields that are read every few seconds."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.core.clock import NS_PER_S
from gpumon.core.sample import GpuDetails, GpuSample
from gpumon.sources.nvml.binding import FieldCalls, NvmlLibrary
from gpumon.sources.nvml.fields.reader import (
    EnergyCounter,
    FieldSchedule,
    LatestValues,
    SourceContext,
    valid_for_ns,
)
from gpumon.sources.nvml.fields.table import DEFAULT_OPTIONS, NVML_FIELDS
from tests.builders.driver import DriverStory, Fake
from tests.builders.nvml import Open, Refusals
from tests.fakenvml import codes

OPT_INS = [field.name for field in NVML_FIELDS if field.opt_in]
TEMPERATURE_V, TEMPERATURE = "nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"


def reported(story: DriverStory, name: str, slot: int = 0) -> object:
    """The value of that name in a sample or its details."""
    sample = story.sample(slot)
    return getattr(sample if name in GpuSample._fields else story.details(slot), name)


class TestTheDetails:
    def test_are_in_base_units(self, fake: Fake) -> None:
        gpu = fake.gpu(0)
        gpu.enforced_limit_mw, gpu.power_limit_mw = 650_000, 700_000
        gpu.performance_state = 2
        gpu.throttle_reasons = 0x24
        gpu.ecc_corrected, gpu.ecc_uncorrected = 7, 1
        gpu.ecc_corrected_before = 1_000
        gpu.fan_percent, gpu.encoder_percent, gpu.decoder_percent = 30, 12, 0

        by_default = GpuDetails(
            read_at_ns=fake.story().details(0).read_at_ns,
            power_limit_watts=650.0,
            sm_clock_max_hertz=1.98e9,
            memory_clock_hertz=2.619e9,
            performance_state=2,
            throttle_reasons=("sw_power_cap", "sw_thermal_slowdown"),
            ecc_corrected_errors=7,
            ecc_uncorrected_errors=1,
            persistence_mode=True,
        )
        assert fake.story().details(0) == by_default
        assert fake.story(on=["fan", "encoder"]).details(0) == by_default._replace(
            fan_speed_ratio=0.3, encoder_ratio=0.12, decoder_ratio=0.0
        )

    def test_are_the_same_object_until_they_are_read_again(self, fake: Fake) -> None:
        story = fake.story()
        first = story.details(0)
        fake.gpu(0).performance_state = 8
        story.tick()
        assert story.details(0) is first

        story.tick(5)

        assert story.details(0).performance_state == 8

    def test_are_read_of_one_gpu_at_a_time(self, fake: Fake) -> None:
        fake.reorder([0, 1, 2, 3])
        story = fake.story(period_s=0.5, after_s=10)

        details = [[gpu.details for gpu in frame.gpus] for frame in story.frames]
        read_at_once = [
            sum(new is not old for new, old in zip(late, early, strict=True))
            for early, late in pairwise(details)
        ]
        assert max(read_at_once) == 1
        assert sum(read_at_once) == pytest.approx(4 * 10 / 5, abs=1)

    def test_have_a_highest_clock_that_is_read_once(self, fake: Fake) -> None:
        fake.story(period_s=5.0).tick(3)

        assert fake.calls("nvmlDeviceGetMaxClockInfo") == 2
        assert fake.calls("nvmlDeviceGetClockInfo") == 4 * 2 * 2


class TestAnOlderDriver:
    @pytest.mark.parametrize("code", [codes.NOT_SUPPORTED, codes.FUNCTION_NOT_FOUND])
    @pytest.mark.parametrize(
        ("newer", "older", "field", "value"),
        [
            ("EnforcedPowerLimit", "PowerManagementLimit", "power_limit_watts", 600.0),
            ("CurrentClocksEventReasons", "CurrentClocksThrottleReasons", "throttle_reasons",
             ("sw_power_cap",)),
            ("TemperatureV", "Temperature", "temperature_celsius", 54.0),
        ],
    )  # fmt: skip
    def test_is_read_by_the_older_function(
        self,
        fake: Fake,
        code: int,
        newer: str,
        older: str,
        field: str,
        value: object,
    ) -> None:
        fake.gpu(0).power_limit_mw = 600_000
        fake.throttle(0, 4)
        fake.fail(f"nvmlDeviceGet{newer}", code)
        story = fake.story(period_s=5.0, after_s=10)

        assert reported(story, field) == value
        assert fake.calls(f"nvmlDeviceGet{newer}") == 2
        assert fake.calls(f"nvmlDeviceGet{older}") == 3 * 2


SHARED = {"nvmlDeviceGetFieldValues", "nvmlDeviceGetSamples"}
"""Called for several fields."""


class TestAFieldThatIsSwitchedOff:
    @pytest.mark.parametrize(
        "name", [field.name for field in NVML_FIELDS if field.name != "utilization"]
    )
    def test_is_never_read_and_all_others_are(self, fake: Fake, name: str) -> None:
        def asked_with(without: list[str]) -> dict[str, int]:
            fake.forget_calls()
            on = [field for field in OPT_INS if field not in without]
            story = fake.story(on=on, off=without, period_s=11.0, after_s=22)
            story.close()
            return fake.all_calls()

        fake.run(0, 4000)
        fake.control.newest_field = 196  # a driver that does not count PCIe has to measure
        (field,) = [field for field in NVML_FIELDS if field.name == name]
        with_it, without_it = asked_with([]), asked_with([name])

        assert set(without_it).isdisjoint(set(field.functions) - SHARED)
        for other in NVML_FIELDS:
            if other.name not in (name, "processes", "process_names", "events"):
                asked = set(other.functions) & set(with_it)
                assert asked, other.name
                assert asked <= set(without_it)


class TestAFieldThatIsSlow:
    def test_is_followed_by_a_second_drain(self, fake: Fake, open_source: Open) -> None:
        for slot in (0, 1):
            fake.wave(slot, period_s=0.1, busy_ratio=0.5, window_s=0.02)
        source = open_source(slow_period_s=0.01)
        source.read()
        fake.delay(TEMPERATURE_V, 200_000, gpu=0)
        time.sleep(0.6)

        frame = source.read()

        assert frame.taken_at_ns - frame.gpus[1].busy[-1].end_ns < 150_000_000

    def test_is_read_less_often_and_keeps_its_value(self, fake: Fake) -> None:
        fake.delay(TEMPERATURE_V, 200_000, gpu=0)
        story = fake.story(period_s=6.0)
        fake.gpu(0).performance_state = 5
        story.tick()
        assert fake.calls(TEMPERATURE_V) == 2 + 1
        assert story.sample(0).temperature_celsius == 54.0
        assert story.details(0).performance_state == 5

        fake.advance(54.0)
        story.tick()

        assert fake.calls(TEMPERATURE_V) == 2 + 1 + 2

    def test_has_a_value_that_expires(self, library: NvmlLibrary) -> None:
        now_ns, period_ns = 1_000 * NS_PER_S, 5 * NS_PER_S
        context = SourceContext(
            options=DEFAULT_OPTIONS,
            monotonic_ns=lambda: now_ns,
            period_ns=NS_PER_S,
            slow_period_ns=period_ns,
            after_reading=lambda run: run(),
            refuse=Refusals(),
        )
        schedule = FieldSchedule(context)
        schedule.add("power", FieldCalls(library), lambda _: {"power_watts": 97.0})

        schedule.read_due()

        until_ns = now_ns + valid_for_ns(period_ns)
        assert schedule.latest.at(until_ns - 1) == {"power_watts": 97.0}
        assert schedule.latest.at(until_ns) == {}


class TestAValue:
    @given(st.dictionaries(st.text(max_size=3), st.integers(0, 50)), st.integers(0, 60))
    def test_expires_at_its_time(self, untils: dict[str, int], now_ns: int) -> None:
        latest = LatestValues()
        for field, until_ns in untils.items():
            latest.put(field, {field: until_ns}, until_ns)

        held = {field: until_ns for field, until_ns in untils.items() if now_ns < until_ns}
        assert latest.at(now_ns) == held
        assert latest.holds_until_ns == min(held.values(), default=LatestValues().holds_until_ns)


EVERY_S = 5


def joules_after(*millijoules: int | None, every_s: int = EVERY_S) -> list[float | None]:
    """The counter's answers to those readings of a board."""
    counter = EnergyCounter(Refusals())
    return [
        counter.update(reading, (number + 1) * every_s * NS_PER_S)
        for number, reading in enumerate(millijoules)
    ]


class TestTheEnergyCounter:
    @pytest.mark.parametrize(
        ("millijoules", "joules"),
        [
            pytest.param([5_000_000, 5_002_500, 5_002_500], [5_000.0, 5_002.5, 5_002.5],
                         id="begins with what the board used before, and follows the board's own"),
            pytest.param([9_000_000, 9_500_000, 20, 1_020], [9_000.0, 9_500.0, 9_500.0, 9_501.0],
                         id="goes on from where it was when the board's own restarts"),
            pytest.param([9_000_000, 8_999_990, 8_999_995], [9_000.0, 9_000.0, 9_000.005],
                         id="adds nothing where the board's own went back a little"),
            pytest.param([1_000, None, None, 900_000], [1.0, None, None, 900.0],
                         id="counts all that was used while it could not be read"),
            pytest.param([None, None], [None, None], id="is no answer where the board gives none"),
        ],
    )  # fmt: skip
    def test_returns(self, millijoules: list[int | None], joules: list[float | None]) -> None:
        assert joules_after(*millijoules) == joules

    def test_refuses_an_impossible_increase(self, refused: Refusals) -> None:
        counter = EnergyCounter(refused)
        counter.update(0, 1 * NS_PER_S)

        assert counter.update(10**12, 6 * NS_PER_S) == 0.0
        assert counter.update(10**12 + 500, 11 * NS_PER_S) == 0.5
        assert refused.count == 1


steps = st.lists(
    st.tuples(
        st.integers(0, 700_000),  # millijoules used since the moment before ...
        st.integers(0, 700_000),  # ... and after a reset in between, if there was one
        st.booleans(),  # whether there was
        st.booleans(),  # whether the board answers
    ),
    min_size=1,
    max_size=60,
)


class TestTheLawsOfEnergy:
    @given(st.lists(st.one_of(st.none(), st.integers(-5, (1 << 64) - 1)), max_size=60))
    def test_it_never_falls(self, readings: list[int | None]) -> None:
        reported = [joules for joules in joules_after(*readings) if joules is not None]

        assert all(early <= late for early, late in pairwise(reported))

    @given(steps)
    def test_it_counts_all_energy_between_readings_without_a_reset(
        self, steps: list[tuple[int, int, bool, bool]]
    ) -> None:
        refused = Refusals()
        counter, now_ns, joules = EnergyCounter(refused), 0, None
        on_board = used_in_all = certain = since_reading = 0
        was_reset = False
        for before, after, resets, answers in steps:
            now_ns += EVERY_S * NS_PER_S
            used = before + after if resets else before
            used_in_all, since_reading = used_in_all + used, since_reading + used
            on_board = after if resets else on_board + before
            was_reset |= resets
            if answers:
                certain += 0 if was_reset else since_reading
                joules = counter.update(on_board, now_ns)
                was_reset, since_reading = False, 0

        if joules is not None:
            assert certain <= round(joules * 1000) <= used_in_all
        assert refused.count == 0
