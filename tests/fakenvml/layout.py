"""The control file of the fake libnvidia-ml.so.1, field by field: ``fake.h`` in Python."""

from __future__ import annotations

import ctypes
import re
import struct
from pathlib import Path

MAGIC = 0x314C4D564E454B46
MAX_GPUS, MAX_RING, MAX_PROCESSES, MAX_FUNCTIONS = 16, 512, 128, 160
MAX_PARTS, MAX_EVENTS = 8, 256
NO_OVERRIDE = NO_INSTANCE = 0xFFFFFFFF

WAVE, RING = 0, 1
"""What a GPU's samples come from: a wave that needs no writer, or an explicit ring."""

DOUBLE, UNSIGNED_INT, SIGNED_LONG_LONG, SIGNED_INT = 0, 1, 4, 5
"""Types of a ring's values, as NVML numbers them."""

FUNCTIONS = tuple(
    re.findall(
        r"^    X\((\w+)\)", (Path(__file__).parent / "functions.h").read_text(), re.MULTILINE
    )
)
"""What the fake exports, in the order of the control file."""


class FunctionRecord(ctypes.Structure):
    _fields_ = (
        ("calls", ctypes.c_uint64),
        ("inside_ns", ctypes.c_uint64),
        ("latency_us", ctypes.c_uint64),
        ("gpu_latency_us", ctypes.c_uint64 * MAX_GPUS),
        ("gpu_error", ctypes.c_int32 * MAX_GPUS),
        ("error", ctypes.c_int32),
        ("waiting", ctypes.c_uint32),
    )


