"""Specification of how samples come: cadence, phase, delay, power, and the driver's clock."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import pynvml
import pytest

from tests.fakenvml.control import FakeNvml

UTILISATION, POWER = pynvml.NVML_GPU_UTILIZATION_SAMPLES, pynvml.NVML_TOTAL_POWER_SAMPLES


def samples(kind: int = UTILISATION, index: int = 0, after_us: int = 0) -> list[tuple[int, int]]:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    _, found = pynvml.nvmlDeviceGetSamples(handle, kind, after_us)
    return [(sample.timeStamp, sample.sampleValue.uiVal) for sample in found]


def steps_s(found: list[tuple[int, int]]) -> list[float]:
    return [round((after - before) / 1e6, 3) for (before, _), (after, _) in pairwise(found)]


class TestAStoppedClock:
    def test_stands_until_it_is_moved(self, nvml: FakeNvml) -> None:
        nvml.wave(0, period_s=1.0, busy_ratio=0.5)
        before = samples()
        time.sleep(0.2)
        assert samples() == before

        nvml.advance(1.0)
        assert samples()[:-6] == before[6:]


class TestAnIdleGpu:
    def test_has_a_sample_a_second_over_a_long_time(self, nvml: FakeNvml) -> None:
        nvml.slow_when_idle(0, every_s=1.0)
        nvml.advance(300.0)

        found = samples()

        assert len(found) == nvml.gpu(0).ring_depth
        assert set(steps_s(found)) == {1.0}
        assert {percent for _, percent in found} == {0}

    def test_keeps_its_power_samples_for_two_minutes(self, nvml: FakeNvml) -> None:
        nvml.slow_when_idle(0, every_s=1.0)
        nvml.draw(0, busy_watts=600, idle_watts=70)
        nvml.advance(300.0)

        found = samples(POWER)

        assert len(found) == 119
        assert found[-1][0] - found[0][0] == 118_000_000
        assert {milliwatts for _, milliwatts in found} == {70_000}

    def test_is_followed_at_once_when_it_works(self, nvml: FakeNvml) -> None:
        nvml.slow_when_idle(0, every_s=1.0)
        nvml.wave(0, period_s=20.0, busy_ratio=0.5)
        nvml.advance(40.0)

        found = samples()

        assert {round(step_s, 2) for step_s in steps_s(found)} >= {0.17, 1.0}
        covered = sum(step_s for step_s in steps_s(found))
        busy = sum(
            step_s * percent / 100
            for step_s, (_, percent) in zip(steps_s(found), found[1:], strict=True)
        )
        start_ns = (found[0][0] - nvml.control.stamp_offset_us) * 1000
        truth_ns = nvml.busy_ns(0, start_ns, start_ns + round(covered * 1e9))
        assert busy == pytest.approx(truth_ns / 1e9, abs=0.05)


class TestPower:
    def test_is_told_as_the_average_of_a_second_and_adds_up_to_the_energy_of_a_day(
        self, nvml: FakeNvml, handle: Any
    ) -> None:
        nvml.wave(0, period_s=0.5, busy_ratio=0.25)
        nvml.draw(0, busy_watts=500, idle_watts=100)
        before_mj = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        assert pynvml.nvmlDeviceGetPowerUsage(handle) == pytest.approx(200_000, abs=1)

        nvml.advance(86_400.0)

        grown_mj = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) - before_mj
        assert grown_mj == pytest.approx(86_400 * 200_000, rel=1e-9)


class TestAWindow:
    @pytest.mark.parametrize("scattered", [False, True])
    def test_is_true_wherever_it_begins(self, nvml: FakeNvml, scattered: bool) -> None:
        for slot in (0, 1):
            nvml.wave(slot, period_s=1.0, busy_ratio=0.7, phase_s=0.3)
        if scattered:
            nvml.scatter_windows(seed=7)

        first, second = samples(index=0), samples(index=1)

        stamps = {stamp_us for stamp_us, _ in first}
        assert stamps.isdisjoint(stamp_us for stamp_us, _ in second) is scattered
        assert len(first) == 120
        window_ns = nvml.gpu(0).window_ns
        for stamp_us, percent in first:
            end_ns = (stamp_us - nvml.control.stamp_offset_us) * 1000
            truth = nvml.busy_ns(0, end_ns - window_ns, end_ns) / window_ns
            assert percent == pytest.approx(100 * truth, abs=0.6)

    def test_lies_the_same_with_the_same_seed(self, nvml: FakeNvml) -> None:
        found = []
        for seed in (7, 8, 7):
            nvml.scatter_windows(seed)
            found.append(samples())

        assert found[0] == found[2] != found[1]

    def test_is_seen_only_when_it_is_published(self, nvml: FakeNvml) -> None:
        nvml.publish_late(0, by_s=2.0)

        newest_us = samples()[-1][0]

        late_s = (nvml.stamp_us(nvml.now_ns()) - newest_us) / 1e6
        assert 2.0 <= late_s < 2.0 + 1 / 6
