"""The control file of the fake libnvidia-ml.so.1, field by field: ``fake.h`` in Python."""

from __future__ import annotations

import ctypes
import re
import struct
from pathlib import Path

MAGIC = 0x314C4D564E454B46
MAX_GPUS, MAX_RING, MAX_PROCESSES, MAX_FUNCTIONS, MAX_PARTS = 16, 512, 128, 128, 8
NO_OVERRIDE = 0xFFFFFFFF

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
        ("latency_us", ctypes.c_uint64),
        ("gpu_latency_us", ctypes.c_uint64 * MAX_GPUS),
        ("gpu_error", ctypes.c_int32 * MAX_GPUS),
        ("error", ctypes.c_int32),
        ("waiting", ctypes.c_uint32),
    )


class ProcessRecord(ctypes.Structure):
    _fields_ = (
        ("memory_bytes", ctypes.c_uint64),
        ("gpu", ctypes.c_uint32),
        ("pid", ctypes.c_uint32),
        ("sm_percent", ctypes.c_uint32),
        ("graphics", ctypes.c_uint32),
        ("name", ctypes.c_char * 1024),
    )


class EntryRecord(ctypes.Structure):
    _fields_ = (("stamp_us", ctypes.c_uint64), ("raw", ctypes.c_uint64))


class PartRecord(ctypes.Structure):
    _fields_ = (
        ("uuid", ctypes.c_char * 96),
        ("name", ctypes.c_char * 96),
        ("memory_total", ctypes.c_uint64),
        ("gpu_instance", ctypes.c_uint32),
        ("compute_instance", ctypes.c_uint32),
    )


class GpuRecord(ctypes.Structure):
    _fields_ = (
        ("uuid", ctypes.c_char * 96),
        ("name", ctypes.c_char * 96),
        ("bus_id", ctypes.c_char * 32),
        ("memory_total", ctypes.c_uint64),
        ("memory_used", ctypes.c_uint64),
        ("memory_reserved", ctypes.c_uint64),
        ("energy_mj", ctypes.c_uint64),
        ("period_ns", ctypes.c_uint64),
        ("busy_ns", ctypes.c_uint64),
        ("phase_ns", ctypes.c_uint64),
        ("window_ns", ctypes.c_uint64),
        ("power_mw", ctypes.c_uint32),
        ("temperature_c", ctypes.c_uint32),
        ("sm_clock_mhz", ctypes.c_uint32),
        ("mem_clock_mhz", ctypes.c_uint32),
        ("mig_enabled", ctypes.c_uint32),
        ("signal", ctypes.c_uint32),
        ("dry_when_idle", ctypes.c_uint32),
        ("value_type", ctypes.c_uint32),
        ("ring_depth", ctypes.c_uint32),
        ("ring_count", ctypes.c_uint32),
        ("rates_percent", ctypes.c_uint32),
        ("error", ctypes.c_int32),
        ("ring", EntryRecord * MAX_RING),
        ("part_count", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("parts", PartRecord * MAX_PARTS),
    )


class ControlFile(ctypes.Structure):
    _fields_ = (
        ("magic", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("origin_ns", ctypes.c_uint64),
        ("stamp_offset_us", ctypes.c_int64),
        ("earlier_offset_us", ctypes.c_int64),
        ("offset_since_ns", ctypes.c_uint64),
        ("gpu_count", ctypes.c_uint32),
        ("process_count", ctypes.c_uint32),
        ("generation", ctypes.c_uint32),
        ("general_error", ctypes.c_int32),
        ("cuda_version", ctypes.c_uint32),
        ("slot_of_index", ctypes.c_uint32 * MAX_GPUS),
        ("reserved", ctypes.c_uint32),
        ("driver_version", ctypes.c_char * 80),
        ("nvml_version", ctypes.c_char * 80),
        ("functions", FunctionRecord * MAX_FUNCTIONS),
        ("processes", ProcessRecord * MAX_PROCESSES),
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
