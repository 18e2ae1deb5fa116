"""The table of all metrics, in the order of a scrape.

``docs/metrics.md`` shows it, and ``prometheus`` exports it. A value that a device does not
support has no series: not 0, not NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from gpumon.outlets.metrics.metric_values import (
    MetricView,
    Reader,
    activity,
    activity_seconds,
    busy_time,
    collector,
    counted,
    detail,
    idle_time,
    listed,
    now,
    of_state,
    run_counter,
    run_now,
    sample,
    transferred,
)


class MetricKind(str, Enum):
    """Metric type in Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpec:
    """One metric family.

    Attributes:
        name: With its unit and, for a counter, ``_total``.
        help: One sentence for ``# HELP``.
        labels: Label names in the order of the values.
        group: Metrics that fail together, as
            ``gpumon_collector_success{collector="metrics_<group>"}`` reports.
        read: Its label values and numbers; ``None``: ``prometheus`` provides them.
    """

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    group: str
    read: Reader | None


_COUNTER, _GAUGE, _HISTOGRAM = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM

_BUILD = (("build_info", _GAUGE, "version", MetricView.build_info, "Version of gpumon; always 1."),)

_GPU_TIME = (
    ("gpu_observed_seconds_total", _COUNTER, "uuid", MetricView.observed,
     "Total time in seconds covered by valid samples of the GPU."),
    ("gpu_busy_seconds_total", _COUNTER, "uuid", MetricView.busy,
     "Total time in seconds at least one kernel was running on the GPU."),
    ("gpu_idle_seconds_total", _COUNTER, "uuid cause", MetricView.idle_by_cause,
     "Total time in seconds no kernel was running on the GPU, by cause."),
    ("gpu_idle_pending_seconds", _GAUGE, "uuid", MetricView.idle_pending,
     "Idle time in seconds whose cause is not settled or not exported yet; observed minus busy "
     "minus idle."),
    ("gpu_starved_seconds_total", _COUNTER, "uuid", counted("totals.starved_ns"),
     "Total time in seconds the GPU was certainly idle because its training run waited for input."),
    ("gpu_seen_seconds_total", _COUNTER, "uuid cause", MetricView.seen_by_cause,
     "Part of the idle time in seconds whose cause stack samples showed, by cause; no series "
     "without `gpumon serve --stacks`."),
    ("gpu_suspected_seconds_total", _COUNTER, "uuid", counted("totals.suspected_ns"),
     "Total time in seconds of untagged pauses that were probably waits for input."),
    ("gpu_rank_wait_seconds_total", _COUNTER, "uuid", counted("totals.rank_wait_low_ns"),
     "Total time in seconds the GPU certainly waited for another rank of its job while it was "
     "reported as busy."),
    ("gpu_input_wait_seconds_total", _COUNTER, "uuid reason", MetricView.input_wait_by_reason,
     "Total time in seconds the GPU was idle waiting for input, by reason; with the reason "
     "unknown, they add up to the cause input_wait."),
    ("gpu_starvation_episodes_total", _COUNTER, "uuid", counted("totals.episodes"),
     "Number of times the GPU became starved."),
    ("gpu_claims_refused_total", _COUNTER, "uuid", counted("claims_refused"),
     "Number of runs that named the GPU while only processes of other users were on it; their "
     "tags are ignored there."),
    ("gpu_idle_gap_seconds", _HISTOGRAM, "uuid", MetricView.gap_lengths,
     "Length in seconds of pauses between two bursts of work, counted when the pause ends."),
)  # fmt: skip

