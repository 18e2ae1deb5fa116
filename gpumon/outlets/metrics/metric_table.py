"""Every metric gpumon exposes, in the order of a scrape: the one place that names them.

``docs/metrics.md`` shows this table, ``metric_values`` fills it and
``prometheus`` writes it out. A field that a device cannot answer has no
series: not 0, not NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


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
        unit: Base unit the name ends with; ``None`` for counts, flags and ``_info``.
        group: What is read together: one broken group leaves the others whole,
            and ``gpumon_collector_success{collector="metrics_<group>"}`` says which.
    """

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    unit: str | None = None
    group: str


_COUNTER, _GAUGE, _HISTOGRAM = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM

_BUILD = (("build_info", _GAUGE, "version", None, "Version of gpumon; always 1."),)

_GPU_TIME = (
    ("gpu_observed_seconds_total", _COUNTER, "uuid", "seconds",
     "Total time in seconds covered by valid samples of the GPU."),
    ("gpu_busy_seconds_total", _COUNTER, "uuid", "seconds",
     "Total time in seconds at least one kernel was running on the GPU."),
    ("gpu_idle_seconds_total", _COUNTER, "uuid cause", "seconds",
     "Total time in seconds no kernel was running on the GPU, by cause."),
    ("gpu_idle_pending_seconds", _GAUGE, "uuid", "seconds",
     "Idle time in seconds whose cause is not decided yet; observed minus busy minus idle."),
    ("gpu_starved_seconds_total", _COUNTER, "uuid", "seconds",
     "Total time in seconds the GPU was idle while its training waited for input."),
    ("gpu_suspected_seconds_total", _COUNTER, "uuid", "seconds",
     "Total time in seconds the GPU paused in a bursty pattern that no tag explains."),
    ("gpu_input_wait_seconds_total", _COUNTER, "uuid reason", "seconds",
     "Total time in seconds the GPU was idle waiting for input, by what held the input up."),
    ("gpu_starvation_episodes_total", _COUNTER, "uuid", None,
     "Number of times the GPU began to be starved."),
    ("gpu_claims_refused_total", _COUNTER, "uuid", None,
     "Number of runs that named the GPU while only processes of other users were on it: what "
     "they say is not counted there."),
    ("gpu_idle_gap_seconds", _HISTOGRAM, "uuid", "seconds",
     "Length in seconds of pauses between two bursts of work, counted when the pause ends."),
)  # fmt: skip

_GPU_NOW = (
    ("gpu_info", _GAUGE, "uuid gpu name pci_bus_id driver_version", None,
     "Labels of a GPU that answers, to be joined by uuid; gpu is 0:1 for MIG instance 1 of GPU 0; "
     "always 1."),
    ("gpu_mig_info", _GAUGE, "uuid parent_uuid gpu_instance compute_instance", None,
     "Labels of a MIG instance that answers, to be joined by uuid; always 1."),
    ("gpu_starved", _GAUGE, "uuid", None,
     "Whether starved and suspected time reached 5 percent of the last 60 seconds in use, "
     "until it falls below 3 percent."),
    ("gpu_under_filled", _GAUGE, "uuid", None,
     "Whether the GPU was busy and little of it worked over its last one to two minutes of busy "
     "time; no series where nothing tells."),
    ("gpu_sample_resolution_seconds", _GAUGE, "uuid", "seconds",
     "Time in seconds one utilization sample covers; shorter pauses do not show as such."),
    ("gpu_utilization_ratio", _GAUGE, "uuid", "ratio",
     "Share of the latest sample in which at least one kernel was running."),
    ("gpu_memory_used_bytes", _GAUGE, "uuid", "bytes", "Device memory in use in bytes."),
    ("gpu_memory_capacity_bytes", _GAUGE, "uuid", "bytes", "Device memory size in bytes."),
    ("gpu_power_watts", _GAUGE, "uuid", "watts", "Board power draw in watts."),
    ("gpu_energy_joules_total", _COUNTER, "uuid", "joules",
     "Total energy in joules the board has used since the driver was loaded; goes on over a "
     "reset, without what was used just before it."),
    ("gpu_temperature_celsius", _GAUGE, "uuid", "celsius", "Core temperature in celsius."),
    ("gpu_sm_clock_hertz", _GAUGE, "uuid", "hertz",
     "Clock of the streaming multiprocessors in hertz."),
)  # fmt: skip

