"""From the last samples of a run to why it waits. Pure rules; several can hold at once.

They are in the order in which reasons are reported. The tasks of a loader are its worker processes;
where none of these does anything, the other threads of its process; else the training thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from itertools import chain, islice
from typing import Final, NamedTuple, TypeAlias

from gpumon.core.phase import InputWaitReason
from gpumon.core.settings.host import DEFAULT_HOST_SETTINGS, HostSettings
from gpumon.core.settings.rule import RuleKind, rule, rule_of
from gpumon.core.waits.evidence import HostEvidence, TaskSample

Samples: TypeAlias = Sequence[HostEvidence]
"""The last samples of a run, oldest first; at least one."""


class LoaderPlace(str, Enum):
    """Who makes the batches."""

    WORKERS = "workers"
    """Separate processes."""
    THREADS = "threads"
    """Other threads of the process of the run."""
    TRAINING_THREAD = "training_thread"
    """The training thread, between its steps."""


class ShortOf(str, Enum):
    """What there is too little of where a loader computes all the time."""

    CORES = "cores"
    """More workers would not help."""
    WORKERS = "workers"


class WaitDiagnosis(NamedTuple):
    """What one sample shows, together with those before.

    Attributes:
        reasons: Why the run waits for input, in the order in which they are reported; never empty.
        place: Who makes its batches; ``None``: not visible.
        is_gil_bound: Whether threads of its process compete for the GIL: then steps wait
            for it, too.
    """

    reasons: tuple[InputWaitReason, ...]
    place: LoaderPlace | None
    is_gil_bound: bool


_NETWORK: Final = ("wait_woken", "sk_wait_data", "tcp_", "inet_", "rpc_", "nfs_")
_TIMER: Final = ("hrtimer_nanosleep", "do_nanosleep", "clock_nanosleep", "common_nsleep")
_QUEUE: Final = ("futex", "pipe", "anon_pipe", "poll_", "do_poll", "do_sys_poll", "ep_poll",
                 "do_epoll", "do_wait", "kernel_wait", "do_select", "unix_stream")  # fmt: skip
"""A task that sleeps in one of these waits for a task of its own run, or for work."""
_LOCK: Final = ("futex", "flock", "locks_", "fcntl_", "do_lock_file")
"""A worker that sleeps in one of these waits for a lock, or until another thread wakes it."""


def diagnose_wait(
    samples: Samples, settings: HostSettings = DEFAULT_HOST_SETTINGS
) -> WaitDiagnosis:
    """Why a run waits for input, by its last samples."""
    reasons = tuple(reason for reason, holds in _REASONS if holds(samples, settings))
    return WaitDiagnosis(
        reasons=reasons or (InputWaitReason.UNKNOWN,),
        place=_place_of(samples, settings),
        is_gil_bound=is_gil_bound(samples, settings) and not is_disk_bound(samples, settings),
    )


def loader_place(sample: HostEvidence, settings: HostSettings) -> LoaderPlace | None:
    """Who makes the batches: whoever does something, or sleeps for something outside."""
    for place in LoaderPlace:
        if any(is_at_it(task, settings) for task in tasks_at(place, sample)):
            return place
    return None


def tasks_at(place: LoaderPlace, sample: HostEvidence) -> tuple[TaskSample, ...]:
    """The tasks of a sample in that place."""
    if place is LoaderPlace.WORKERS:
        return sample.workers
    if place is LoaderPlace.THREADS:
        return sample.threads
    return () if sample.main is None else (sample.main,)


def active_tasks(
    place: LoaderPlace | None, sample: HostEvidence, settings: HostSettings
) -> tuple[TaskSample, ...]:
    """Those of them that want a part of a core."""
    tasks = () if place is None else tasks_at(place, sample)
    return tuple(task for task in tasks if task.wanted_cores > settings.active_above)


def locked_ratio(sample: HostEvidence) -> float | None:
    """The part, 0 to 1, of its worker processes that sleep in a lock.

    ``None``: the state of fewer than two is known, and one alone shares no lock.
    """
    known = [task for task in sample.workers if task.state is not None]
    return _share(known, lambda task: _sleeps_in(task, _LOCK)) if len(known) > 1 else None


@rule(
    "memory_pressure",
    RuleKind.REASON,
    says="a run waits for input because memory is short",
    evidence="How long processes in the cgroup of the run, or where that is unknown on the "
    "machine, waited for memory (PSI), or how many pages that this cgroup had dropped were read "
    "again; and what the run fetches from disks itself.",
    thresholds=(
        "host.memory_stalled_from",
        "host.memory_refaults",
        "host.memory_faults",
        "host.disk_read_bytes",
    ),
)
def is_memory_short(samples: Samples, settings: HostSettings) -> bool:
    """Whether memory is short, and the run is affected."""
    sample = samples[-1]
    feels_it = _at_least(sample.major_faults_per_second, settings.memory_faults) or _at_least(
        sample.read_bytes_per_second, settings.disk_read_bytes
    )
    stalls = _at_least(sample.memory_stalled_ratio, settings.memory_stalled_from)
    return feels_it and (stalls or _at_least(sample.refaults_per_second, settings.memory_refaults))


@rule(
    "gil_bound",
    RuleKind.REASON,
    says="threads of a run compete for the GIL",
    evidence="What each thread of its process wants of a core and is given, and how often it "
    "gives it up by itself: only one of them goes on at a time, however many they are.",
    thresholds=(
        "host.active_above",
        "host.gil_wanted_from",
        "host.gil_thread_most",
        "host.gil_most_cores",
        "host.gil_switches",
        "host.gil_most_switches",
        "host.gil_switches_per_cpu_second",
    ),
)
def is_gil_bound(samples: Samples, settings: HostSettings) -> bool:
    """Whether threads of its process compete for the GIL."""
    sample = samples[-1]
    main = () if sample.main is None else (sample.main,)
    fighting = [task for task in (*main, *sample.threads) if _asks_for_lock(task, settings)]
    return (
        len(fighting) > 1
        and sum(task.wanted_cores for task in fighting) >= settings.gil_wanted_from
        and max(task.wanted_cores for task in fighting) <= settings.gil_thread_most
        and sum(task.on_cpu_cores for task in fighting) <= settings.gil_most_cores
        and not any(_sleeps_in(task, _NETWORK + _TIMER) for task in fighting)
    )


@rule(
    "disk_bound",
    RuleKind.REASON,
    says="a run waits for input from a slow disk",
    evidence="What the run reads and how busy the disk is; the pages that it has fetched; "
    "and how often its loader sleeps until a device answers.",
    thresholds=(
        "host.active_above",
        "host.disk_read_bytes",
        "host.disk_busy_from",
        "host.disk_faults",
        "host.disk_sleep_share",
        "host.remembered_looks",
    ),
)
def is_disk_bound(samples: Samples, settings: HostSettings) -> bool:
    """Whether a disk holds the loader up."""
    sample = samples[-1]
    read = sample.read_bytes_per_second
    sleeps = _share(_seen(samples, settings), _waits_for_device)
    if read is None and sleeps:  # of other users' processes the kernel reports no more
        read = sample.disk_read_bytes_per_second
    is_busy = _at_least(sample.disk_busy_ratio, settings.disk_busy_from)
    return (
        (is_busy and _at_least(read, settings.disk_read_bytes))
        or _at_least(sample.major_faults_per_second, settings.disk_faults)
        or sleeps >= settings.disk_sleep_share
    )


@rule(
    "cpu_bound",
    RuleKind.REASON,
    says="a run waits for input that is being computed",
    evidence="What its loader's tasks want of a core each, or together of all that they may use: "
    "CPU time and time in the run queue; or what the thread that trains wants of one while it "
    "waits.",
    thresholds=(
        "host.active_above",
        "host.busy_from",
        "host.training_thread_from",
        "host.asleep_share",
        "host.remembered_looks",
        "host.gil_switches",
        "host.gil_most_switches",
        "host.gil_switches_per_cpu_second",
    ),
    measured_with=("host.gil_wanted_from", "host.gil_thread_most", "host.gil_most_cores"),
)
def is_cpu_bound(samples: Samples, settings: HostSettings) -> bool:
    """Whether computing holds the loader up."""
    sample = samples[-1]
    if _are_busy(LoaderPlace.WORKERS, sample, settings):
        return True
    if _are_busy(LoaderPlace.THREADS, sample, settings) and not is_gil_bound(samples, settings):
        return True
    return _computes_in_training_thread(samples, settings)


@rule(
    "network_bound",
    RuleKind.REASON,
    says="a run waits for input from a network",
    evidence="The kernel's function in which its loader sleeps.",
    thresholds=("host.active_above", "host.asleep_share", "host.remembered_looks"),
)
def is_network_bound(samples: Samples, settings: HostSettings) -> bool:
    """Whether a network holds the loader up."""
    return _share_in(_NETWORK, samples, settings) >= settings.asleep_share


@rule(
    "latency_bound",
    RuleKind.REASON,
    says="a run waits for input whose loader only waits for time to pass",
    evidence="The kernel's function in which its loader sleeps.",
    thresholds=("host.active_above", "host.asleep_share", "host.remembered_looks"),
)
def is_latency_bound(samples: Samples, settings: HostSettings) -> bool:
    """Whether the loader waits for time to pass: it sleeps between its reads, or retries."""
    return _share_in(_TIMER, samples, settings) >= settings.asleep_share


_REASONS: Final = (
    (InputWaitReason.MEMORY_PRESSURE, is_memory_short),
    (InputWaitReason.DISK_BOUND, is_disk_bound),
    (InputWaitReason.GIL_BOUND, is_gil_bound),
    (InputWaitReason.CPU_BOUND, is_cpu_bound),
    (InputWaitReason.NETWORK_BOUND, is_network_bound),
    (InputWaitReason.LATENCY_BOUND, is_latency_bound),
)
REASON_RULES: Final = tuple(rule_of(holds) for _, holds in _REASONS)


def sleeps_for_network(sample: HostEvidence) -> bool:
    """Whether any task of a sample sleeps until something comes over a network."""
    main = () if sample.main is None else (sample.main,)
    return any(_sleeps_in(task, _NETWORK) for task in (*main, *sample.threads, *sample.workers))


def _at_least(value: float | None, least: float) -> bool:
    return value is not None and value >= least


def _asks_for_lock(task: TaskSample, settings: HostSettings) -> bool:
    """Whether a thread gives its core up as one that waits for the GIL does."""
    switches = task.switches_per_second
    return (
        task.wanted_cores > settings.active_above
        and switches is not None
        and settings.gil_switches <= switches <= settings.gil_most_switches
        and switches >= settings.gil_switches_per_cpu_second * task.on_cpu_cores
    )


def _are_busy(place: LoaderPlace, sample: HostEvidence, settings: HostSettings) -> bool:
    """Whether its tasks there want a core each, or, as those of a pool in turn, all that it has."""
    tasks, usable = active_tasks(place, sample, settings), sample.usable_cores
    most = len(tasks) if usable is None else min(len(tasks), max(1.0, usable))
    wanted = sum(task.wanted_cores for task in tasks)
    return bool(tasks) and wanted >= settings.busy_from * most


def _computes_in_training_thread(samples: Samples, settings: HostSettings) -> bool:
    """Whether the thread that trains computes while it waits for input.

    It may compute in its steps, too: a GPU's driver keeps a thread that waits for it awake. Of
    what it wants, at most the time outside the wait is theirs. Where that leaves it open, it
    makes its batches if nothing else does, and it was seen awake in its waits.
    """
    sample = samples[-1]
    waiting = sample.waiting_ratio
    if sample.main is None or waiting <= 0:
        return False
    wanted, least = sample.main.wanted_cores, settings.training_thread_from
    if wanted - (1 - waiting) >= least * waiting:
        return True
    makes_them = _place_of(samples, settings) in (None, LoaderPlace.TRAINING_THREAD)
    seen = [one.main for one in samples if one.main is not None and one.main.state is not None]
    awake = _share(seen[-settings.remembered_looks :], lambda task: task.state == "R")
    return makes_them and wanted >= least * waiting and awake >= settings.asleep_share


def is_at_it(task: TaskSample, settings: HostSettings) -> bool:
    """Whether a task makes batches: it wants some of a core, or sleeps for something outside."""
    is_asleep_outside = _sleeps_in(task, _NETWORK + _TIMER)
    return task.wanted_cores > settings.active_above or task.state == "D" or is_asleep_outside


def _place_of(samples: Samples, settings: HostSettings) -> LoaderPlace | None:
    """Who makes the batches, by the newest sample that saw any process do so.

    The thread that trains is seen in its waits alone, and not every sample falls into one.
    """
    places = (loader_place(sample, settings) for sample in reversed(samples))
    return next((place for place in places if place is not None), None)


def _seen(samples: Samples, settings: HostSettings) -> list[TaskSample]:
    """The loader's tasks in the last samples that saw them, without those that waited for work."""
    place = _place_of(samples, settings)
    if place is None:
        return []
    of_samples = (
        [task for task in tasks_at(place, sample) if task.state is not None]
        for sample in reversed(samples)
    )
    recent = islice(filter(None, of_samples), settings.remembered_looks)
    return [task for task in chain.from_iterable(recent) if not _sleeps_in(task, _QUEUE)]


def _share_in(functions: tuple[str, ...], samples: Samples, settings: HostSettings) -> float:
    return _share(_seen(samples, settings), lambda task: _sleeps_in(task, functions))


def _share(tasks: Sequence[TaskSample], holds: Callable[[TaskSample], bool]) -> float:
    return sum(map(holds, tasks)) / len(tasks) if tasks else 0.0


def _waits_for_device(task: TaskSample) -> bool:
    """Whether a task sleeps until a device answers; waiting for a file server looks the same."""
    return task.state == "D" and not _sleeps_in(task, _NETWORK)


def _sleeps_in(task: TaskSample, functions: tuple[str, ...]) -> bool:
    return task.sleeps_in is not None and task.sleeps_in.startswith(functions)
