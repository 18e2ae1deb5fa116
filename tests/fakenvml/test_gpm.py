"""Specification of GPM on the fake: two samples, and the truth about the time in between."""

from __future__ import annotations

from typing import Any

import pynvml
import pytest

from tests.fakenvml.control import UNKNOWN, FakeNvml

GRAPHICS, SM, OCCUPANCY, TENSOR, DRAM = 1, 2, 3, 5, 10


@pytest.fixture
def nvml(fake_nvml: FakeNvml) -> FakeNvml:
    pynvml.nvmlInit()
    fake_nvml.stop_clock()
    return fake_nvml


def sample_of(handle: Any, gpu_instance: int | None = None) -> Any:
    sample = pynvml.nvmlGpmSampleAlloc()
    if gpu_instance is None:
        return pynvml.nvmlGpmSampleGet(handle, sample)
    return pynvml.nvmlGpmMigSampleGet(handle, gpu_instance, sample)


def metrics(before: Any, after: Any, *ids: int) -> list[Any]:
    """The metrics between two samples, each with its code; the samples are freed."""
    asked = pynvml.c_nvmlGpmMetricsGet_t()
    asked.version, asked.numMetrics = pynvml.NVML_GPM_METRICS_GET_VERSION, len(ids)
    asked.sample1, asked.sample2 = before, after
    for place, metric in enumerate(ids):
        asked.metrics[place].metricId = metric
    try:
        return list(pynvml.nvmlGpmMetricsGet(asked).metrics[: len(ids)])
    finally:
        pynvml.nvmlGpmSampleFree(before)
        pynvml.nvmlGpmSampleFree(after)


def values(before: Any, after: Any, *ids: int) -> list[float]:
    return [metric.value for metric in metrics(before, after, *ids)]


class TestTwoSamples:
    def test_say_how_much_worked_in_between(self, nvml: FakeNvml) -> None:
        nvml.wave(0, period_s=1.0, busy_ratio=0.8)
        nvml.gpm(0, sm=0.25, occupancy=0.1, tensor=0.05, dram=0.2)
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)

        before = sample_of(handle)
        nvml.advance(3.0)
        found = values(before, sample_of(handle), GRAPHICS, SM, OCCUPANCY, TENSOR, DRAM)

        assert found == pytest.approx([80.0, 20.0, 8.0, 4.0, 16.0])

    def test_tell_the_truth_of_any_stretch(self, nvml: FakeNvml) -> None:
        nvml.wave(0, period_s=0.7, busy_ratio=0.4, phase_s=0.2)
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        start_ns = nvml.now_ns()

        before = sample_of(handle)
        end_ns = nvml.advance(0.31)
        (graphics,) = values(before, sample_of(handle), GRAPHICS)

        truth = nvml.busy_ns(0, start_ns, end_ns) / (end_ns - start_ns)
        assert graphics == pytest.approx(100 * truth)

    def test_too_close_together_have_a_code_instead_of_each_value(self, nvml: FakeNvml) -> None:
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)

        before = sample_of(handle)
        nvml.advance(0.099)
        found = metrics(before, sample_of(handle), GRAPHICS, SM)

        assert [metric.nvmlReturn for metric in found] == [UNKNOWN, UNKNOWN]

    def test_have_a_code_where_one_metric_is_not_known(self, nvml: FakeNvml) -> None:
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)

        before = sample_of(handle)
        nvml.advance(1.0)
        found = metrics(before, sample_of(handle), SM, 30)

        assert [metric.nvmlReturn for metric in found] == [0, pynvml.NVML_ERROR_NOT_SUPPORTED]

    def test_of_two_gpus_are_refused(self, nvml: FakeNvml) -> None:
        first, second = (sample_of(pynvml.nvmlDeviceGetHandleByIndex(at)) for at in (0, 1))

        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            metrics(first, second, SM)


class TestASample:
    def test_is_counted_until_it_is_freed(self, nvml: FakeNvml) -> None:
        held = [pynvml.nvmlGpmSampleAlloc() for _ in range(3)]
        assert nvml.gpm_samples_held == 3

        for sample in held:
            pynvml.nvmlGpmSampleFree(sample)
        assert nvml.gpm_samples_held == 0
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlGpmSampleFree(held[0])

    def test_is_not_to_be_had_of_a_board_without_gpm(self, nvml: FakeNvml) -> None:
        nvml.gpm(1, supported=False)
        with_it, without = (pynvml.nvmlDeviceGetHandleByIndex(at) for at in (0, 1))

        assert pynvml.nvmlGpmQueryDeviceSupport(with_it).isSupportedDevice == 1
        assert pynvml.nvmlGpmQueryDeviceSupport(without).isSupportedDevice == 0
        with pytest.raises(pynvml.NVMLError_NotSupported):
            sample_of(without)


class TestAnInstance:
    def test_has_work_and_ratios_of_its_own(self, nvml: FakeNvml) -> None:
        nvml.cut(0, 2)
        nvml.part_wave(0, 0, period_s=1.0, busy_ratio=0.3)
        nvml.part_wave(0, 1, period_s=1.0, busy_ratio=0.9)
        nvml.gpm(0, part=1, sm=0.5)
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        numbers = [nvml.part(0, at).gpu_instance for at in (0, 1)]

        before = [sample_of(handle, number) for number in numbers]
        nvml.advance(2.0)
        after = [sample_of(handle, number) for number in numbers]
        first, second = (values(b, a, GRAPHICS, SM) for b, a in zip(before, after, strict=True))

        assert first == pytest.approx([30.0, 30.0])
        assert second == pytest.approx([90.0, 45.0])

    def test_can_be_sampled_by_its_own_handle_but_its_parent_cannot(self, nvml: FakeNvml) -> None:
        nvml.cut(0, 1)
        parent = pynvml.nvmlDeviceGetHandleByIndex(0)

        assert sample_of(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(parent, 0))
        with pytest.raises(pynvml.NVMLError_NotSupported):
            sample_of(parent)

    def test_made_anew_under_the_same_number_is_another_one(self, nvml: FakeNvml) -> None:
        nvml.cut(0, 1)
        number = nvml.part(0, 0).gpu_instance
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)

        before = sample_of(handle, number)
        nvml.destroy_part(0, 0)
        nvml.create_part(0)
        nvml.advance(1.0)

        assert nvml.part(0, 0).gpu_instance == number
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            metrics(before, sample_of(handle, number), SM)
