"""All GPUs of a report taken as one machine: GPU-time, summed over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpumon.core.phase import IdleCause
from gpumon.core.report.report import GpuReport, judged


class MachineTime(NamedTuple):
    """GPU-time of several GPUs, nanoseconds.

    ``busy_ns + lost_ns + out_of_use_ns + pending_ns == observed_ns``.

    Attributes:
        gpus: How many; those that MIG cuts up, and instances that tell nothing, are left out.
        observed_ns: Time covered by samples, of each of them.
        busy_ns: Of it, busy.
        lost_ns: Idle while in use.
        out_of_use_ns: Idle before a job, after it, and without one.
        pending_ns: Not decided yet; 0 in a log.
    """

    gpus: int
    observed_ns: int
    busy_ns: int
    lost_ns: int
    out_of_use_ns: int
    pending_ns: int

    def share(self, part_ns: int) -> float | None:
        """A part of the observed time; ``None`` where none was observed."""
        return part_ns / self.observed_ns if self.observed_ns else None


def machine_time(gpus: Sequence[GpuReport]) -> MachineTime:
    """The time of all GPUs that there is a verdict on."""
    known = [gpu.totals for gpu in judged(gpus)]
    out_of_use_ns = sum(
        totals.idle_ns.get(cause, 0)
        for totals in known
        for cause in (IdleCause.NOT_IN_USE, IdleCause.START_UP)
    )
    return MachineTime(
        gpus=len(known),
        observed_ns=sum(totals.observed_ns for totals in known),
        busy_ns=sum(totals.busy_ns for totals in known),
        lost_ns=sum(totals.idle_total_ns for totals in known) - out_of_use_ns,
        out_of_use_ns=out_of_use_ns,
        pending_ns=sum(totals.pending_ns for totals in known),
    )
