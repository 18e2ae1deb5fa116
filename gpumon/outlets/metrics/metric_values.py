"""From one tick's selection to label values and numbers, one small reader for each family.

Readers are pure and know nothing of Prometheus. A value of ``None`` is *no
answer*, and gets no series.

Readers of what a board says every few seconds, of its activity, and of its errors.

All of it but the errors is of *now*: it goes with the GPU, and there is none of
a field that the board does not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from gpumon.core.board.throttling import THROTTLE_REASONS
from gpumon.core.clock import seconds
from gpumon.core.phase import CAUSES, PHASES
from gpumon.core.sample import ActivitySample, GpuDetails
from gpumon.core.settings.detector import GAP_BUCKETS_SECONDS
from gpumon.core.state import CollectorState, RunState
from gpumon.core.time.totals import GpuTotals
from gpumon.outlets.metrics.metric_view import (
    MAX_XIDS,
    HistogramValue,
    MetricView,
    Reader,
    Row,
    latest,
)


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


def _total(read: Callable[[GpuTotals], float]) -> Reader:
    return lambda view: (((gpu.device.uuid,), read(gpu.totals)) for gpu in view.gpus_counted())


def _collector(read: Callable[[CollectorState], float]) -> Reader:
    return lambda view: (
        ((collector.name,), read(collector))
        for collector in (() if view.selection is None else view.selection.collectors)
    )


def _run(read: Callable[[RunState], float]) -> Reader:
    return lambda view: (((run.run,), read(run)) for run in view.runs())


def _build_info(view: MetricView) -> Iterator[Row]:
    yield (view.version,), 1


def _gpu_info(view: MetricView) -> Iterator[Row]:
    for gpu in view.gpus_present():
        device = gpu.device
        names = (device.name, device.pci_bus_id, device.driver_version)
        yield (device.uuid, device.label, *names), 1


def _mig_info(view: MetricView) -> Iterator[Row]:
    for gpu in view.gpus_present():
        device = gpu.device
        if device.parent_uuid is not None:
            numbers = (device.gpu_instance, device.compute_instance)
            yield (device.uuid, device.parent_uuid, *numbers), 1


def _idle_by_cause(view: MetricView) -> Iterator[Row]:
    # All causes from the start: a series that begins in mid-stall hides its first rise from rate().
    for gpu in view.gpus_counted():
        idle_ns = gpu.totals.idle_ns
        yield from (
            ((gpu.device.uuid, cause.value), seconds(idle_ns.get(cause, 0))) for cause in CAUSES
        )


def _input_wait_by_reason(view: MetricView) -> Iterator[Row]:
    for gpu in view.gpus_counted():
        for reason, waited_ns in sorted(gpu.totals.input_wait_by_reason_ns.items()):
            yield (gpu.device.uuid, reason), seconds(waited_ns)


def _claims_refused(view: MetricView) -> Iterator[Row]:
    for gpu in view.gpus_counted():
        yield (gpu.device.uuid,), gpu.claims_refused


def _idle_gaps(view: MetricView) -> Iterator[Row]:
    for gpu in view.gpus_counted():
        gaps = gpu.totals.gaps
        counts = gaps.bucket_counts or (0,) * len(GAP_BUCKETS_SECONDS)
        yield (gpu.device.uuid,), HistogramValue(counts, gaps.count, seconds(gaps.total_ns))


def _sample_resolution(view: MetricView) -> Iterator[Row]:
    for gpu in view.gpus_present():
        if gpu.resolution_ns is not None:
            yield (gpu.device.uuid,), seconds(gpu.resolution_ns)


def _memory_capacity(view: MetricView) -> Iterator[Row]:
    for gpu in view.gpus_present():
        yield (gpu.device.uuid,), gpu.device.memory_capacity_bytes


def _starved_now(view: MetricView) -> Iterator[Row]:
    for gpu in view.gpus_present():
        if not gpu.device.mig_enabled:
            yield (gpu.device.uuid,), int(gpu.totals.starved_now)


def _under_filled(view: MetricView) -> Iterator[Row]:
    for gpu in view.gpus_present():
        if gpu.fill is not None and gpu.fill.evidence is not None:
            yield (gpu.device.uuid,), int(gpu.under_filled_now)


def _run_info(view: MetricView) -> Iterator[Row]:
    for run in view.runs():
        yield (run.run, run.job, run.rank, run.framework, run.pid), 1


def _phase_seconds(view: MetricView) -> Iterator[Row]:
    for run in view.runs():
        for phase in PHASES:
            if phase in run.phase_ns:
                yield (run.run, phase.value), seconds(run.phase_ns[phase])


def _phase_now(view: MetricView) -> Iterator[Row]:
    for run in view.runs_now():
        yield from (((run.run, phase.value), int(run.phase is phase)) for phase in PHASES)


def _epoch(view: MetricView) -> Iterator[Row]:
    for run in view.runs_now():
        yield (run.run,), run.epoch


def _first_input_wait(view: MetricView) -> Iterator[Row]:
    for run in view.runs():
        if run.first_input_wait_ns is not None:
            yield (run.run,), seconds(run.first_input_wait_ns)


def _shares(view: MetricView) -> Iterator[Row]:
    for run in view.runs_now():
        yield from (((run.run, uuid), share) for uuid, share in run.shares.items())


def _ratio_changes(view: MetricView) -> Iterator[Row]:
    for run in view.runs():
        if run.shares or run.ratio_changes:
            yield (run.run,), run.ratio_changes


def _call_seconds(view: MetricView) -> Iterator[Row]:
    if view.selection is not None:
        yield from (((name,), spent_s) for name, spent_s in view.selection.call_seconds)


def _calls(view: MetricView) -> Iterator[Row]:
    if view.selection is not None:
        told = dict(view.selection.call_seconds)  # the same functions, so that one cap is for both
        counts = view.selection.state.call_counts
        yield from (((name,), calls) for name, calls in counts if name in told)


def _call_errors(view: MetricView) -> Iterator[Row]:
    if view.selection is not None:
        errors = view.selection.call_errors
        yield from (((name, code), count) for name, code, count in errors)


def _samples(view: MetricView) -> Iterator[Row]:
    if view.selection is not None:
        yield (), view.selection.state.samples_total


def _samples_missed(view: MetricView) -> Iterator[Row]:
    if view.selection is not None:
        yield (), view.selection.state.missed_total


def _rings_left_out(view: MetricView) -> Iterator[Row]:
    if view.selection is not None:
        for uid, count in view.selection.state.rings_left_out:
            yield ("_other" if uid is None else uid,), count


def _last_sample_timestamps(view: MetricView) -> Iterator[Row]:
    if view.selection is None:
        return
    state = view.selection.state
    for gpu in view.selection.gpus:
        if gpu.last_sample_at_ns is not None and gpu.listed:
            age_ns = state.taken_at_ns - gpu.last_sample_at_ns
            yield (gpu.device.uuid,), state.wall_time_s - seconds(age_ns)


READERS: Final[Mapping[str, Reader]] = MappingProxyType(
    {
        "gpumon_build_info": _build_info,
        "gpumon_gpu_observed_seconds_total": _total(lambda totals: seconds(totals.observed_ns)),
        "gpumon_gpu_busy_seconds_total": _total(lambda totals: seconds(totals.busy_ns)),
        "gpumon_gpu_idle_seconds_total": _idle_by_cause,
        "gpumon_gpu_idle_pending_seconds": _total(lambda totals: seconds(totals.pending_ns)),
        "gpumon_gpu_starved_seconds_total": _total(lambda totals: seconds(totals.starved_ns)),
        "gpumon_gpu_suspected_seconds_total": _total(lambda totals: seconds(totals.suspected_ns)),
        "gpumon_gpu_input_wait_seconds_total": _input_wait_by_reason,
        "gpumon_gpu_starvation_episodes_total": _total(lambda totals: totals.episodes),
        "gpumon_gpu_claims_refused_total": _claims_refused,
        "gpumon_gpu_idle_gap_seconds": _idle_gaps,
        "gpumon_gpu_info": _gpu_info,
        "gpumon_gpu_mig_info": _mig_info,
        "gpumon_gpu_starved": _starved_now,
        "gpumon_gpu_under_filled": _under_filled,
        "gpumon_gpu_sample_resolution_seconds": _sample_resolution,
        "gpumon_gpu_utilization_ratio": latest(lambda sample: sample.utilization_ratio),
        "gpumon_gpu_memory_used_bytes": latest(lambda sample: sample.memory_used_bytes),
        "gpumon_gpu_memory_capacity_bytes": _memory_capacity,
        "gpumon_gpu_power_watts": latest(lambda sample: sample.power_watts),
        "gpumon_gpu_energy_joules_total": latest(lambda sample: sample.energy_joules),
        "gpumon_gpu_temperature_celsius": latest(lambda sample: sample.temperature_celsius),
        "gpumon_gpu_sm_clock_hertz": latest(lambda sample: sample.sm_clock_hertz),
        **DETAIL_READERS,
        "gpumon_training_run_info": _run_info,
        "gpumon_training_phase_seconds_total": _phase_seconds,
        "gpumon_training_phase": _phase_now,
        "gpumon_training_steps_total": _run(lambda run: run.steps),
        "gpumon_training_first_input_wait_seconds_total": _first_input_wait,
        "gpumon_training_samples_total": _run(lambda run: run.samples),
        "gpumon_training_epoch": _epoch,
        "gpumon_training_share_ratio": _shares,
        "gpumon_training_ratio_changes_total": _ratio_changes,
        "gpumon_nvml_call_seconds_total": _call_seconds,
        "gpumon_nvml_calls_total": _calls,
        "gpumon_nvml_errors_total": _call_errors,
        "gpumon_samples_total": _samples,
        "gpumon_samples_missed_total": _samples_missed,
        "gpumon_last_sample_timestamp_seconds": _last_sample_timestamps,
        "gpumon_phase_rings_left_out": _rings_left_out,
        "gpumon_collector_duration_seconds": _collector(lambda one: one.duration_seconds),
        "gpumon_collector_errors_total": _collector(lambda one: one.errors_total),
        "gpumon_collector_success": _collector(lambda one: int(one.success)),
    }
)
"""Reader of each family by its full name; ``prometheus`` itself tells what it refused."""
