"""The doctor's finding on host evidence: which reasons of a wait this machine cannot show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpumon.cli.doctor.findings import MACHINE, MISSING, Finding, finding_of
from gpumon.sources.host.visibility import HostVisibility

_NAME: Final = "host evidence"
_AS_WHO_TRAINS: Final = (
    "run gpumon serve as the user that trains, or as root (in a container with SYS_PTRACE)"
)
_OTHER_KERNEL: Final = "distributions' kernels have it; in a sandbox, run gpumon serve outside"


def host_finding(visible: HostVisibility, *, others_train: bool) -> Finding:
    """Which reasons will be unknown here, and what to do about it.

    Args:
        visible: What can be read.
        others_train: Whether another user's training run is alive; if not, hidden facts of other
            users are no problem.
    """
    missing = [*_missing(visible, others_train)]
    if not missing:
        detail = "why a training run waits can be seen"
        if not visible.opens_others:
            detail += "; for other users' runs not whether for a network, or for latency"
        return finding_of(MACHINE, _NAME, detail)
    return finding_of(
        MACHINE,
        _NAME,
        "; ".join(what for what, _ in missing),
        status=MISSING,
        fix="; ".join(dict.fromkeys(fix for _, fix in missing)),
    )


def _missing(visible: HostVisibility, others_train: bool) -> Iterator[tuple[str, str]]:
    """What is missing with what that costs, and what fixes it."""
    if not visible.counts_cores:
        yield (
            "there is no schedstat: all reasons will be unknown",
            f"boot a kernel with CONFIG_SCHEDSTATS: {_OTHER_KERNEL}",
        )
        return  # nothing else is read without it
    if not visible.names_sleep:
        yield (
            "wchan reads 0: network_bound and latency_bound will be unknown",
            f"boot a kernel with CONFIG_KALLSYMS: {_OTHER_KERNEL}",
        )
    if not visible.names_children:
        yield (
            "there is no list of children: what worker processes do will not be seen",
            f"boot a kernel with CONFIG_PROC_CHILDREN: {_OTHER_KERNEL}",
        )
    if not visible.counts_memory_stalls:
        yield (
            "there is no memory pressure (PSI): for a training run without a memory limit of its "
            "own, memory_pressure will show as disk_bound or unknown",
            "boot with psi=1 on the kernel's command line",
        )
    if not visible.shows_others:
        yield (
            "processes of other users are hidden (hidepid): for their training runs all reasons "
            "will be unknown, and a run counts on a GPU only if its own process is there",
            "run gpumon serve as root, or as a user of the group that /proc is mounted with (gid=)",
        )
    elif others_train and not visible.opens_others:
        yield (
            "another user trains, and the kernel hides where other users' processes sleep and what "
            "they read: network_bound and latency_bound will be unknown there",
            _AS_WHO_TRAINS,
        )