class ProcessRecord(ctypes.Structure):
    _fields_ = (
        ("memory_bytes", ctypes.c_uint64),
        ("computes_from_ns", ctypes.c_uint64),
        ("computes_until_ns", ctypes.c_uint64),
        ("use_stamp_us", ctypes.c_uint64),
        ("gpu", ctypes.c_uint32),
        ("pid", ctypes.c_uint32),
        ("sm_percent", ctypes.c_uint32),
        ("memory_percent", ctypes.c_uint32),
        ("encoder_percent", ctypes.c_uint32),
        ("decoder_percent", ctypes.c_uint32),
        ("graphics", ctypes.c_uint32),
        ("gpu_instance", ctypes.c_uint32),
        ("compute_instance", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("name", ctypes.c_char * 1024),
    )


class EntryRecord(ctypes.Structure):
    _fields_ = (
        ("stamp_us", ctypes.c_uint64),
        ("raw", ctypes.c_uint64),
    )


class EventRecord(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_uint64),
        ("data", ctypes.c_uint64),
        ("slot", ctypes.c_uint32),
        ("gpu_instance", ctypes.c_uint32),
        ("compute_instance", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    )


class WaveRecord(ctypes.Structure):
    _fields_ = (
        ("period_ns", ctypes.c_uint64),
        ("busy_ns", ctypes.c_uint64),
        ("phase_ns", ctypes.c_uint64),
    )


class ActivityRecord(ctypes.Structure):
    _fields_ = (
        ("sm_ratio", ctypes.c_double),
        ("occupancy_ratio", ctypes.c_double),
        ("tensor_ratio", ctypes.c_double),
        ("dram_ratio", ctypes.c_double),
    )


class PartRecord(ctypes.Structure):
    _anonymous_ = ("wave",)
    _fields_ = (
        ("uuid", ctypes.c_char * 96),
        ("name", ctypes.c_char * 96),
        ("memory_total", ctypes.c_uint64),
        ("memory_used", ctypes.c_uint64),
        ("wave", WaveRecord),
        ("activity", ActivityRecord),
        ("exists", ctypes.c_uint32),
        ("serial", ctypes.c_uint32),
        ("gpu_instance", ctypes.c_uint32),
        ("compute_instance", ctypes.c_uint32),
        ("gpu_slices", ctypes.c_uint32),
        ("compute_slices", ctypes.c_uint32),
        ("multiprocessors", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    )


class GpuRecord(ctypes.Structure):
    _anonymous_ = ("wave",)
    _fields_ = (
        ("uuid", ctypes.c_char * 96),
        ("name", ctypes.c_char * 96),
        ("bus_id", ctypes.c_char * 32),
        ("memory_total", ctypes.c_uint64),
        ("memory_used", ctypes.c_uint64),
        ("memory_reserved", ctypes.c_uint64),
        ("energy_mj", ctypes.c_uint64),
        ("wave", WaveRecord),
        ("window_ns", ctypes.c_uint64),
        ("window_phase_ns", ctypes.c_uint64),
        ("idle_window_ns", ctypes.c_uint64),
        ("publication_delay_ns", ctypes.c_uint64),
        ("power_window_ns", ctypes.c_uint64),
        ("power_average_ns", ctypes.c_uint64),
        ("throttle_reasons", ctypes.c_uint64),
        ("ecc_corrected", ctypes.c_uint64),
        ("ecc_uncorrected", ctypes.c_uint64),
        ("ecc_corrected_before", ctypes.c_uint64),
        ("ecc_uncorrected_before", ctypes.c_uint64),
        ("supported_events", ctypes.c_uint64),
        ("pcie_tx_bytes_per_s", ctypes.c_uint64),
        ("pcie_rx_bytes_per_s", ctypes.c_uint64),
        ("pcie_counter_wraps_at", ctypes.c_uint64),
        ("nvlink_tx_bytes_per_s", ctypes.c_uint64),
        ("nvlink_rx_bytes_per_s", ctypes.c_uint64),
        ("activity", ActivityRecord),
        ("power_mw", ctypes.c_uint32),
        ("idle_power_mw", ctypes.c_uint32),
        ("power_limit_mw", ctypes.c_uint32),
        ("enforced_limit_mw", ctypes.c_uint32),
        ("temperature_c", ctypes.c_uint32),
        ("sm_clock_mhz", ctypes.c_uint32),
        ("mem_clock_mhz", ctypes.c_uint32),
        ("max_sm_clock_mhz", ctypes.c_uint32),
        ("max_mem_clock_mhz", ctypes.c_uint32),
        ("performance_state", ctypes.c_uint32),
        ("persistence_mode", ctypes.c_uint32),
        ("fan_percent", ctypes.c_uint32),
        ("encoder_percent", ctypes.c_uint32),
        ("decoder_percent", ctypes.c_uint32),
        ("nvlink_count", ctypes.c_uint32),
        ("gpm_supported", ctypes.c_uint32),
        ("mig_enabled", ctypes.c_uint32),
        ("mig_pending", ctypes.c_uint32),
        ("handle_epoch", ctypes.c_uint32),
        ("signal", ctypes.c_uint32),
        ("dry_when_idle", ctypes.c_uint32),
        ("value_type", ctypes.c_uint32),
        ("ring_depth", ctypes.c_uint32),
        ("ring_count", ctypes.c_uint32),
        ("rates_percent", ctypes.c_uint32),
        ("error", ctypes.c_int32),
        ("compute_capability", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("ring", EntryRecord * MAX_RING),
        ("parts", PartRecord * MAX_PARTS),
    )


class ControlFile(ctypes.Structure):
    _fields_ = (
        ("magic", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("virtual_now_ns", ctypes.c_uint64),
        ("origin_ns", ctypes.c_uint64),
        ("stamp_offset_us", ctypes.c_int64),
        ("earlier_offset_us", ctypes.c_int64),
        ("offset_since_ns", ctypes.c_uint64),
        ("event_count", ctypes.c_uint64),
        ("gpm_allocated", ctypes.c_uint64),
        ("gpm_freed", ctypes.c_uint64),
        ("event_sets_created", ctypes.c_uint64),
        ("event_sets_freed", ctypes.c_uint64),
        ("process_buffer_ns", ctypes.c_uint64),
        ("gpm_shortest_ns", ctypes.c_uint64),
        ("gpm_too_short_error", ctypes.c_int32),
        ("gpu_count", ctypes.c_uint32),
        ("process_count", ctypes.c_uint32),
        ("generation", ctypes.c_uint32),
        ("general_error", ctypes.c_int32),
        ("cuda_version", ctypes.c_uint32),
        ("newest_field", ctypes.c_uint32),
        ("touches_one_field_more", ctypes.c_uint32),
        ("process_size_error", ctypes.c_int32),
        ("wide_processes", ctypes.c_uint32),
        ("slot_of_index", ctypes.c_uint32 * MAX_GPUS),
        ("driver_version", ctypes.c_char * 80),
        ("nvml_version", ctypes.c_char * 80),
        ("functions", FunctionRecord * MAX_FUNCTIONS),
        ("processes", ProcessRecord * MAX_PROCESSES),
        ("events", EventRecord * MAX_EVENTS),
        ("gpus", GpuRecord * MAX_GPUS),
    )


def raw_value(value: float, value_type: int) -> int:
    """The eight bytes of NVML's value union, as a number."""
    if value_type == DOUBLE:
        packed = struct.pack("<d", value)
    elif value_type == SIGNED_INT:
        packed = struct.pack("<i", int(value))
    elif value_type == SIGNED_LONG_LONG:
        packed = struct.pack("<q", int(value))
    else:
        packed = struct.pack("<Q", int(value))
    return int.from_bytes(packed, "little")
