"""Specification of GPM on the fake: two samples, and the truth about the time in between."""

from __future__ import annotations

from typing import Any

import pynvml
import pytest

from tests.fakenvml import codes
from tests.fakenvml.control import FakeNvml

GRAPHICS, SM = 1, 2


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


def metrics_over(nvml: FakeNvml, handle: Any, seconds: float, *ids: int) -> list[Any]:
    before = sample_of(handle)
    nvml.advance(seconds)
    return metrics(before, sample_of(handle), *ids)


class TestTwoSamples:
    @pytest.mark.parametrize(
        ("apart_s", "unheard_of", "answers"),
        [
            pytest.param(0.099, GRAPHICS, [codes.UNKNOWN, codes.UNKNOWN], id="too close together"),
            pytest.param(1.0, 30, [0, pynvml.NVML_ERROR_NOT_SUPPORTED], id="no such metric"),
        ],
    )
    def test_have_a_code_where_there_is_no_value(
        self, nvml: FakeNvml, handle: Any, apart_s: float, unheard_of: int, answers: list[int]
    ) -> None:
        found = metrics_over(nvml, handle, apart_s, SM, unheard_of)

        assert [one.nvmlReturn for one in found] == answers

    def test_of_two_gpus_are_refused(self, nvml: FakeNvml) -> None:
        first, second = (sample_of(pynvml.nvmlDeviceGetHandleByIndex(at)) for at in (0, 1))

        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            metrics(first, second, SM)


class TestASample:
    def test_is_not_to_be_had_of_a_board_without_gpm(self, nvml: FakeNvml) -> None:
        nvml.gpm(1, supported=False)
        with_it, without = (pynvml.nvmlDeviceGetHandleByIndex(at) for at in (0, 1))

        assert pynvml.nvmlGpmQueryDeviceSupport(with_it).isSupportedDevice == 1
        assert pynvml.nvmlGpmQueryDeviceSupport(without).isSupportedDevice == 0
        with pytest.raises(pynvml.NVMLError_NotSupported):
            sample_of(without)


class TestAnInstance:
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
