"""Logs in which GPUs do not say how busy they are, as three tools write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from tests.builders_logs import rows

BUS_IDS: Final = ("00000000:18:00.0", "00000000:3B:00.0")
LOST: Final = (
    "Unable to determine the device handle for GPU 0000:18:00.0: GPU is lost.  "
    "Reboot the system to recover this GPU"
)
MISMATCH: Final = (
    "Failed to initialize NVML: Driver/library version mismatch",
    "NVML library version: 550.54",
)
NO_DRIVER: Final = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running."
)
NO_DEVICES: Final = "No devices were found"


class Both(NamedTuple):
    """A second in which the tool says something, and the GPUs are read all the same."""

    said: str
    gpus: Sequence[object]


Moment = Sequence[object] | str
"""What each GPU says at a second, in percent or in words; or what the tool says instead."""


def _clock(at_s: int) -> str:
    return f"{9 + at_s // 3600:02}:{at_s // 60 % 60:02}:{at_s % 60:02}"


def csv(moments: Sequence[Moment]) -> str:
    """Of nvidia-smi, with a row for each GPU and second, from 09:00:00 on."""
    lines = ["timestamp, index, utilization.gpu [%], memory.used [MiB]"]
    for at_s, moment in enumerate(moments):
        if isinstance(moment, str):
            lines += moment.splitlines()
            continue
        if isinstance(moment, Both):
            lines += moment.said.splitlines()
            moment = moment.gpus
        for index, said in enumerate(moment):
            cell = said if isinstance(said, str) else f"{said} %"
            stamp = f"2026/03/02 {_clock(at_s)}.000"
            lines.append(f"{stamp}, {index}, {cell}, {cell if cell == said else '900 MiB'}")
    return rows(*lines)


def table(moments: Sequence[Moment], *, mig: str = "Disabled", every_s: int = 1) -> str:
    """Of nvidia-smi, with a date above each table, but not above what it says instead."""
    lines = []
    for number, moment in enumerate(moments):
        if isinstance(moment, str):
            lines += moment.splitlines()
            continue
        if isinstance(moment, Both):
            lines += moment.said.splitlines()
            moment = moment.gpus
        lines += [f"Mon Mar  2 {_clock(number * every_s)} 2026", f"+{'-' * 87}+"]
        lines.append(f"| NVIDIA-SMI 535.86.10              Driver Version: 535.86.10{' ' * 28}|")
        for index, said in enumerate(moment):
            cell = said if isinstance(said, str) else f"{said}%"
            lines += [
                f"|   {index}  NVIDIA A800-SXM4-80GB          Off | {BUS_IDS[index]} Off |"
                "                    0 |",
                f"| N/A   33C    P0              87W / 400W |  36537MiB / 81920MiB | {cell:>7}"
                "      Default |",
                f"|                                         |                      | {mig:>20} |",
            ]
        lines.append(f"+{'-' * 87}+")
    return rows(*lines)


def dmon(moments: Sequence[Moment]) -> str:
    """Of ``nvidia-smi dmon -s u -o T``."""
    lines = ["#Time        gpu     sm    mem", "#HH:MM:SS    Idx      %      %"]
    for at_s, moment in enumerate(moments):
        if isinstance(moment, str):
            lines += moment.splitlines()
            continue
        if isinstance(moment, Both):
            lines += moment.said.splitlines()
            moment = moment.gpus
        for index, said in enumerate(moment):
            cell = said if isinstance(said, str) else f"{said}"
            lines.append(f" {_clock(at_s)}      {index}  {cell.replace(' ', '')}      0")
    return rows(*lines)


TOOLS: Final[Mapping[str, Callable[[Sequence[Moment]], str]]] = {
    "csv": csv, "table": table, "dmon": dmon,
}  # fmt: skip


def at_work(seconds: int, gpus: int = 1) -> list[Moment]:
    """Some seconds in which all GPUs are busy."""
    return [[97] * gpus for _ in range(seconds)]
