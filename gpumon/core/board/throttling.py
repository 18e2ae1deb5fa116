"""Why a board holds its clocks down: NVML's bit mask by name, and which of it is a trouble."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

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


class Slowdown(NamedTuple):
    """A reason that is no part of normal work, in words.

    Attributes:
        by: What holds the clocks down.
        advice: What to do.
    """

    by: str
    advice: str


_AIR: Final = "look at its fans and filters, and at the air it gets"

SLOWDOWNS: Final[Mapping[str, Slowdown]] = MappingProxyType(
    {
        "hw_thermal_slowdown": Slowdown("heat", _AIR),
        "sw_thermal_slowdown": Slowdown("heat", _AIR),
        "hw_power_brake_slowdown": Slowdown(
            "the machine's power supply", "look at the machine's power supplies and their limits"
        ),
        "hw_slowdown": Slowdown(
            "the board itself, for heat or power",
            "look at its temperature, power cables and power supply",
        ),
    }
)
"""The reasons that are a trouble, the one that says most first: ``hw_slowdown`` comes along with
others. Not the power limit, which a GPU at full load is meant to reach, nor what somebody has set.
"""


def throttle_reasons(bits: int) -> tuple[str, ...]:
    """The reasons that are set, in the order of their bits; bits without a name are left out.

    >>> throttle_reasons(0x05)
    ('sw_power_cap',)
    """
    return tuple(name for bit, name in THROTTLE_REASONS.items() if bits & bit)