_GPU_NOW = (
    ("gpu_info", _GAUGE, "uuid gpu name pci_bus_id driver_version", MetricView.gpu_info,
     "Labels of a responding GPU, to join by uuid; gpu is 0:1 for MIG instance 1 of GPU 0; "
     "always 1."),
    ("gpu_mig_info", _GAUGE, "uuid parent_uuid gpu_instance compute_instance", MetricView.mig_info,
     "Labels of a responding MIG instance, to join by uuid; always 1."),
    ("gpu_job_info", _GAUGE, "uuid run job_id user", MetricView.job_info,
     "A living training run that uses the GPU, to join by uuid; job_id is its job as the launcher "
     "named it, and user is empty without `gpumon serve --users`; always 1."),
    ("gpu_user_info", _GAUGE, "uuid user", MetricView.user_info,
     "A user whose process or training run is on the GPU, to join by uuid; only with `gpumon serve "
     "--users`; always 1."),
    ("gpu_starved", _GAUGE, "uuid", MetricView.starved_now,
     "Whether starved and suspected time reached 5 percent of the last 60 seconds in use, "
     "until it falls below 3 percent."),
    ("gpu_under_filled", _GAUGE, "uuid", MetricView.under_filled_now,
     "Whether little of the GPU worked over its last one to two minutes of busy time; no series "
     "without evidence."),
    ("gpu_held", _GAUGE, "uuid", MetricView.held_now,
     "Whether a process has held the GPU for more than 10 minutes without using it; no series "
     "without a process list."),
    ("gpu_sample_resolution_seconds", _GAUGE, "uuid", now("resolution_ns"),
     "Time in seconds covered by one utilization sample; shorter pauses are invisible."),
    ("gpu_utilization_ratio", _GAUGE, "uuid", sample("utilization_ratio"),
     "Share of the latest sample in which at least one kernel was running."),
    ("gpu_memory_used_bytes", _GAUGE, "uuid", sample("memory_used_bytes"),
     "Device memory in use in bytes."),
    ("gpu_memory_capacity_bytes", _GAUGE, "uuid", now("device.memory_capacity_bytes"),
     "Device memory size in bytes."),
    ("gpu_power_watts", _GAUGE, "uuid", sample("power_watts"), "Board power draw in watts."),
    ("gpu_energy_joules_total", _COUNTER, "uuid", sample("energy_joules"),
     "Total energy in joules the board has used since the driver was loaded; continues after a "
     "reset, without the energy used just before it."),
    ("gpu_temperature_celsius", _GAUGE, "uuid", sample("temperature_celsius"),
     "Core temperature in celsius."),
    ("gpu_sm_clock_hertz", _GAUGE, "uuid", sample("sm_clock_hertz"),
     "Clock of the streaming multiprocessors in hertz."),
)  # fmt: skip

_GPU_DETAILS = (
    ("gpu_throttled", _GAUGE, "uuid reason", MetricView.throttled,
     "Whether the clocks are reduced for this reason now; no series before they ever were."),
    ("gpu_power_limit_watts", _GAUGE, "uuid", detail("power_limit_watts"),
     "Enforced power limit in watts."),
    ("gpu_memory_clock_hertz", _GAUGE, "uuid", detail("memory_clock_hertz"),
     "Clock of the device memory in hertz."),
    ("gpu_sm_clock_max_hertz", _GAUGE, "uuid", detail("sm_clock_max_hertz"),
     "Highest clock of the streaming multiprocessors in hertz."),
    ("gpu_performance_state", _GAUGE, "uuid", detail("performance_state"),
     "P-state; 0 is the fastest."),
    ("gpu_persistence_mode", _GAUGE, "uuid", detail("persistence_mode"),
     "Whether the driver stays loaded without a client."),
    ("gpu_ecc_errors_total", _COUNTER, "uuid kind", MetricView.ecc_errors,
     "Number of memory errors since the driver was loaded, corrected or uncorrected."),
    ("gpu_xid_errors_total", _COUNTER, "uuid xid", MetricView.xid_errors,
     "Number of errors the driver reported while gpumon was running, by XID."),
    ("gpu_sm_active_ratio", _GAUGE, "uuid", activity("sm_active_ratio"),
     "Share of the streaming multiprocessors that had work, over the latest GPM interval."),
    ("gpu_sm_occupancy_ratio", _GAUGE, "uuid", activity("sm_occupancy_ratio"),
     "Share of the possible warps that were resident, over the latest GPM interval."),
    ("gpu_tensor_active_ratio", _GAUGE, "uuid", activity("tensor_active_ratio"),
     "Share of the time the tensor cores worked, over the latest GPM interval."),
    ("gpu_memory_bandwidth_ratio", _GAUGE, "uuid",
     activity("memory_bandwidth_ratio"),
     "Share of the device memory bandwidth in use, over the latest GPM interval."),
    ("gpu_fan_speed_ratio", _GAUGE, "uuid", detail("fan_speed_ratio"),
     "Fan speed as a share of the noise limit's; only with --nvml-on fan."),
    ("gpu_encoder_ratio", _GAUGE, "uuid", detail("encoder_ratio"),
     "Share of the time the video encoder worked; only with --nvml-on encoder."),
    ("gpu_decoder_ratio", _GAUGE, "uuid", detail("decoder_ratio"),
     "Share of the time the video decoder worked; only with --nvml-on encoder."),
    ("gpu_pcie_transmitted_bytes_per_second", _GAUGE, "uuid",
     detail("pcie_transmitted_bytes_per_second"),
     "Rate in bytes per second from the GPU over PCIe; only with --nvml-on pcie."),
    ("gpu_pcie_received_bytes_per_second", _GAUGE, "uuid",
     detail("pcie_received_bytes_per_second"),
     "Rate in bytes per second to the GPU over PCIe; only with --nvml-on pcie."),
    ("gpu_nvlink_transmitted_bytes_per_second", _GAUGE, "uuid",
     detail("nvlink_transmitted_bytes_per_second"),
     "Rate in bytes per second from the GPU over all NVLinks; only with --nvml-on nvlink."),
    ("gpu_nvlink_received_bytes_per_second", _GAUGE, "uuid",
     detail("nvlink_received_bytes_per_second"),
     "Rate in bytes per second to the GPU over all NVLinks; only with --nvml-on nvlink."),
)  # fmt: skip

