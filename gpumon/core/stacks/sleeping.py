"""Where the first thread of a program is that runs no Python, by what the kernel shows of it."""

from __future__ import annotations

from gpumon.core.stacks.place import STOPPED, Place, is_stopped
from gpumon.core.stacks.stack import StackSample


def kernel_place_of(sample: StackSample) -> Place:
    """Where the first thread of the process was; an empty place if there is none."""
    if not sample.processes or not sample.processes[0].threads:
        return Place()
    if is_stopped(sample.processes[0]):
        return Place(what=STOPPED)
    thread = sample.processes[0].threads[0]
    if thread.sleeps_in is not None:
        return Place(what=f"{thread.sleeps_in} (asleep in the kernel)")
    if thread.state == "R":
        return Place(what="its own code (it computes)")
    return Place(what="a sleep of unknown kind")
