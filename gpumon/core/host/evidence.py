"""What the machine showed of one training during one look."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

MOST_TASKS: Final = 64
"""Threads, and worker processes, of one training that a look tells of: the busiest."""


class TaskLook(NamedTuple):
    """One thread, or one worker process with all its threads, during a look.

    Attributes:
        on_cpu_cores: CPU time over the look's length: 1 is a core.
        queued_cores: Time it was ready to run and waited for a core, over the same.
        switches_per_second: How often it gave its core up by itself; ``None``: not asked.
        state: Where it stood at the end of the look, by the kernel's letter: ``R`` runs or is
            ready, ``S`` sleeps, ``D`` sleeps until a device answers; ``None``: not asked. Of a
            process, that of its first thread.
        sleeps_in: Function of the kernel in which it slept; ``None``: awake, or not told.
    """

    on_cpu_cores: float
    queued_cores: float
    switches_per_second: float | None = None
    state: str | None = None
    sleeps_in: str | None = None

    @property
    def wanted_cores(self) -> float:
        """Cores it could have used: it does not depend on how many others want them."""
        return self.on_cpu_cores + self.queued_cores


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEvidence:
    """What the machine showed of one training during one look.

    Rates are means over the look, and ``None`` where nothing tells.

    Attributes:
        start_ns: CLOCK_MONOTONIC when the look began: mostly a second ago, for which it answers.
        waiting_ratio: Part of the look, 0 to 1, that the training waited for input, as its
            ring tells.
        main: The thread that trains. Its state is told only where it waited for input then.
        threads: Other threads of its process that ran, the busiest first.
        workers: Processes that it started, and those that these did, the busiest first.
        read_bytes_per_second: What all of these read from disks.
        major_faults_per_second: Pages of theirs that had to be fetched from a disk.
        disk_busy_ratio: Busy part of the machine's busiest disk.
        disk_read_bytes_per_second: What the whole machine read from disks.
        received_bytes_per_second: What the whole machine received over networks.
        memory_stalled_ratio: Part of the look in which somebody in the training's own cgroup,
            or where that does not tell on the machine, waited for memory.
        refaults_per_second: Pages that its cgroup had dropped for want of memory and that were
            read again.
        usable_cores: Cores that the training may use, by its affinity and its cgroups' quotas.
        throttled_ratio: Part of the look in which its cgroup was held back by its quota.
    """

    start_ns: int
    end_ns: int
    waiting_ratio: float
    main: TaskLook | None = None
    threads: tuple[TaskLook, ...] = ()
    workers: tuple[TaskLook, ...] = ()
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
        sleeps_in: Function of the kernel in which its first thread sleeps; ``None``: it was not
            asked, or it is awake.
    """

    is_stopped: bool
    sleeps_in: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReading:
    """What one tick's looks showed: of the trainings that waited then, by their rings' keys.

    Attributes:
        processes: Of runs whose rings had nothing new: those that are stopped, and those silent
            for long, by the same keys.
        took_seconds: How long looking took.
        message: Why the reasons of some training cannot be told; ``None``: they can.
    """

    of_run: Mapping[str, HostEvidence] = field(default_factory=lambda: MappingProxyType({}))
    processes: Mapping[str, ProcessState] = field(default_factory=lambda: MappingProxyType({}))
    took_seconds: float = 0.0
    message: str | None = None


NOT_LOOKED: Final = HostReading()
