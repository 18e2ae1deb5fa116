"""What the machine shows of one run during one sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

MAX_TASKS: Final = 64
"""Threads, and worker processes, of one run in a sample: the busiest."""


class TaskSample(NamedTuple):
    """One thread, or one worker process with all its threads, during a sample.

    Attributes:
        on_cpu_cores: CPU time over the length of the sample: 1 is a core.
        queued_cores: Time it was ready to run and waited for a core, over the same.
        switches_per_second: How often it gave up its core voluntarily; ``None``: not read.
        state: Its state at the end of the sample, by the kernel's letter: ``R`` runs or is
            ready, ``S`` sleeps, ``D`` sleeps until a device answers; ``None``: not read. Of a
            process, that of its first thread.
        sleeps_in: Function of the kernel in which it slept; ``None``: awake, or not read.
    """

    on_cpu_cores: float
    queued_cores: float
    switches_per_second: float | None = None
    state: str | None = None
    sleeps_in: str | None = None

    @property
    def wanted_cores(self) -> float:
        """Cores it could have used, however many others wanted them."""
        return self.on_cpu_cores + self.queued_cores


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEvidence:
    """What the machine showed of one run during one sample.

    Rates are means over the sample; ``None``: unknown.

    Attributes:
        start_ns: CLOCK_MONOTONIC when the sample began, usually a second ago.
        waiting_ratio: Part of the sample, 0 to 1, in which the run waited for input, by its ring.
        main: The training thread. Its state is read only where it waited for input then.
        threads: Other threads of its process that ran, the busiest first.
        workers: Its child processes, and theirs, the busiest first.
        read_bytes_per_second: What all of these read from disks.
        major_faults_per_second: Pages of theirs that had to be fetched from a disk.
        disk_busy_ratio: Busy part of the machine's busiest disk.
        disk_read_bytes_per_second: What the whole machine read from disks.
        received_bytes_per_second: What the whole machine received over networks.
        memory_stalled_ratio: Part of the sample in which a process of the run's cgroup, or where
            that is unknown of the machine, waited for memory.
        refaults_per_second: Pages that its cgroup had dropped for lack of memory and that were
            read again.
        usable_cores: Cores that the run may use, by its affinity and the quotas of its cgroups.
        throttled_ratio: Part of the sample in which its cgroup was throttled by its quota.
    """

    start_ns: int
    end_ns: int
    waiting_ratio: float
    main: TaskSample | None = None
    threads: tuple[TaskSample, ...] = ()
    workers: tuple[TaskSample, ...] = ()
    read_bytes_per_second: float | None = None
    major_faults_per_second: float | None = None
    disk_busy_ratio: float | None = None
    disk_read_bytes_per_second: float | None = None
    received_bytes_per_second: float | None = None
    memory_stalled_ratio: float | None = None
    refaults_per_second: float | None = None
    usable_cores: float | None = None
    throttled_ratio: float | None = None


class ProcessState(NamedTuple):
    """Whether the process of a run can run, where its ring had nothing new.

    Attributes:
        is_stopped: A signal stopped it (state T), or its cgroup is frozen.
        sleeps_in: Function of the kernel in which its first thread sleeps; ``None``: it is awake,
            or that was not read.
    """

    is_stopped: bool
    sleeps_in: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReading:
    """The samples of one tick: of the runs that waited then, by the keys of their rings.

    Attributes:
        processes: Of runs whose rings had nothing new: those that are stopped, and those silent
            for long, by the same keys.
        message: Why the reasons of some run cannot be found; ``None``: they can.
    """

    of_run: Mapping[str, HostEvidence] = field(default_factory=lambda: MappingProxyType({}))
    processes: Mapping[str, ProcessState] = field(default_factory=lambda: MappingProxyType({}))
    took_seconds: float = 0.0
    message: str | None = None


NO_READING: Final = HostReading()
