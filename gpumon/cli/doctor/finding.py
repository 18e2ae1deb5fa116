"""What the doctor says of one thing that it looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

OK: Final = "ok"
MISSING: Final = "missing"
BROKEN: Final = "broken"
OFF: Final = "off"

GPUS: Final = "GPUs"
DRIVER: Final = "Driver"
MACHINE: Final = "Machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        name: What it is.
        status: ``ok``, ``missing`` (nothing breaks, less is shown), ``broken``,
            or ``off`` (nobody asked for it).
        detail: What was found.
        fix: What to do about it; ``None`` where there is nothing to do.
        group: ``GPUs``, ``Driver`` or ``Machine``.
        gpu: Number of the GPU that it is of, such as ``"0"``, or ``"0:1"`` of
            a MIG instance; ``None``: of the whole machine.
        what: The name without the GPU's.
        period_seconds: How often it is read by default; 0: in each tick;
            ``None``: it is no field of a GPU, or is waited for.
        reading_microseconds: What one reading takes inside the driver.
        seconds_per_second: Time inside the driver for each second, at that cadence.
    """

    name: str
    status: str
    detail: str
    fix: str | None = None
    group: str = MACHINE
    gpu: str | None = None
    what: str = ""
    period_seconds: float | None = None
    reading_microseconds: float | None = None
    seconds_per_second: float | None = None


def finding_of(
    group: str,
    name: str,
    detail: str,
    *,
    status: str = OK,
    fix: str | None = None,
    share: float | None = None,
) -> Finding:
    """A finding that is no GPU's; ``share`` are its seconds of each second."""
    return Finding(
        name=name, what=name, status=status, detail=detail, fix=fix, group=group,
        seconds_per_second=share,
    )  # fmt: skip
