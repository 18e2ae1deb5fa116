"""The value of each field of a GPU, in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from gpumon.core.sample import GpuDetails, GpuSample
from gpumon.core.wording import in_gibibytes


def value_of(field: str, sample: GpuSample) -> str | None:
    """What the GPU reports for that field of ``NVML_FIELDS``; ``None``: nothing.

    >>> from gpumon.core.sample import Device
    >>> sample = GpuSample(Device(uuid="GPU-0", index=0), power_watts=310.54)
    >>> value_of("power", sample), value_of("energy", sample)
    ('310.5 W', None)
    """
    words = _VALUES.get(field)
    if words is not None:
        return words(sample)
    read = _DETAILS.get(field)
    return None if read is None or sample.details is None else read(sample.details)


_Value = TypeVar("_Value")


def _or_none(words: Callable[[_Value], str], value: _Value | None) -> str | None:
    return None if value is None else words(value)


def _percent(name: str, ratio: float | None) -> str | None:
    return None if ratio is None else f"{name} {100 * ratio:.0f} %".lstrip()


def _joined(*words: str | None) -> str | None:
    return ", ".join(word for word in words if word) or None


def _memory(sample: GpuSample) -> str | None:
    used, capacity = sample.memory_used_bytes, sample.device.memory_capacity_bytes
    if used is None:
        return None
    if capacity is None:
        return f"{in_gibibytes(used)} used"
    return f"{used / (1 << 30):,.1f} of {in_gibibytes(capacity)}"


def _clocks(sample: GpuSample) -> str | None:
    most = None if sample.details is None else sample.details.sm_clock_max_hertz
    return _joined(
        _or_none(lambda hertz: f"{hertz / 1e6:.0f} MHz", sample.sm_clock_hertz),
        _or_none(lambda hertz: f"at most {hertz / 1e6:.0f} MHz", most),
    )


def _activity(sample: GpuSample) -> str | None:
    activity = sample.activity
    if activity is None:
        return None
    return _joined(
        _percent("SM", activity.sm_active_ratio),
        _percent("occupancy", activity.sm_occupancy_ratio),
        _percent("tensor", activity.tensor_active_ratio),
        _percent("DRAM", activity.memory_bandwidth_ratio),
    )


def _rates(sent: float | None, received: float | None) -> str | None:
    return _joined(
        _or_none(lambda rate: f"{rate / 1e6:,.1f} MB/s out", sent),
        _or_none(lambda rate: f"{rate / 1e6:,.1f} MB/s in", received),
    )


_VALUES: Final[dict[str, Callable[[GpuSample], str | None]]] = {
    "power": lambda gpu: _or_none(lambda watts: f"{watts:.1f} W", gpu.power_watts),
    "memory": _memory,
    "temperature": lambda gpu: _or_none(lambda c: f"{c:.0f} C", gpu.temperature_celsius),
    "clocks": _clocks,
    "energy": lambda gpu: _or_none(lambda joules: f"{joules / 1e3:,.1f} kJ", gpu.energy_joules),
    "activity": _activity,
    "processes": lambda gpu: _or_none(lambda found: f"{len(found)} now", gpu.processes),
}
_DETAILS: Final[dict[str, Callable[[GpuDetails], str | None]]] = {
    "throttle_reasons": lambda of: _or_none(
        lambda reasons: ", ".join(reasons).replace("_", " ") or "none", of.throttle_reasons
    ),
    "power_limit": lambda of: _or_none(lambda watts: f"{watts:.1f} W", of.power_limit_watts),
    "performance_state": lambda of: _or_none(lambda state: f"P{state}", of.performance_state),
    "ecc": lambda of: _or_none(lambda n: f"{n} uncorrected", of.ecc_uncorrected_errors),
    "persistence_mode": lambda of: _or_none(lambda on: "on" if on else "off", of.persistence_mode),
    "pcie": lambda of: _rates(
        of.pcie_transmitted_bytes_per_second, of.pcie_received_bytes_per_second
    ),
    "nvlink": lambda of: _rates(
        of.nvlink_transmitted_bytes_per_second, of.nvlink_received_bytes_per_second
    ),
    "fan": lambda of: _percent("", of.fan_speed_ratio),
    "encoder": lambda of: _joined(
        _percent("encoder", of.encoder_ratio), _percent("decoder", of.decoder_ratio)
    ),
}