_GPU_DETAILS = (
    ("gpu_throttled", _GAUGE, "uuid reason", None,
     "Whether the clocks are held down for that reason now."),
    ("gpu_power_limit_watts", _GAUGE, "uuid", "watts", "Power limit in force in watts."),
    ("gpu_memory_clock_hertz", _GAUGE, "uuid", "hertz", "Clock of the device memory in hertz."),
    ("gpu_sm_clock_max_hertz", _GAUGE, "uuid", "hertz",
     "Highest clock of the streaming multiprocessors in hertz."),
    ("gpu_performance_state", _GAUGE, "uuid", None, "P-state, 0 for the fastest."),
    ("gpu_persistence_mode", _GAUGE, "uuid", None,
     "Whether the driver stays loaded while nobody uses the GPU."),
    ("gpu_ecc_errors_total", _COUNTER, "uuid kind", None,
     "Number of memory errors since the driver was loaded, corrected or uncorrected."),
    ("gpu_xid_errors_total", _COUNTER, "uuid xid", None,
     "Number of errors the driver reported while gpumon listened, by XID."),
    ("gpu_sm_active_ratio", _GAUGE, "uuid", "ratio",
     "Share of the streaming multiprocessors that had work, over the newest stretch read by GPM."),
    ("gpu_sm_occupancy_ratio", _GAUGE, "uuid", "ratio",
     "Warps resident of those that could be, over the newest stretch read by GPM."),
    ("gpu_tensor_active_ratio", _GAUGE, "uuid", "ratio",
     "Share of the time the tensor cores worked, over the newest stretch read by GPM."),
    ("gpu_memory_bandwidth_ratio", _GAUGE, "uuid", "ratio",
     "Device memory bandwidth in use of the most there is, over the newest stretch read by GPM."),
    ("gpu_fan_speed_ratio", _GAUGE, "uuid", "ratio",
     "Fan speed of that at which the board is as loud as it may be; only with --nvml-on fan."),
    ("gpu_encoder_ratio", _GAUGE, "uuid", "ratio",
     "Share of the time the video encoder worked; only with --nvml-on encoder."),
    ("gpu_decoder_ratio", _GAUGE, "uuid", "ratio",
     "Share of the time the video decoder worked; only with --nvml-on encoder."),
    ("gpu_pcie_transmitted_bytes_per_second", _GAUGE, "uuid", None,
     "Rate in bytes per second from the GPU over PCIe; only with --nvml-on pcie."),
    ("gpu_pcie_received_bytes_per_second", _GAUGE, "uuid", None,
     "Rate in bytes per second to the GPU over PCIe; only with --nvml-on pcie."),
    ("gpu_nvlink_transmitted_bytes_per_second", _GAUGE, "uuid", None,
     "Rate in bytes per second from the GPU over all NVLinks; only with --nvml-on nvlink."),
    ("gpu_nvlink_received_bytes_per_second", _GAUGE, "uuid", None,
     "Rate in bytes per second to the GPU over all NVLinks; only with --nvml-on nvlink."),
)  # fmt: skip

_TRAINING = (
    ("training_run_info", _GAUGE, "run job rank framework pid", None,
     "Labels of a training run, to be joined by run; always 1."),
    ("training_phase_seconds_total", _COUNTER, "run phase", "seconds",
     "Total time in seconds the training process spent in each phase."),
    ("training_phase", _GAUGE, "run phase", None,
     "Whether the training process is in the phase now."),
    ("training_steps_total", _COUNTER, "run", None, "Number of training steps done."),
    ("training_first_input_wait_seconds_total", _COUNTER, "run", "seconds",
     "Time in seconds the training waited for its very first batch; no series where its "
     "beginning is not known."),
    ("training_samples_total", _COUNTER, "run", None, "Number of samples trained on."),
    ("training_epoch", _GAUGE, "run", None, "Epoch under way, counted from 0."),
    ("training_share_ratio", _GAUGE, "run uuid", "ratio",
     "Part of each batch of its job that the training gives to the GPU, as it says itself."),
    ("training_ratio_changes_total", _COUNTER, "run", None,
     "Number of changes of the shares of a training that tells them."),
)  # fmt: skip

_MONITOR = (
    ("nvml_call_seconds_total", _COUNTER, "function", "seconds",
     "Total time in seconds spent inside each driver function."),
    ("nvml_calls_total", _COUNTER, "function", None, "Number of calls of each driver function."),
    ("nvml_errors_total", _COUNTER, "function code", None,
     "Number of calls of each driver function that failed, by the number of NVML's error; not "
     "counted: what a board or a driver does not support, and that there is nothing to tell."),
    ("samples_total", _COUNTER, "", None, "Number of ticks that brought a frame."),
    ("samples_missed_total", _COUNTER, "", None,
     "Number of ticks that brought no frame: late, hanging or failed."),
    ("last_sample_timestamp_seconds", _GAUGE, "uuid", "seconds",
     "Unix time in seconds of the newest utilization sample; kept for a GPU that is gone."),
    ("phase_rings_left_out", _GAUGE, "uid_of_owner", None,
     "Number of phase rings that are not read, for there are too many, by the uid they belong to; "
     "_other beyond 16 owners."),
    ("collector_duration_seconds", _GAUGE, "collector", "seconds",
     "Time in seconds the collector's last read took."),
    ("collector_errors_total", _COUNTER, "collector", None,
     "Number of failed reads and refused values."),
)  # fmt: skip

# Last, because they tell how all others fared.
_SELF = (
    ("label_sets_dropped_total", _COUNTER, "family", None,
     "Number of label sets left out as one too many or as a duplicate, counted once a tick."),
    ("collector_success", _GAUGE, "collector", None,
     "Whether the collector succeeded in all it had to read."),
)  # fmt: skip

METRICS: Final = tuple(
    MetricSpec(
        name=f"gpumon_{name}",
        kind=kind,
        help=text,
        labels=tuple(labels.split()),
        unit=unit,
        group=group,
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
    for name, kind, labels, unit, text in rows
)
"""All families, in the order in which a scrape shows them."""
