"""Tests of the NVML source: its values, and the calls that they cost."""

from __future__ import annotations

import time

import pytest

from gpumon.cli.command import LONGEST_PERIOD_S
from gpumon.core.clock import NS_PER_S
from gpumon.core.phase import IdleCause
from gpumon.core.sample import ProcessSample
from tests.builders.driver import Fake, busy_ns, holes_ns, total_ns
from tests.builders.driver_faults import DRAIN, INIT, LIST, POWER, RATES
from tests.builders.nvml import MS, UNUSED_PID, Open, read_for, samples_of
from tests.fakenvml import codes
from tests.fakenvml.signals import clock_offset_us
from tests.waiting import PATIENCE_S

NO_RING = {DRAIN: codes.NOT_SUPPORTED}
NOT_THE_SOURCES = (INIT, "nvmlEventSetWait_v2")
AT_THE_END_OF_A_TICK = ("nvmlGpmMigSampleGet", "nvmlGpmSampleAlloc", "nvmlGpmQueryDeviceSupport")


class TestAGpu:
    def test_has_each_value_in_its_base_unit(self, fake: Fake) -> None:
        fake.run(0, UNUSED_PID, memory_bytes=3 << 30, name=b"\xff\xfe")

        gpu = fake.story().sample(0)

        assert gpu.processes_at_ns == fake.now_ns()
        assert gpu.memory_used_bytes == 20_480 << 20
        assert gpu.power_watts == 310.5
        assert gpu.temperature_celsius == 54
        assert gpu.sm_clock_hertz == 1.755e9
        assert gpu.processes == (ProcessSample(UNUSED_PID, 3 << 30),)
        assert gpu.energy_joules == pytest.approx(5_000 + 310.5 * 30)
        assert gpu.error is None

    @pytest.mark.parametrize(
        ("functions", "field", "calls_a_reading", "readings"),
        [
            ([POWER], "power_watts", 1, 5),
            (["nvmlDeviceGetClockInfo"], "sm_clock_hertz", 2, 5),
            (["nvmlDeviceGetTotalEnergyConsumption"], "energy_joules", 1, 1),
            ([LIST, LIST[:-1] + "2", LIST[:-3]], "processes", 1, 5),
        ],
    )
    def test_is_asked_once_for_an_unsupported_field(
        self, fake: Fake, functions: list[str], field: str, calls_a_reading: int, readings: int
    ) -> None:
        for function in functions:
            fake.fail(function, codes.NOT_SUPPORTED, gpu=0)
        story = fake.story(period_s=6.0, after_s=24)

        assert getattr(story.sample(0), field) is None
        assert getattr(story.sample(1), field) is not None
        assert story.sample(0).error is None
        assert story.sample(0).temperature_celsius == 54
        assert fake.calls(functions[0]) == calls_a_reading * (1 + readings)


