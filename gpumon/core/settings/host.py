"""Thresholds that explain why data loading is slow, from host evidence."""

from __future__ import annotations

from dataclasses import dataclass

from gpumon.core.clock import NS_PER_S
from gpumon.core.settings.threshold import Settings, amount_bytes, count, share, time_ns, times

_MEASURED = "ours: measured in sixteen conditions that were really produced"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings(Settings):
    """Shares are of a core, of a sample's length, or of the samples that were read."""

    look_ns: int = time_ns(
        NS_PER_S,
        "A host sample covers no more time than this.",
        "ours: a run can change within a second, and a sample costs something",
    )
    remembered_looks: int = count(
        5,
        "Where a loader slept is taken from this many of its last samples.",
        "ours: a sample shows a task at one instant only",
    )
    active_above: float = share(
        0.10,
        "A task that wants less of a core prepares no data.",
        "ours: idle workers and watching threads want a hundredth",
    )
    busy_from: float = share(
        0.80,
        "A loader is compute-bound if its tasks want this much of a core each on average, or of "
        "all cores that they may use.",
        _MEASURED + ": at least 0.88 where they compute, at most 0.77 where they wait",
    )
    training_thread_from: float = share(
        0.60,
        "A training thread that wants this much of a core while it waits loads data itself.",
        _MEASURED + ": 0.72 where it does, at most 0.13 where others do",
    )
    queued_share: float = share(
        0.50,
        "There are too few cores if tasks wait for a core for this share of what they want.",
        _MEASURED + ": 0.77 to 0.88 with too few cores, 0.09 with too few workers",
    )
    gil_wanted_from: float = share(
        0.80,
        "Threads that share the GIL want at least this much of a core together, ...",
        _MEASURED + ": at least 1.22, because one of them always wants it",
    )
    gil_thread_most: float = share(
        0.85,
        "... each of them for no more of the time than this, because it waits for its turn, ...",
        _MEASURED + ": 0.40 to 0.69 where they share it, 0.89 to 0.98 where they do not; up to "
        "0.82 on a loaded machine",
    )
    gil_most_cores: float = times(
        1.10,
        "... get no more than this together, because only one can run, ...",
        "ours: one core, and what the others need to request the lock",
    )
    gil_switches: int = count(
        50,
        "... give their core up at least this often a second each, ...",
        "ours: CPython's waiters ask every 5 ms, 200 times a second, and 100 on a loaded machine",
    )
    gil_most_switches: int = count(
        500,
        "... but no more often: that would be a pool of native threads.",
        _MEASURED + ": 97 to 343 each",
    )
    gil_switches_per_cpu_second: int = count(
        200,
        "... and this often for each second of CPU time.",
        _MEASURED + ": at least 500; a thread that computes alone hardly ever does",
    )
    disk_read_bytes: int = amount_bytes(
        20_000_000,
        "A run that reads this much a second waits for a busy disk.",
        _MEASURED + ": 47 to 636 MB a second",
    )
    disk_busy_from: float = share(
        0.50,
        "A disk is busy if it works for this share of a sample.",
        _MEASURED + ": 0.67 to 0.77 where it was the reason, at most 0.11 where not",
    )
    disk_faults: int = count(
        1_000,
        "Pages fetched from a disk a second that delay a run by themselves.",
        _MEASURED + ": 11,403 where they did, none where not",
    )
    disk_sleep_share: float = share(
        0.25,
        "A loader waits for a disk if it sleeps for a device in this share of samples.",
        _MEASURED + ": 0.32 to 0.70 where it did, none where not",
    )
    asleep_share: float = share(
        0.50,
        "A loader waits for the resource that it sleeps for in this share of samples.",
        _MEASURED + ": at least 0.96",
    )
    memory_stalled_from: float = share(
        0.10,
        "Memory is short if a process waits for it for this share of a sample, ...",
        "ours: Linux counts no stall at all while there is enough",
    )
    memory_refaults: int = count(
        2_000,
        "... or if this many evicted pages are read again a second, ...",
        "ours: in a cgroup that is too small, 757 in the first second and 2,655 in the next, and "
        "rising; other processes of a cgroup can cause hundreds",
    )
    memory_faults: int = count(
        50,
        "... and the run itself has this many pages fetched a second.",
        "ours: another process's lack of memory is not the run's",
    )


DEFAULT_HOST_SETTINGS = HostSettings()