# Beside gauges: nothing between two scrapes is missing.
_GPU_BOARD = (
    ("gpu_use_energy_joules_total", _COUNTER, "uuid use", MetricView.energy_by_use,
     "Energy in joules the board used while gpumon watched, by what its time was for: busy, lost "
     "or not_in_use."),
    ("gpu_use_energy_pending_joules", _GAUGE, "uuid", MetricView.energy_pending,
     "Energy in joules of time whose use is not settled yet, or was not observed."),
    ("gpu_throttled_seconds_total", _COUNTER, "uuid reason", MetricView.throttled_seconds,
     "Total time in seconds the clocks were reduced, by reason; reasons at the same time each "
     "count."),
    ("gpu_sm_active_seconds_total", _COUNTER, "uuid", activity_seconds("sm_active"),
     "Total time in seconds the streaming multiprocessors had work, each counting for its part."),
    ("gpu_sm_occupancy_seconds_total", _COUNTER, "uuid", activity_seconds("sm_occupancy"),
     "Integral of the occupancy over time, in seconds."),
    ("gpu_tensor_active_seconds_total", _COUNTER, "uuid", activity_seconds("tensor_active"),
     "Total time in seconds the tensor cores worked."),
    ("gpu_memory_bandwidth_seconds_total", _COUNTER, "uuid", activity_seconds("memory_bandwidth"),
     "Integral of the share of device memory bandwidth in use over time, in seconds."),
    ("gpu_pcie_transmitted_bytes_total", _COUNTER, "uuid", transferred("pcie_transmitted"),
     "Data in bytes from the GPU over PCIe while gpumon watched; only with --nvml-on pcie."),
    ("gpu_pcie_received_bytes_total", _COUNTER, "uuid", transferred("pcie_received"),
     "Data in bytes to the GPU over PCIe while gpumon watched; only with --nvml-on pcie."),
    ("gpu_nvlink_transmitted_bytes_total", _COUNTER, "uuid", transferred("nvlink_transmitted"),
     "Data in bytes from the GPU over all NVLinks while gpumon watched; only with "
     "--nvml-on nvlink."),
    ("gpu_nvlink_received_bytes_total", _COUNTER, "uuid", transferred("nvlink_received"),
     "Data in bytes to the GPU over all NVLinks while gpumon watched; only with --nvml-on "
     "nvlink."),
)  # fmt: skip

