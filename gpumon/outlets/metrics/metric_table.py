"""Every metric gpumon exposes, in the order of a scrape: the one place that names them.

``docs/metrics.md`` shows this table, and ``prometheus`` writes it out. A field
that a device cannot answer has no series: not 0, not NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from gpumon.outlets.metrics.metric_values import (
    MetricView,
    Reader,
    collector,
    counted,
    listed,
    now,
    run,
    run_now,
    whole,
)


class MetricKind(str, Enum):
    """What Prometheus calls a metric's type."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpec:
    """One metric family.

    Attributes:
        name: Full name, with its unit and, for a counter, ``_total``.
        kind: Its type.
        help: One sentence, as ``# HELP`` prints it.
        labels: Label names in the order in which values are given.
        group: What is read together: one broken group leaves the others whole,
            and ``gpumon_collector_success{collector="metrics_<group>"}`` says which.
        read: Its label values and numbers; ``None``: ``prometheus`` itself tells them.
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
    ("gpu_observed_seconds_total", _COUNTER, "uuid", counted("totals.observed_ns"),
     "Total time in seconds covered by valid samples of the GPU."),
    ("gpu_busy_seconds_total", _COUNTER, "uuid", counted("totals.busy_ns"),
     "Total time in seconds at least one kernel was running on the GPU."),
    ("gpu_idle_seconds_total", _COUNTER, "uuid cause", MetricView.idle_by_cause,
     "Total time in seconds no kernel was running on the GPU, by cause."),
    ("gpu_idle_pending_seconds", _GAUGE, "uuid", counted("totals.pending_ns"),
     "Idle time in seconds whose cause is not decided yet; observed minus busy minus idle."),
    ("gpu_starved_seconds_total", _COUNTER, "uuid", counted("totals.starved_ns"),
     "Total time in seconds the GPU certainly was idle because its training waited for input."),
    ("gpu_suspected_seconds_total", _COUNTER, "uuid", counted("totals.suspected_ns"),
     "Total time in seconds of pauses that no tag explains and that probably waited for input."),
    ("gpu_rank_wait_seconds_total", _COUNTER, "uuid", counted("totals.rank_wait_low_ns"),
     "Total time in seconds the GPU certainly waited for another rank of its job while it read as "
     "busy."),
    ("gpu_input_wait_seconds_total", _COUNTER, "uuid reason", MetricView.input_wait_by_reason,
     "Total time in seconds the GPU was idle waiting for input, by what held the input up; with "
     "the reason unknown, they add up to the cause input_wait."),
    ("gpu_starvation_episodes_total", _COUNTER, "uuid", counted("totals.episodes"),
     "Number of times the GPU began to be starved."),
    ("gpu_claims_refused_total", _COUNTER, "uuid", counted("claims_refused"),
     "Number of runs that named the GPU while only processes of other users were on it: what "
     "they say is not counted there."),
    ("gpu_idle_gap_seconds", _HISTOGRAM, "uuid", MetricView.gap_lengths,
     "Length in seconds of pauses between two bursts of work, counted when the pause ends."),
)  # fmt: skip

_GPU_NOW = (
    ("gpu_info", _GAUGE, "uuid gpu name pci_bus_id driver_version", MetricView.gpu_info,
     "Labels of a GPU that answers, to be joined by uuid; gpu is 0:1 for MIG instance 1 of GPU 0; "
     "always 1."),
    ("gpu_mig_info", _GAUGE, "uuid parent_uuid gpu_instance compute_instance", MetricView.mig_info,
     "Labels of a MIG instance that answers, to be joined by uuid; always 1."),
    ("gpu_starved", _GAUGE, "uuid", MetricView.starved_now,
     "Whether starved and suspected time reached 5 percent of the last 60 seconds in use, "
     "until it falls below 3 percent."),
    ("gpu_under_filled", _GAUGE, "uuid", MetricView.under_filled_now,
     "Whether the GPU was busy and little of it worked over its last one to two minutes of busy "
     "time; no series where nothing tells."),
    ("gpu_held", _GAUGE, "uuid", MetricView.held_now,
     "Whether a process has been on the GPU and nothing has run there for more than 10 minutes; no "
     "series without a process list."),
    ("gpu_sample_resolution_seconds", _GAUGE, "uuid", now("resolution_ns"),
     "Time in seconds one utilization sample covers; shorter pauses do not show as such."),
    ("gpu_utilization_ratio", _GAUGE, "uuid", now("latest.utilization_ratio"),
     "Share of the latest sample in which at least one kernel was running."),
    ("gpu_memory_used_bytes", _GAUGE, "uuid", now("latest.memory_used_bytes"),
     "Device memory in use in bytes."),
    ("gpu_memory_capacity_bytes", _GAUGE, "uuid", now("device.memory_capacity_bytes"),
     "Device memory size in bytes."),
    ("gpu_power_watts", _GAUGE, "uuid", now("latest.power_watts"), "Board power draw in watts."),
    ("gpu_energy_joules_total", _COUNTER, "uuid", now("latest.energy_joules"),
     "Total energy in joules the board has used since the driver was loaded; goes on over a "
     "reset, without what was used just before it."),
    ("gpu_temperature_celsius", _GAUGE, "uuid", now("latest.temperature_celsius"),
     "Core temperature in celsius."),
    ("gpu_sm_clock_hertz", _GAUGE, "uuid", now("latest.sm_clock_hertz"),
     "Clock of the streaming multiprocessors in hertz."),
)  # fmt: skip

_GPU_DETAILS = (
    ("gpu_throttled", _GAUGE, "uuid reason", MetricView.throttled,
     "Whether the clocks are held down for that reason now."),
    ("gpu_power_limit_watts", _GAUGE, "uuid", now("latest.details.power_limit_watts"),
     "Power limit in force in watts."),
    ("gpu_memory_clock_hertz", _GAUGE, "uuid", now("latest.details.memory_clock_hertz"),
     "Clock of the device memory in hertz."),
    ("gpu_sm_clock_max_hertz", _GAUGE, "uuid", now("latest.details.sm_clock_max_hertz"),
     "Highest clock of the streaming multiprocessors in hertz."),
    ("gpu_performance_state", _GAUGE, "uuid", now("latest.details.performance_state"),
     "P-state, 0 for the fastest."),
    ("gpu_persistence_mode", _GAUGE, "uuid", now("latest.details.persistence_mode"),
     "Whether the driver stays loaded while nobody uses the GPU."),
    ("gpu_ecc_errors_total", _COUNTER, "uuid kind", MetricView.ecc_errors,
     "Number of memory errors since the driver was loaded, corrected or uncorrected."),
    ("gpu_xid_errors_total", _COUNTER, "uuid xid", MetricView.xid_errors,
     "Number of errors the driver reported while gpumon listened, by XID."),
    ("gpu_sm_active_ratio", _GAUGE, "uuid", now("latest.activity.sm_active_ratio"),
     "Share of the streaming multiprocessors that had work, over the newest stretch read by GPM."),
    ("gpu_sm_occupancy_ratio", _GAUGE, "uuid", now("latest.activity.sm_occupancy_ratio"),
     "Warps resident of those that could be, over the newest stretch read by GPM."),
    ("gpu_tensor_active_ratio", _GAUGE, "uuid", now("latest.activity.tensor_active_ratio"),
     "Share of the time the tensor cores worked, over the newest stretch read by GPM."),
    ("gpu_memory_bandwidth_ratio", _GAUGE, "uuid",
     now("latest.activity.memory_bandwidth_ratio"),
     "Device memory bandwidth in use of the most there is, over the newest stretch read by GPM."),
    ("gpu_fan_speed_ratio", _GAUGE, "uuid", now("latest.details.fan_speed_ratio"),
     "Fan speed of that at which the board is as loud as it may be; only with --nvml-on fan."),
    ("gpu_encoder_ratio", _GAUGE, "uuid", now("latest.details.encoder_ratio"),
     "Share of the time the video encoder worked; only with --nvml-on encoder."),
    ("gpu_decoder_ratio", _GAUGE, "uuid", now("latest.details.decoder_ratio"),
     "Share of the time the video decoder worked; only with --nvml-on encoder."),
    ("gpu_pcie_transmitted_bytes_per_second", _GAUGE, "uuid",
     now("latest.details.pcie_transmitted_bytes_per_second"),
     "Rate in bytes per second from the GPU over PCIe; only with --nvml-on pcie."),
    ("gpu_pcie_received_bytes_per_second", _GAUGE, "uuid",
     now("latest.details.pcie_received_bytes_per_second"),
     "Rate in bytes per second to the GPU over PCIe; only with --nvml-on pcie."),
    ("gpu_nvlink_transmitted_bytes_per_second", _GAUGE, "uuid",
     now("latest.details.nvlink_transmitted_bytes_per_second"),
     "Rate in bytes per second from the GPU over all NVLinks; only with --nvml-on nvlink."),
    ("gpu_nvlink_received_bytes_per_second", _GAUGE, "uuid",
     now("latest.details.nvlink_received_bytes_per_second"),
     "Rate in bytes per second to the GPU over all NVLinks; only with --nvml-on nvlink."),
)  # fmt: skip

_TRAINING = (
    ("training_run_info", _GAUGE, "run job rank framework pid", MetricView.run_info,
     "Labels of a training run, to be joined by run; always 1."),
    ("training_phase_seconds_total", _COUNTER, "run phase", MetricView.phase_seconds,
     "Total time in seconds the training process spent in each phase."),
    ("training_phase", _GAUGE, "run phase", MetricView.phase_now,
     "Whether the training process is in the phase now."),
    ("training_hanging", _GAUGE, "run", MetricView.hanging_now,
     "Whether the training has counted no step, or waited for its first batch, for so long that "
     "it probably hangs."),
    ("training_steps_total", _COUNTER, "run", run("steps"), "Number of training steps done."),
    ("training_first_input_wait_seconds_total", _COUNTER, "run", run("first_input_wait_ns"),
     "Time in seconds the training waited for its very first batch; no series where its "
     "beginning is not known."),
    ("training_samples_total", _COUNTER, "run", run("samples"), "Number of samples trained on."),
    ("training_epoch", _GAUGE, "run", run_now("epoch"), "Epoch under way, counted from 0."),
    ("training_share_ratio", _GAUGE, "run uuid", MetricView.shares,
     "Part of each batch of its job that the training gives to the GPU, as it says itself."),
    ("training_ratio_changes_total", _COUNTER, "run", MetricView.ratio_changes,
     "Number of changes of the shares of a training that tells them."),
)  # fmt: skip

_MONITOR = (
    ("nvml_call_seconds_total", _COUNTER, "function", listed("call_seconds"),
     "Total time in seconds spent inside each driver function."),
    ("nvml_calls_total", _COUNTER, "function", listed("call_counts"),
     "Number of calls of each driver function."),
    ("nvml_errors_total", _COUNTER, "function code", listed("call_errors"),
     "Number of calls of each driver function that failed, by the number of NVML's error; not "
     "counted: what a board or a driver does not support, and that there is nothing to tell."),
    ("samples_total", _COUNTER, "", whole("state.samples_total"),
     "Number of ticks that brought a frame."),
    ("samples_missed_total", _COUNTER, "", whole("state.missed_total"),
     "Number of ticks that brought no frame: late, hanging or failed."),
    ("last_sample_timestamp_seconds", _GAUGE, "uuid", MetricView.last_sample_timestamps,
     "Unix time in seconds of the newest utilization sample; kept for a GPU that is gone."),
    ("phase_rings_left_out", _GAUGE, "uid_of_owner", MetricView.rings_left_out,
     "Number of phase rings that are not read, for there are too many, by the uid they belong to; "
     "_other beyond 16 owners."),
    ("training_runs_left_out", _GAUGE, "uid_of_owner", MetricView.without_series,
     "Number of living training runs that have no series, for there are too many, by the uid they "
     "belong to; _other beyond 16 owners."),
    ("collector_duration_seconds", _GAUGE, "collector", collector("duration_seconds"),
     "Time in seconds the collector's last read took."),
    ("collector_errors_total", _COUNTER, "collector", collector("errors_total"),
     "Number of failed reads and refused values."),
)  # fmt: skip

# Last, because they tell how all others fared.
_SELF = (
    ("label_sets_dropped_total", _COUNTER, "family", None,
     "Number of label sets left out as one too many or as a duplicate, counted once a tick."),
    ("collector_success", _GAUGE, "collector", collector("success"),
     "Whether the collector succeeded in all it had to read."),
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
        ("training", _TRAINING),
        ("monitor", _MONITOR),
        ("self", _SELF),
    )
    for name, kind, labels, read, text in rows
)
"""All families, in the order in which a scrape shows them."""
