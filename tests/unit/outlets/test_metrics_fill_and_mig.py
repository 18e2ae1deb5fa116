"""Specification of the series of GPUs that are under-filled, and of MIG instances."""

from __future__ import annotations

from gpumon.core.state import GpuState
from gpumon.core.time.totals import GpuTotals
from tests.builders_fill import gpm_fill, power_fill
from tests.builders_state import device, healthy_gpu, monitor_state
from tests.unit.outlets.metrics.test_prometheus import series, text_of


def told(gpu: GpuState, name: str) -> dict[tuple[str, ...], float]:
    return series(text_of(monitor_state(gpus=(gpu,))), name)


def instance() -> GpuState:
    part = device(0, "MIG-a", parent_uuid="GPU-a", mig_index=1, gpu_instance=2, compute_instance=0)
    return healthy_gpu(device=part)


class TestAnUnderFilledGpu:
    def test_is_1_while_it_is(self) -> None:
        full = healthy_gpu(fill=gpm_fill(0.9))
        empty = healthy_gpu(fill=power_fill(180.0), under_filled_now=True)

        assert list(told(full, "gpumon_gpu_under_filled").values()) == [0.0]
        assert list(told(empty, "gpumon_gpu_under_filled").values()) == [1.0]

    def test_has_no_series_where_nothing_tells(self) -> None:
        assert told(healthy_gpu(), "gpumon_gpu_under_filled") == {}


class TestAMigInstance:
    def test_is_named_as_people_number_it(self) -> None:
        (labels,) = told(instance(), "gpumon_gpu_info")

        assert "0:1" in labels

    def test_names_its_gpu_and_its_numbers(self) -> None:
        assert told(instance(), "gpumon_gpu_mig_info") == {("0", "2", "GPU-a", "MIG-a"): 1.0}

    def test_is_told_apart_from_a_gpu_by_that(self) -> None:
        assert told(healthy_gpu(), "gpumon_gpu_mig_info") == {}


class TestAGpuCutByMig:
    def test_has_no_time_that_it_did_not_have_and_is_neither_starved_nor_not(self) -> None:
        parent = healthy_gpu(device=device(0, "GPU-a", mig_enabled=True), totals=GpuTotals())

        assert told(parent, "gpumon_gpu_observed_seconds_total") == {}
        assert told(parent, "gpumon_gpu_starved") == {}
        assert list(told(parent, "gpumon_gpu_info")) != []

    def test_keeps_the_time_it_had_before(self) -> None:
        earlier = healthy_gpu(device=device(0, "GPU-a", mig_enabled=True))

        assert list(told(earlier, "gpumon_gpu_observed_seconds_total").values()) == [100.0]
