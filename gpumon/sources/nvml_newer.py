"""What newer versions of nvidia-ml-py declare and the oldest that is supported (12.535) does not.

The structures and numbers are the driver's; that an older binding does not
know them says nothing of the driver it finds.
"""

from __future__ import annotations

import ctypes
from typing import Final

PCIE_COUNT_TX_BYTES: Final = 197
PCIE_COUNT_RX_BYTES: Final = 198
"""Fields of ``nvmlDeviceGetFieldValues``: bytes from the GPU, and to it."""

TEMPERATURE_V1: Final = 0x0100_000C
PROCESSES_UTILIZATION_V1: Final = 0x0100_0018
"""Versions of the structures below, as they want to be told."""


class TemperatureV1(ctypes.Structure):
    """What ``nvmlDeviceGetTemperatureV`` fills; degrees Celsius."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("sensorType", ctypes.c_uint),
        ("temperature", ctypes.c_int),
    )


class ProcessUtilizationInfoV1(ctypes.Structure):
    """What one process used, in percent; its stamp in microseconds."""

    _fields_ = (
        ("timeStamp", ctypes.c_ulonglong),
        ("pid", ctypes.c_uint),
        ("smUtil", ctypes.c_uint),
        ("memUtil", ctypes.c_uint),
        ("encUtil", ctypes.c_uint),
        ("decUtil", ctypes.c_uint),
        ("jpgUtil", ctypes.c_uint),
        ("ofaUtil", ctypes.c_uint),
    )


class ProcessesUtilizationInfoV1(ctypes.Structure):
    """What ``nvmlDeviceGetProcessesUtilizationInfo`` is asked with, and where its answer lies."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("processSamplesCount", ctypes.c_uint),
        ("lastSeenTimeStamp", ctypes.c_ulonglong),
        ("procUtilArray", ctypes.POINTER(ProcessUtilizationInfoV1)),
    )
