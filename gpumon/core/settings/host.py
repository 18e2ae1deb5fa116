"""Thresholds that tell why a batch is late, by what the machine shows of its training."""

from __future__ import annotations

from dataclasses import dataclass

from gpumon.core.clock import NS_PER_S
from gpumon.core.settings.threshold import Settings, amount_bytes, count, share, time_ns, times

_ON_CONDITIONS = "ours: between what sixteen conditions, each really produced, showed of it"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings(Settings):
    """Shares are of a core, of a look's length, or of the looks that were asked."""

    look_ns: int = time_ns(
        NS_PER_S,
        "No look at the machine stands for more time than this.",
        origin="ours: a training can change within a second, and a look costs something",
    )
    remembered_looks: int = count(
        5,
        "So many of the last looks that saw a training's loader say where it slept.",
        origin="ours: a look tells where a task stands at one instant only",
    )
    active_above: float = share(
        0.10,
        "A task that wants less of a core prepares nothing.",
        origin="ours: idle workers and watching threads want a hundredth",
    )
    busy_from: float = share(
        0.80,
        "A loader's tasks that want so much of a core each, in the mean, or of all that they may "
        "use, are held up by computing.",
        origin=_ON_CONDITIONS + ": 0.88 and more where they compute, at most 0.77 where they wait",
    )
    training_thread_from: float = share(
        0.60,
        "A thread that trains and wants so much of a core while it waits makes its batches itself.",
        origin=_ON_CONDITIONS + ": 0.72 where it does, at most 0.13 where others do",
    )
    queued_share: float = share(
        0.50,
        "Where so much of what they want is waiting for a core, there are too few cores.",
        origin=_ON_CONDITIONS + ": 0.77 to 0.88 with too few cores, 0.09 with too few workers",
    )
    gil_wanted_from: float = share(
        0.80,
        "Threads that share Python's lock want at least so much of a core together, ...",
        origin=_ON_CONDITIONS + ": 1.22 and more, for somebody always wants it",
    )
    gil_thread_most: float = share(
        0.85,
        "... none of them for more of the time than this, for it waits for its turn, ...",
        origin=_ON_CONDITIONS + ": 0.40 to 0.69 where they share it, 0.89 to 0.98 where they do "
        "not; up to 0.82 on a machine that others load",
    )
    gil_most_cores: float = times(
        1.10,
        "... are given no more than this, however many they are, for only one can go on, ...",
        origin="ours: one core, and what the others need to ask for the lock",
    )
    gil_switches: int = count(
        50,
        "... and give their core up so often a second each, ...",
        origin="ours: CPython's waiters ask every 5 ms, 200 times a second, and 100 on a machine "
        "that others load",
    )
    gil_most_switches: int = count(
        500,
        "... but no oftener: what is woken more often is a pool of native threads.",
        origin=_ON_CONDITIONS + ": 97 to 343 each",
    )
    gil_switches_per_cpu_second: int = count(
        200,
        "... which is so often for each second of CPU time.",
        origin=_ON_CONDITIONS + ": 500 and more; a thread that computes alone hardly ever does",
    )
    disk_read_bytes: int = amount_bytes(
        20_000_000,
        "A training that reads so much a second waits for a disk that is busy.",
        origin=_ON_CONDITIONS + ": 47 to 636 MB a second",
    )
    disk_busy_from: float = share(
        0.50,
        "A disk that is busy for so much of a look is busy.",
        origin=_ON_CONDITIONS + ": 0.67 to 0.77 where it held up, at most 0.11 where not",
    )
    disk_faults: int = count(
        1_000,
        "Pages fetched from a disk a second that hold a training up by themselves.",
        origin=_ON_CONDITIONS + ": 11,403 where they did, none where not",
    )
    disk_sleep_share: float = share(
        0.25,
        "A loader that so often sleeps until a device answers waits for a disk.",
        origin=_ON_CONDITIONS + ": 0.32 to 0.70 where it did, none where not",
    )
    asleep_share: float = share(
        0.50,
        "A loader that so often sleeps for one thing waits for that.",
        origin=_ON_CONDITIONS + ": 0.96 and more",
    )
    memory_stalled_from: float = share(
        0.10,
        "Memory is short where somebody waits for it for so much of a look, ...",
        origin="ours: Linux counts no stall at all while there is enough",
    )
    memory_refaults: int = count(
        2_000,
        "... or where so many pages that it had dropped are read again a second, ...",
        origin="ours: in a cgroup that is too small 757 in the first second and 2,655 in the next, "
        "and rising; hundreds can be those of neighbours in the same cgroup",
    )
    memory_faults: int = count(
        50,
        "... and the training itself has so many pages fetched a second.",
        origin="ours: a neighbour's want of memory is not the training's",
    )


DEFAULT_HOST_SETTINGS = HostSettings()
