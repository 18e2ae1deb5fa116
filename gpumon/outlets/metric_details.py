"""Readers of what a board says every few seconds, of its activity, and of its errors.

All of it but the errors is of *now*: it goes with the GPU, and there is none of
a field that the board does not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from gpumon.core.sample import ActivitySample, GpuDetails
from gpumon.core.throttle_reasons import THROTTLE_REASONS
from gpumon.outlets.metric_selection import MAX_XIDS
from gpumon.outlets.metric_view import MetricView, Reader, Row, latest


def _detail(read: Callable[[GpuDetails], float | None]) -> Reader:
    return latest(lambda sample: None if sample.details is None else read(sample.details))


def _activity(read: Callable[[ActivitySample], float | None]) -> Reader:
    return latest(lambda sample: None if sample.activity is None else read(sample.activity))


def _details(view: MetricView) -> Iterator[tuple[str, GpuDetails]]:
    for gpu in view.gpus_present():
        if gpu.latest is not None and gpu.latest.details is not None:
            yield gpu.device.uuid, gpu.latest.details


def _throttled(view: MetricView) -> Iterator[Row]:
    # Every reason, where the board answers at all: a series that comes and goes cannot be averaged.
    for uuid, details in _details(view):
        reasons = details.throttle_reasons
        if reasons is not None:
            yield from (
                ((uuid, reason), int(reason in reasons)) for reason in THROTTLE_REASONS.values()
            )


def _ecc_errors(view: MetricView) -> Iterator[Row]:
    for uuid, details in _details(view):
        yield (uuid, "corrected"), details.ecc_corrected_errors
        yield (uuid, "uncorrected"), details.ecc_uncorrected_errors


def _xid_errors(view: MetricView) -> Iterator[Row]:
    # Of a lost GPU, too: its last error is often why it is lost.
    for gpu in () if view.selection is None else view.selection.gpus:
        if gpu.listed:
            errors = gpu.xid_errors[:MAX_XIDS]
            yield from (((gpu.device.uuid, xid), count) for xid, count in errors)


DETAIL_READERS: Final[Mapping[str, Reader]] = MappingProxyType(
    {
        "gpumon_gpu_throttled": _throttled,
        "gpumon_gpu_power_limit_watts": _detail(lambda told: told.power_limit_watts),
        "gpumon_gpu_memory_clock_hertz": _detail(lambda told: told.memory_clock_hertz),
        "gpumon_gpu_sm_clock_max_hertz": _detail(lambda told: told.sm_clock_max_hertz),
        "gpumon_gpu_performance_state": _detail(lambda told: told.performance_state),
        "gpumon_gpu_persistence_mode": _detail(lambda told: told.persistence_mode),
        "gpumon_gpu_ecc_errors_total": _ecc_errors,
        "gpumon_gpu_xid_errors_total": _xid_errors,
        "gpumon_gpu_sm_active_ratio": _activity(lambda seen: seen.sm_active_ratio),
        "gpumon_gpu_sm_occupancy_ratio": _activity(lambda seen: seen.sm_occupancy_ratio),
        "gpumon_gpu_tensor_active_ratio": _activity(lambda seen: seen.tensor_active_ratio),
        "gpumon_gpu_memory_bandwidth_ratio": _activity(lambda seen: seen.memory_bandwidth_ratio),
        "gpumon_gpu_fan_speed_ratio": _detail(lambda told: told.fan_speed_ratio),
        "gpumon_gpu_encoder_ratio": _detail(lambda told: told.encoder_ratio),
        "gpumon_gpu_decoder_ratio": _detail(lambda told: told.decoder_ratio),
        "gpumon_gpu_pcie_transmitted_bytes_per_second": _detail(
            lambda told: told.pcie_transmitted_bytes_per_second
        ),
        "gpumon_gpu_pcie_received_bytes_per_second": _detail(
            lambda told: told.pcie_received_bytes_per_second
        ),
        "gpumon_gpu_nvlink_transmitted_bytes_per_second": _detail(
            lambda told: told.nvlink_transmitted_bytes_per_second
        ),
        "gpumon_gpu_nvlink_received_bytes_per_second": _detail(
            lambda told: told.nvlink_received_bytes_per_second
        ),
    }
)
"""Reader of each family by its full name."""