class TestASquareWave:
    """At a tenth of its real length: a period of 100 ms, 30 % of it idle, windows of 1/60 s."""

    @pytest.fixture(autouse=True)
    def wave(self, fake: Fake) -> None:
        for slot in (0, 1):
            fake.wave(slot, period_s=0.1, busy_ratio=0.7, window_s=0.1 / 6)

    @pytest.mark.measured
    @pytest.mark.parametrize("clock_id", [time.CLOCK_REALTIME, time.CLOCK_MONOTONIC, None])
    def test_is_integrated_within_a_percent_with_any_clock(
        self, fake: Fake, open_source: Open, clock_id: int | None
    ) -> None:
        fake.stamps_count(777_777_777_777 if clock_id is None else clock_offset_us(clock_id))

        samples = samples_of(read_for(open_source(), 1.4, 0.1))

        start_ns, end_ns = samples[0].start_ns, samples[-1].end_ns
        assert holes_ns(samples) == []
        assert end_ns - start_ns > 1.0 * NS_PER_S
        assert busy_ns(samples) == pytest.approx(fake.busy_ns(0, start_ns, end_ns), rel=0.01)

    @pytest.mark.parametrize("period_s", [1.0, LONGEST_PERIOD_S])
    def test_is_completely_observed_at_every_period(self, fake: Fake, period_s: float) -> None:
        fake.wave(0, period_s=10.0, busy_ratio=0.6, window_s=0.2)
        fake.gpu(0).ring_depth = 71  # as on the boards that were measured
        story = fake.story(period_s=period_s, after_s=900)
        totals = story.gpu(0).totals

        assert story.observed_s(0) == pytest.approx(900, abs=1)
        assert totals.pauses.count == pytest.approx(90, abs=1)
        assert totals.lost_ns / totals.in_use_ns == pytest.approx(0.4, abs=0.01)
        assert totals.idle_ns.get(IdleCause.NOT_IN_USE, 0) == 0

    def test_costs_one_drain_per_gpu_and_tick(self, fake: Fake) -> None:
        # Events are waited for on a thread, at moments of its own.
        story = fake.story(off=["events"], period_s=0.1)
        fake.forget_calls()

        story.tick(10)

        assert fake.all_calls() == {DRAIN: 2 * 10, POWER: 2 * 10}

    @pytest.mark.parametrize("held_up_ns", [0, PATIENCE_S * NS_PER_S], ids=["late", "in time"])
    def test_counts_the_calls_of_each_function(
        self, held_up_ns: int, fake: Fake, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gpumon.sources.nvml.source._HELD_UP_NS", held_up_ns)
        fake.cut(0, 2)
        fake.run(1, 4000)
        reported = dict(fake.story().frame.call_counts)

        asked = fake.all_calls()
        for name in (*NOT_THE_SOURCES, *AT_THE_END_OF_A_TICK):
            asked.pop(name, None)
        assert {name: reported.get(name) for name in asked} == asked

    @pytest.mark.parametrize("by_s", [3600, -3600])
    def test_is_integrated_while_the_wall_clock_is_set(self, fake: Fake, by_s: int) -> None:
        story = fake.story(period_s=0.1, after_s=0.6)
        story.clock.set_wall_clock(by_s)
        story.pass_s(1.0)

        samples = story.busy(0)
        start_ns, end_ns = samples[0].start_ns, samples[-1].end_ns
        assert end_ns - start_ns > 1.3 * NS_PER_S
        assert total_ns(samples) == pytest.approx(end_ns - start_ns, rel=0.005)
        assert busy_ns(samples) == pytest.approx(fake.busy_ns(0, start_ns, end_ns), rel=0.015)
        assert sum(frame.rejected for frame in story.frames) == 0


class TestARingWithoutNewEntries:
    def test_means_idle_while_the_gpu_is_idle(self, fake: Fake) -> None:
        fake.wave(0, period_s=1.0, busy_ratio=0.4, window_s=0.05, dry_when_idle=True)
        story = fake.story(period_s=0.1, after_s=2.1)

        samples = story.busy(0)
        idle_ns = total_ns([sample for sample in samples if sample.busy_ratio == 0.0])
        truth_ns = fake.busy_ns(0, samples[0].start_ns, samples[-1].end_ns)
        assert idle_ns > 0.7 * NS_PER_S
        assert busy_ns(samples) == pytest.approx(truth_ns, rel=0.15)

    @pytest.mark.parametrize("code", [0, codes.NOT_SUPPORTED], ids=["dry", "not there"])
    def test_is_replaced_by_the_other_call(self, fake: Fake, code: int) -> None:
        fake.ring(0, [])
        fake.fail(DRAIN, code, gpu=0)
        fake.gpu(0).rates_percent = 40
        story = fake.story(period_s=0.1)
        fake.forget_calls()

        story.pass_s(0.5)

        assert {sample.busy_ratio for sample in story.busy(0)} == {0.4}
        assert total_ns(story.busy(0)) == pytest.approx(0.5 * NS_PER_S, rel=0.01)
        assert story.sample(0).utilization_ratio == 0.4
        assert fake.calls(RATES) == 5
        # Of the other GPU in each tick, and of this one only where it has a ring.
        assert fake.calls(DRAIN) == 5 * (1 if code else 2)

    def test_that_was_refused_is_tried_again_after_a_minute(self, fake: Fake) -> None:
        fake.fail(DRAIN, codes.NOT_SUPPORTED)
        story = fake.story(after_s=1)
        fake.fail(DRAIN, 0)
        fake.forget_calls()

        story.tick(59)
        assert fake.calls(DRAIN) == 0

        story.tick()
        assert fake.calls(DRAIN) > 0

    def test_is_used_again_after_its_stamps_restarted(self, fake: Fake) -> None:
        story = fake.story(period_s=0.5)

        def stamps_us(*ages_s: float) -> list[int]:
            return [fake.stamp_us(fake.now_ns() - round(age_s * NS_PER_S)) for age_s in ages_s]

        fake.ring(0, [(stamp_us, 50) for stamp_us in stamps_us(-3.9, -4.0)])
        story.tick()
        fake.ring(0, [(stamp_us, 80) for stamp_us in stamps_us(0.1, 0.0)])
        story.tick()
        fake.push(0, *((stamp_us, 90) for stamp_us in stamps_us(0.001, 0.0)))
        story.tick()

        assert story.sample(0).utilization_ratio == 0.9


class TestACallThatFails:
    @pytest.mark.parametrize(
        ("failures", "has_error"),
        [
            pytest.param({DRAIN: codes.UNKNOWN}, False, id="ring, as the rates answer"),
            pytest.param({DRAIN: codes.UNKNOWN, RATES: codes.UNKNOWN}, True, id="ring and rates"),
            pytest.param({**NO_RING, POWER: codes.UNKNOWN}, False, id="power, as the rates answer"),
            pytest.param({**NO_RING, POWER: codes.GPU_IS_LOST}, True, id="power of a lost GPU"),
            pytest.param(
                {**NO_RING, RATES: codes.NOT_SUPPORTED, POWER: codes.TIMEOUT},
                True,
                id="power of a GPU without utilisation",
            ),
        ],
    )
    def test_is_an_error_of_the_gpu_if_no_other_call_shows_that_it_is_there(
        self, fake: Fake, failures: dict[str, int], *, has_error: bool
    ) -> None:
        story = fake.story(after_s=1)
        for function, code in failures.items():
            fake.fail(function, code, gpu=0)

        story.tick(2)

        assert (story.sample(0).error is not None) == has_error
        assert story.sample(1).error is None

    def test_on_every_gpu_while_samples_are_made_closes_nvml(self, fake: Fake) -> None:
        fake.fail(DRAIN, codes.NOT_SUPPORTED)
        fake.fail(POWER, codes.NOT_SUPPORTED)
        story = fake.story(after_s=1)
        fake.fail(RATES, codes.UNKNOWN)

        story.tick()

        assert story.trouble is not None


class TestAStopOfTheSampler:
    def test_is_observed_as_far_as_the_ring_goes_back(self, fake: Fake) -> None:
        fake.wave(0, period_s=0.1, busy_ratio=0.5, window_s=0.02)
        fake.gpu(0).ring_depth = 20
        story = fake.story(period_s=0.1, after_s=0.2)

        fake.advance(1.0)
        story.tick()

        assert len(story.sample(0).busy) == 20
        assert total_ns(story.sample(0).busy) == 20 * 20 * MS
