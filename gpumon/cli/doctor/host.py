"""What the doctor says of host evidence: which reasons of a wait this machine cannot show."""

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


def host_finding(sight: HostVisibility, *, others_train: bool) -> Finding:
    """Which reasons will read unknown here, and what to do about it.

    Args:
        sight: What can be seen.
        others_train: Whether a training of another user lives: what hides only these is no
            trouble else.
    """
    amiss = [*_amiss(sight, others_train)]
    if not amiss:
        said = "why a training waits can be seen, once it waits"
        if not sight.opens_others:
            said += "; of other users' trainings not whether for a network, or for latency"
        return finding_of(MACHINE, _NAME, said)
    return finding_of(
        MACHINE,
        _NAME,
        "; ".join(what for what, _ in amiss),
        status=MISSING,
        fix="; ".join(dict.fromkeys(fix for _, fix in amiss)),
    )


def _amiss(sight: HostVisibility, others_train: bool) -> Iterator[tuple[str, str]]:
    """What is missing with what it costs, and what mends it."""
    if not sight.counts_cores:
        yield (
            "there is no schedstat: all reasons will read unknown",
            f"boot a kernel with CONFIG_SCHEDSTATS: {_OTHER_KERNEL}",
        )
        return  # nothing is asked without it
    if not sight.names_sleep:
        yield (
            "wchan reads 0: network_bound and latency_bound will read unknown",
            f"boot a kernel with CONFIG_KALLSYMS: {_OTHER_KERNEL}",
        )
    if not sight.names_children:
        yield (
            "there is no list of children: what worker processes do will not be seen",
            f"boot a kernel with CONFIG_PROC_CHILDREN: {_OTHER_KERNEL}",
        )
    if not sight.counts_memory_stalls:
        yield (
            "there is no memory pressure (PSI): of a training without a limit of its own, "
            "memory_pressure will read disk_bound or unknown",
            "boot with psi=1 on the kernel's command line",
        )
    if not sight.shows_others:
        yield (
            "processes of other users are hidden (hidepid): of their trainings all reasons will "
            "read unknown, and a run counts on a GPU only if its own process is there",
            "run gpumon serve as root, or as a user of the group that /proc is mounted with (gid=)",
        )
    elif others_train and not sight.opens_others:
        yield (
            "another user trains, and of others' processes the kernel says neither where they "
            "sleep nor what they read: network_bound and latency_bound will read unknown there",
            _AS_WHO_TRAINS,
        )
