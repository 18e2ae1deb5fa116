"""Tests of simulated GPUs that follow a script."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gpumon.core.sample import BusySample, GpuSample
from gpumon.errors import UsageError
from gpumon.sources.simulated import SCRIPTS, SimulatedSource
from tests.builders.time import HandClock, s


def read_each_second(script: str, seconds: int, gpu: int = 0) -> list[GpuSample]:
    """Return the sample of one GPU, second by second."""
    clock = HandClock()
    source = SimulatedSource(script, clock)
    reported = []
    for _ in range(seconds):
        clock.pass_seconds(1.0)
        reported.append(source.read().gpus[gpu])
    return reported


def read_once(script: str, after_s: float) -> tuple[GpuSample, ...]:
    """Return one sample of all its GPUs."""
    clock = HandClock()
    source = SimulatedSource(script, clock)
    clock.pass_seconds(after_s)
    return source.read().gpus


def busy_samples(script: str, seconds: int, gpu: int = 0) -> list[BusySample]:
    """Return all utilisation samples of one GPU."""
    return [sample for one in read_each_second(script, seconds, gpu) for sample in one.busy]


def busy_ratio(samples: list[BusySample]) -> float:
    busy_ns = sum((end - start) * ratio for start, end, ratio in samples)
    return busy_ns / (samples[-1].end_ns - samples[0].start_ns)


class TestEveryScript:
    @pytest.mark.parametrize("script", sorted(SCRIPTS))
    def test_has_samples_without_a_gap_or_an_overlap(self, script: str) -> None:
        first = next(at for at, rhythm in enumerate(SCRIPTS[script]) if not rhythm.mig_enabled)
        samples = busy_samples(script, 9, gpu=first)

        assert len(samples) > 1
        assert all(a.end_ns == b.start_ns for a, b in pairwise(samples))
        assert all(0.0 <= sample.busy_ratio <= 1.0 for sample in samples)

    def test_is_listed_for_an_unknown_name(self) -> None:
        with pytest.raises(UsageError, match="input-bound"):
            SimulatedSource("lunch", HandClock())


class TestInputBound:
    def test_alternates_between_work_and_waits(self) -> None:
        samples = busy_samples("input-bound", 30)

        assert busy_ratio(samples) == pytest.approx(0.5, abs=0.01)
        first_pause = next(sample for sample in samples if sample.busy_ratio == 0.0)
        assert first_pause.start_ns - samples[0].start_ns == pytest.approx(s(1.5), abs=s(0.17))


class TestFallsOff:
    def test_loses_one_gpu_and_the_other_continues(self) -> None:
        healthy, lost = read_once("falls-off", 12.0)

        assert (healthy.error, lost.busy) == (None, ())
        assert healthy.busy
        assert "the bus" in (lost.error or "")


class TestUnderFilled:
    def test_has_two_equally_busy_gpus_and_only_one_with_high_sm_utilisation(self) -> None:
        quarter, full = read_once("under-filled", 10.0)

        assert quarter.busy == full.busy
        assert quarter.activity is not None
        assert full.activity is not None
        assert quarter.activity.sm_active_ratio == pytest.approx(0.97 * 0.25)
        assert full.activity.sm_active_ratio == pytest.approx(0.97 * 0.94)
        assert quarter.activity.graphics_ratio == full.activity.graphics_ratio
        assert (quarter.power_watts or 0) < 0.5 * (full.power_watts or 0)


class TestMig:
    def test_has_a_gpu_without_utilisation_and_its_two_instances(self) -> None:
        parent, *parts = read_once("mig", 10.0)

        assert parent.device.mig_enabled
        assert parent.busy == ()
        assert parent.utilization_ratio is None
        assert [part.device.label for part in parts] == ["0:0", "0:1"]
        assert {part.device.parent_uuid for part in parts} == {parent.device.uuid}
        assert all(part.busy and part.activity for part in parts)
        assert all(part.power_watts is None for part in parts)