_TRAINING = (
    ("training_run_info", _GAUGE, "run job rank framework pid", MetricView.run_info,
     "Labels of a training run, to join by run; always 1."),
    ("training_run_start_timestamp_seconds", _GAUGE, "run", run_now("started_wall_time_s"),
     "Unix time in seconds when the run began."),
    ("training_gpu_busy_seconds_total", _COUNTER, "run", busy_time("time_by_run"),
     "Busy time in seconds of all GPUs that was the run's; run is empty for time of no run, and "
     "_other for runs without series."),
    ("training_gpu_idle_seconds_total", _COUNTER, "run cause", idle_time("time_by_run"),
     "Idle time in seconds of all GPUs that was the run's, by cause; in every tick, all runs "
     "together gain what gpumon_gpu_idle_seconds_total gains."),
    ("user_gpu_busy_seconds_total", _COUNTER, "user", busy_time("time_by_user"),
     "Busy time in seconds of all GPUs that was the user's; user is empty for time of no user, and "
     "_other for users without series; only with `gpumon serve --users`."),
    ("user_gpu_idle_seconds_total", _COUNTER, "user cause", idle_time("time_by_user"),
     "Idle time in seconds of all GPUs that was the user's, by cause; only with `gpumon serve "
     "--users`."),
    ("training_phase_seconds_total", _COUNTER, "run phase", MetricView.phase_seconds,
     "Total time in seconds the training process spent in each phase."),
    ("training_phase", _GAUGE, "run phase", MetricView.phase_now,
     "Whether the training process is in this phase now."),
    ("training_hanging", _GAUGE, "run", MetricView.hanging_now,
     "Whether the run has counted no step, or waited for its first batch, for so long that it "
     "probably hangs."),
    ("training_steps_total", _COUNTER, "run", run_counter("steps"),
     "Number of completed training steps."),
    ("training_first_input_wait_seconds_total", _COUNTER, "run", run_counter("first_input_wait_ns"),
     "Time in seconds the run waited for its first batch; no series if its start was not "
     "observed."),
    ("training_samples_total", _COUNTER, "run", run_counter("samples"),
     "Number of samples trained on."),
    ("training_epoch", _GAUGE, "run", run_now("epoch"), "Current epoch, counted from 0."),
    ("training_share_ratio", _GAUGE, "run uuid", MetricView.shares,
     "Share of each batch of its job that the run reports for the GPU."),
    ("training_ratio_changes_total", _COUNTER, "run", MetricView.ratio_changes,
     "Number of times a run that reports shares changed them."),
)  # fmt: skip

_MONITOR = (
    ("nvml_call_seconds_total", _COUNTER, "function", listed("call_seconds"),
     "Total time in seconds spent in each driver function."),
    ("nvml_calls_total", _COUNTER, "function", listed("call_counts"),
     "Number of calls of each driver function."),
    ("nvml_errors_total", _COUNTER, "function code", MetricView.nvml_errors,
     "Number of failed calls of each driver function, by NVML error number, without what a board "
     "or driver does not support, and without empty answers."),
    ("samples_total", _COUNTER, "", of_state("samples_total"),
     "Number of ticks with a frame."),
    ("samples_missed_total", _COUNTER, "", of_state("missed_total"),
     "Number of ticks without a frame: late, hanging or failed."),
    ("last_sample_timestamp_seconds", _GAUGE, "uuid", MetricView.last_sample_timestamps,
     "Unix time in seconds of the latest utilization sample; kept for a lost GPU."),
    ("phase_rings_left_out", _GAUGE, "uid_of_owner", MetricView.rings_left_out,
     "Number of phase rings that are not read because there are too many, by the uid of their "
     "owner; _other beyond 16 owners."),
    ("training_runs_left_out", _GAUGE, "uid_of_owner", MetricView.without_series,
     "Number of living training runs without series because there are too many, by the uid of "
     "their owner; _other beyond 16 owners."),
    ("collector_duration_seconds", _GAUGE, "collector", collector("duration_seconds"),
     "Time in seconds the collector's last read took."),
    ("collector_errors_total", _COUNTER, "collector", collector("errors_total"),
     "Number of failed reads and rejected values."),
)  # fmt: skip

# Last, because they report on all others.
_SELF = (
    ("label_sets_dropped_total", _COUNTER, "family", None,
     "Number of label sets dropped as duplicates or over a limit, counted once a tick."),
    ("collector_success", _GAUGE, "collector", collector("success"),
     "Whether the collector could read everything."),
)  # fmt: skip

METRICS: Final = tuple(
    MetricSpec(
        name=f"gpumon_{name}",
        kind=kind,
        help=text,
        labels=tuple(labels.split()),
        group=group,
        read=read,
    )
    for group, rows in (
        ("build", _BUILD),
        ("gpu_time", _GPU_TIME),
        ("gpu_now", _GPU_NOW),
        ("gpu_details", _GPU_DETAILS),
        ("gpu_board", _GPU_BOARD),
        ("training", _TRAINING),
        ("monitor", _MONITOR),
        ("self", _SELF),
    )
    for name, kind, labels, read, text in rows
)
