"""The driver's codes with their meaning for users and what to do: the one table of remedies.

XIDs, the answers of a GPU that cannot be read, and why clocks are reduced.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

MAX_XIDS: Final = 64
"""Different XIDs kept of one GPU: more than a board in use can have."""


class CodeText(NamedTuple):
    """What a code means (for a slowdown: what holds the clocks down), and what to do."""

    meaning: str
    advice: str


_FIND_THE_KERNEL: Final = "run the program under compute-sanitizer to find the kernel"
_RESET: Final = "end what uses the GPU and reset it (nvidia-smi --gpu-reset), or reboot"
_RESET_OR_UPDATE: Final = f"{_RESET}; if it comes back, try another driver version"
_LOOK_EARLIER: Final = (
    "look for the XID before it; alone, after a program was ended, it is harmless"
)
_OFF_THE_BUS: Final = (
    "reboot, or power-cycle the machine; check its temperature, power supply and seating"
)
_LINK: Final = f"{_RESET}; if it comes back, have the link's bridge or cable checked"

_TEXTS: Final = {
    8: CodeText("a kernel ran too long and was stopped", "look for an endless loop in the program"),
    13: CodeText(
        "a kernel did something illegal, such as an index out of bounds", _FIND_THE_KERNEL
    ),
    31: CodeText(
        "a kernel used memory that is not its program's",
        f"{_FIND_THE_KERNEL}; if sound programs fail on this GPU alone, suspect the board",
    ),
    38: CodeText("the driver's firmware failed", _RESET_OR_UPDATE),
    43: CodeText("the program's work on the GPU was stopped", f"the GPU is well: {_LOOK_EARLIER}"),
    45: CodeText("what a program had queued was thrown away", _LOOK_EARLIER),
    48: CodeText(
        "two bits of the GPU's memory flipped at once, which cannot be corrected",
        f"do not trust that program's result; {_RESET}; if it comes back, replace the board",
    ),
    61: CodeText("the GPU's own controller stopped at a fault", _RESET_OR_UPDATE),
    62: CodeText("the GPU's own controller halted", _RESET_OR_UPDATE),
    63: CodeText(
        "a bad cell of the GPU's memory is to be taken out of use",
        "reset the GPU when it is free, for the change to take effect",
    ),
    64: CodeText(
        "a bad cell of the GPU's memory could not be taken out of use",
        f"{_RESET}; if it comes back, replace the board",
    ),
    68: CodeText("the video engine met an error", "look at what the program decodes or encodes"),
    69: CodeText("the program gave the GPU an order it does not know", _FIND_THE_KERNEL),
    74: CodeText("an NVLink failed, and what it carried may be lost", _LINK),
    79: CodeText(
        "the GPU fell off the bus: the host cannot reach it any more",
        _OFF_THE_BUS,
    ),
    92: CodeText(
        "single bits of the GPU's memory flip often, each corrected so far",
        "watch the ECC counters, and have the board tested at the next pause",
    ),
    94: CodeText(
        "memory was damaged in one program's part alone",
        "start that program again from its checkpoint; reset the GPU when it is free",
    ),
    95: CodeText(
        "memory was damaged, and any program on the GPU may be hit",
        f"trust none of their results since; {_RESET} before you go on",
    ),
    109: CodeText("the GPU did not change from one program to the next in time", _RESET_OR_UPDATE),
    119: CodeText("the GPU's system processor (GSP) did not answer the driver", _RESET_OR_UPDATE),
    120: CodeText("the GPU's system processor (GSP) failed", _RESET_OR_UPDATE),
    140: CodeText(
        "memory errors are there that were not corrected",
        f"{_RESET}; if it comes back, replace the board",
    ),
    154: CodeText(
        "the driver says that this GPU requires a recovery action",
        "`nvidia-smi -q` names it under GPU Recovery Action: mostly a reset, or a reboot",
    ),
}

OF_PROGRAMS: Final = frozenset({8, 13, 31, 43, 45, 68, 69})
"""They usually come from a program: the GPU itself works."""

CAN_WAIT: Final = frozenset({63, 92, 94})
"""The board corrected itself: the remedy may wait until the GPU is free."""

_UNKNOWN: Final = CodeText(
    "the driver reported an error of this GPU",
    "look for Xid in `dmesg`, and for its number in NVIDIA's list of XID errors",
)


def xid_text(xid: int) -> CodeText:
    """Return what that XID means and what to do; for an unknown one, where to look.

    >>> xid_text(79).meaning
    'the GPU fell off the bus: the host cannot reach it any more'
    """
    return _TEXTS.get(xid, _UNKNOWN)


def xid_sentence(xid: int) -> str:
    """Return the same as one line of a log.

    >>> xid_sentence(13)
    'XID 13: a kernel did something illegal, such as an index out of bounds. What to do: \
run the program under compute-sanitizer to find the kernel.'
    """
    meaning, advice = xid_text(xid)
    return f"XID {xid}: {meaning}. What to do: {advice}."


UNREADABLE: Final[Mapping[int, CodeText]] = {
    4: CodeText(
        "this user may not read the GPU",
        "give this user read and write access to /dev/nvidia*, or run gpumon as root",
    ),
    8: CodeText("the GPU has too little external power", "look at its power cables"),
    15: CodeText("the GPU is lost", f"look for Xid 79 in `dmesg`, then {_OFF_THE_BUS}"),
    16: CodeText(
        "the GPU needs a reset",
        "end what uses it, gpumon too, then `nvidia-smi --gpu-reset -i` with its number, or reboot",
    ),
    17: CodeText(
        "the operating system blocks the GPU", "let the service or container use its /dev/nvidia*"
    ),
    999: CodeText(
        "the GPU answers with an unknown error",
        "look for Xid in `dmesg`, then reset the GPU or reboot",
    ),
}
"""Why one GPU cannot be read while others may work, by NVML's code."""

VANISHED: Final = CodeText(
    "the driver no longer lists it", "unless it was removed, look for Xid in `dmesg`, then reboot"
)


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

Bit 0, "the GPU is idle", is left out: an idle board's clocks are low on purpose.
"""


_AIR: Final = "look at its fans and filters, and at the air it gets"

SLOWDOWNS: Final[Mapping[str, CodeText]] = {
    "hw_thermal_slowdown": CodeText("heat", _AIR),
    "sw_thermal_slowdown": CodeText("heat", _AIR),
    "hw_power_brake_slowdown": CodeText(
        "the machine's power supply", "look at the machine's power supplies and their limits"
    ),
    "hw_slowdown": CodeText(
        "the board itself, for heat or power",
        "look at its temperature, power cables and power supply",
    ),
}
"""The reasons that are a trouble, the most specific first: ``hw_slowdown`` comes along with others.
Not the power limit, which a GPU at full load is meant to reach, nor clocks that a user has set.
"""


def throttle_reasons(bits: int) -> tuple[str, ...]:
    """Return the reasons that are set, in the order of their bits; unknown bits are left out.

    >>> throttle_reasons(0x05)
    ('sw_power_cap',)
    """
    return tuple(name for bit, name in THROTTLE_REASONS.items() if bits & bit)
