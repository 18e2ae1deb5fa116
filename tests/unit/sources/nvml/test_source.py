"""Specification of the NVML source: what it reads of GPUs that behave."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from gpumon.core.clock import NS_PER_S, seconds
from gpumon.core.sample import ProcessSample
from tests.builders_nvml import (
    DRAIN,
    MS,
    RATES,
    Clock,
    Open,
    busy_ns,
    following,
    read_for,
    recent,
    samples_of,
    total_ns,
)
from tests.fakenvml.control import (
    NOT_SUPPORTED,
    FakeNvml,
    clock_offset_us,
)
from tests.patience import PATIENCE_S

NOBODYS_PID = (1 << 22) + 1
"""No kernel gives it to a process, so of no user anything is known."""
NOT_THE_SOURCES = ("nvmlInitWithFlags", "nvmlEventSetWait_v2")
AT_THE_END_OF_A_TICK = ("nvmlGpmMigSampleGet", "nvmlGpmSampleAlloc", "nvmlGpmQueryDeviceSupport")


class TestAGpu:
    def test_says_who_it_is(self, fake_nvml: FakeNvml, open_source: Open) -> None:
        first, second = open_source().read().gpus

        assert (first.device.uuid, first.device.index) == (fake_nvml.uuid(0), 0)
        assert (second.device.uuid, second.device.index) == (fake_nvml.uuid(1), 1)
        assert first.device.name == "NVIDIA H100 80GB HBM3"
        assert first.device.pci_bus_id == "00000000:18:00.0"
        assert first.device.driver_version == "580.95.05"
        assert first.device.memory_capacity_bytes == 85_520_809_984

    @pytest.mark.measured
    def test_gives_each_value_in_its_base_unit(
        self, fake_nvml: FakeNvml, open_source: Open
    ) -> None:
        fake_nvml.run(0, NOBODYS_PID, memory_bytes=3 << 30, name=b"\xff\xfe")

        frame = open_source().read()
        gpu = frame.gpus[0]

        assert gpu.processes_at_ns is not None
        assert 0 < gpu.processes_at_ns <= frame.taken_at_ns
        assert gpu.memory_used_bytes == 20_480 << 20
        assert gpu.power_watts == 310.5
        assert gpu.temperature_celsius == 54
        assert gpu.sm_clock_hertz == 1.755e9
        assert gpu.processes == (ProcessSample(NOBODYS_PID, 3 << 30),)
        assert gpu.energy_joules == pytest.approx(5_000 + 310.5 * 30, rel=0.1)
        assert gpu.error is None

    def test_is_known_by_its_uuid_when_the_order_changes(
        self, fake_nvml: FakeNvml, open_source: Open, clock: Clock
    ) -> None:
        fake_nvml.ring(0, recent(fake_nvml, 10))
        source = open_source()
        source.read()

        fake_nvml.reorder([1, 0])
        clock.ahead_ns += 6 * NS_PER_S
        source.read()
        gpus = source.read().gpus

        assert [gpu.device.uuid for gpu in gpus] == [fake_nvml.uuid(1), fake_nvml.uuid(0)]
        assert [gpu.device.index for gpu in gpus] == [0, 1]

    def test_that_is_added_later_is_found(
        self, fake_nvml: FakeNvml, open_source: Open, clock: Clock
    ) -> None:
        source = open_source()
        source.read()

        fake_nvml.reorder([0, 1, 2])
        clock.ahead_ns += 6 * NS_PER_S
        source.read()

        assert [gpu.device.uuid for gpu in source.read().gpus][2:] == [fake_nvml.uuid(2)]

    @pytest.mark.measured
    def test_in_mig_parts_has_no_utilisation_which_is_not_idle(
        self, fake_nvml: FakeNvml, open_source: Open
    ) -> None:
        fake_nvml.gpu(0).mig_enabled = 1
        source = open_source()

        frames = list(read_for(source, 0.5, 0.1))

        assert all(frame.gpus[0].busy == () for frame in frames)
        assert frames[-1].gpus[0].utilization_ratio is None
        assert frames[-1].gpus[0].memory_used_bytes is not None
        assert frames[-1].gpus[0].error is None


class TestASquareWave:
    """At a tenth of its real length: a period of 100 ms, 30 % of it idle, windows of 1/60 s."""

    @pytest.mark.measured
    @pytest.mark.parametrize(
        "clock_id", [time.CLOCK_REALTIME, time.CLOCK_BOOTTIME, time.CLOCK_MONOTONIC, None]
    )
    def test_is_integrated_within_a_percent_whatever_clock_stamps_it(
        self, fake_nvml: FakeNvml, open_source: Open, clock_id: int | None
    ) -> None:
        fake_nvml.wave(0, period_s=0.1, busy_ratio=0.7, window_s=0.1 / 6)
        fake_nvml.stamps_count(777_777_777_777 if clock_id is None else clock_offset_us(clock_id))

        samples = samples_of(read_for(open_source(), 2.2, 0.1))

        start_ns, end_ns = samples[0].start_ns, samples[-1].end_ns
        assert total_ns(samples) == end_ns - start_ns
        assert seconds(end_ns - start_ns) > 1.8
        truth_ns = fake_nvml.busy_ns(0, start_ns, end_ns)
        assert busy_ns(samples) == pytest.approx(truth_ns, rel=0.01)

    def test_shows_nearly_every_gap_to_one_who_reads_once_a_period(
        self, fake_nvml: FakeNvml, open_source: Open
    ) -> None:
        fake_nvml.wave(0, period_s=0.1, busy_ratio=0.7, window_s=0.1 / 6)
        source = open_source()
        source.read()

        samples = samples_of(read_for(source, 2.45, 0.1))

        gaps = sum(early.busy_ratio > 0.35 >= late.busy_ratio for early, late in pairwise(samples))
        assert gaps >= 23

    def test_costs_a_drain_of_utilization_and_one_of_power_a_gpu_and_tick(
        self, fake_nvml: FakeNvml, open_source: Open
    ) -> None:
        for slot in (0, 1):
            fake_nvml.wave(slot, period_s=0.1, busy_ratio=0.7, window_s=0.1 / 6)
        source = open_source()
        source.read()
        fake_nvml.forget_calls()

        for _ in read_for(source, 0.95, 0.1):
            pass

        ticks = fake_nvml.calls(DRAIN) // 4
        assert ticks >= 8
        asked = fake_nvml.all_calls()
        del asked["nvmlEventSetWait_v2"]  # that is another thread, and holds nothing
        assert asked == {DRAIN: 4 * ticks}

    @pytest.mark.parametrize("held_up_ns", [0, PATIENCE_S * NS_PER_S], ids=["late", "in time"])
    def test_says_how_often_it_asked_each_function(
        self,
        held_up_ns: int,
        fake_nvml: FakeNvml,
        open_source: Open,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr("gpumon.sources.nvml.source._HELD_UP_NS", held_up_ns)
        fake_nvml.cut(0, 2)
        fake_nvml.run(1, 4000)
        told = dict(open_source().read().call_counts)

        asked = {
            name: calls
            for name, calls in fake_nvml.all_calls().items()
            if name not in (*NOT_THE_SOURCES, *AT_THE_END_OF_A_TICK)
        }
        assert {name: told.get(name) for name in asked} == asked

    def test_costs_little_more_with_what_changes_slowly(
        self, fake_nvml: FakeNvml, open_source: Open, clock: Clock
    ) -> None:
        source = open_source()
        source.read()
        fake_nvml.forget_calls()

        for _ in range(20):
            clock.ahead_ns += NS_PER_S // 2
            source.read()

        for name in ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetComputeRunningProcesses_v3"):
            assert 4 <= fake_nvml.calls(name) <= 6


class TestARingThatIsDry:
    @pytest.mark.measured
    def test_while_idle_is_read_as_idle_and_nothing_twice(
        self, fake_nvml: FakeNvml, open_source: Open
    ) -> None:
        fake_nvml.wave(0, period_s=1.0, busy_ratio=0.4, window_s=0.05, dry_when_idle=True)
        source = open_source()

        samples = samples_of(read_for(source, 2.1, 0.1))

        assert all(early.end_ns <= late.start_ns for early, late in pairwise(samples))
        idle_ns = total_ns([sample for sample in samples if sample.busy_ratio == 0.0])
        assert idle_ns > 0.7 * NS_PER_S
        start_ns, end_ns = samples[0].start_ns, samples[-1].end_ns
        truth_ns = fake_nvml.busy_ns(0, start_ns, end_ns)
        assert busy_ns(samples) == pytest.approx(truth_ns, rel=0.15)

    @pytest.mark.measured
    def test_from_the_start_leaves_the_utilisation_to_the_other_call(
        self, fake_nvml: FakeNvml, open_source: Open
    ) -> None:
        fake_nvml.ring(0, [])
        fake_nvml.gpu(0).rates_percent = 40
        source = open_source()

        frames = list(read_for(source, 0.5, 0.1))

        samples = samples_of(iter(frames))
        assert {sample.busy_ratio for sample in samples} == {0.4}
        assert total_ns(samples) == pytest.approx(0.4 * NS_PER_S, rel=0.2)
        assert frames[-1].gpus[0].utilization_ratio == 0.4

    @pytest.mark.measured
    def test_is_not_asked_for_on_boards_that_have_none(
        self, fake_nvml: FakeNvml, open_source: Open
    ) -> None:
        fake_nvml.fail(DRAIN, NOT_SUPPORTED, gpu=0)
        fake_nvml.gpu(0).rates_percent = 40
        source = open_source()

        samples = samples_of(read_for(source, 0.5, 0.1))

        assert total_ns(samples) == pytest.approx(0.4 * NS_PER_S, rel=0.2)
        # Of the other GPU in each tick, and of this one once: its utilisation, and its power.
        assert fake_nvml.calls(DRAIN) == 2 * (fake_nvml.calls(RATES) + 1)

    def test_is_asked_for_no_more_than_it_is_dry(
        self, fake_nvml: FakeNvml, open_source: Open
    ) -> None:
        fake_nvml.wave(0, period_s=1.0, busy_ratio=0.0, window_s=0.1)
        fake_nvml.wave(1, period_s=1.0, busy_ratio=0.0, window_s=0.1)
        source = open_source()

        for _ in read_for(source, 0.5, 0.02):
            pass

        assert fake_nvml.calls(RATES) == 0

    @pytest.mark.measured
    def test_over_a_stop_is_not_observed(
        self, fake_nvml: FakeNvml, open_source: Open, clock: Clock
    ) -> None:
        fake_nvml.ring(0, [])
        source = open_source()
        for _ in read_for(source, 0.35, 0.1):
            pass

        clock.ahead_ns += 60 * NS_PER_S
        stopped = source.read()
        time.sleep(0.1)
        after = source.read()

        assert total_ns(list(stopped.gpus[0].busy)) < MS
        assert 0 < total_ns(list(after.gpus[0].busy)) < NS_PER_S

    @pytest.mark.measured
    def test_goes_on_although_its_stamps_began_anew(
        self, fake_nvml: FakeNvml, open_source: Open
    ) -> None:
        later = [(stamp_us + 4_000_000, p) for stamp_us, p in recent(fake_nvml, 50, 50)]
        fake_nvml.ring(0, later)
        source = open_source()
        source.read()
        fake_nvml.ring(0, recent(fake_nvml, 80, 80))

        time.sleep(0.5)
        source.read()
        fake_nvml.push(0, *following(fake_nvml, 0, 90, 90))

        assert source.read().gpus[0].utilization_ratio == 0.9


class TestAStop:
    @pytest.mark.measured
    def test_leaves_observed_what_the_ring_still_holds(
        self, fake_nvml: FakeNvml, open_source: Open
    ) -> None:
        fake_nvml.wave(0, period_s=0.1, busy_ratio=0.5, window_s=0.02)
        fake_nvml.gpu(0).ring_depth = 20
        source = open_source()
        for _ in read_for(source, 0.25, 0.1):
            pass

        time.sleep(1.0)
        samples = samples_of(iter([source.read()]))

        assert len(samples) == 20
        assert total_ns(samples) == pytest.approx(20 * 20 * MS, rel=0.01)
