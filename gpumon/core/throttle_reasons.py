"""Why a board holds its clocks down: NVML's bit mask by name."""

from __future__ import annotations

from typing import Final

THROTTLE_REASONS: Final = {
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
"""Bits of ``nvmlDeviceGetCurrentClocksEventReasons`` that hold a working board back.

Bit 0, "the GPU is idle", is left out: an idle board's clocks are low because
nobody needs them.
"""


def throttle_reasons(bits: int) -> tuple[str, ...]:
    """The reasons that are set, in the order of their bits; bits without a name are left out.

    >>> throttle_reasons(0x05)
    ('sw_power_cap',)
    """
    return tuple(name for bit, name in THROTTLE_REASONS.items() if bits & bit)
