"""What a board measured while its GPU worked for one job of several: SM utilisation, processes.

Sums since observation began would mix runs. These restart with each job, so that GPUs of one job
can be compared. Which run a process belongs to is not known here.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from gpumon.core.device.sm_utilisation import FillLedger, GpuFill, fill_since, known_ratio
from gpumon.core.sample import GpuSample
from gpumon.core.settings.detector import DEFAULT_FILL_SETTINGS, FillSettings

MAX_PROCESSES: Final = 32
"""Processes kept for one GPU: those present, then those that were present longest."""


class ProcessOnGpu(NamedTuple):
    """One process on one GPU.

    Attributes:
        uid: Its user; ``None``: unknown.
        present_ns: For how long the driver listed it.
        computing_known_ns: The part of it for which its share of the multiprocessors is known.
        computing_ns: That share times that time.
    """

    pid: int
    uid: int | None
    present_ns: int = 0
    computing_known_ns: int = 0
    computing_ns: int = 0

    @property
    def computing_ratio(self) -> float | None:
        """Share of its time, 0 to 1, in which it kept multiprocessors busy."""
        return self.computing_ns / self.computing_known_ns if self.computing_known_ns else None

    def with_more(self, length_ns: int, sm_ratio: float | None) -> ProcessOnGpu:
        """Return it with more time, in which it computed for that share."""
        ratio, more = known_ratio(sm_ratio), self._replace(present_ns=self.present_ns + length_ns)
        if ratio is None:
            return more
        return more._replace(
            computing_known_ns=self.computing_known_ns + length_ns,
            computing_ns=self.computing_ns + round(ratio * length_ns),
        )


class InJob(NamedTuple):
    """Sums over the time in which a GPU worked for its present job, or for its last one.

    Attributes:
        jobs: Ids of the job, or of the jobs that share the GPU.
        begun: How often the sums were started, each time for another job.
        fill: How much of it worked while it was busy; ``None``: unknown.
        tenants: The processes on it in that time, in order of arrival.
    """

    jobs: tuple[str, ...]
    begun: int
    fill: GpuFill | None = None
    listed_ns: int = 0
    tenants: tuple[ProcessOnGpu, ...] = ()


class InJobLedger:
    """One GPU's ``InJob``."""

    def __init__(self, settings: FillSettings = DEFAULT_FILL_SETTINGS) -> None:
        self._settings = settings
        self._jobs: tuple[str, ...] = ()
        self._begun = 0
        self._begin()

    def work_for(self, jobs: tuple[str, ...]) -> None:
        """Record which jobs it works for from now on, in a stable order."""
        if jobs != self._jobs:
            self._jobs, self._begun = jobs, self._begun + 1
            self._begin()

    def observe(self, sample: GpuSample) -> None:
        """Add the sample of one tick: its process list applies to the time of the tick."""
        self._fill.observe(sample)
        length_ns = sum(one.length_ns for one in sample.busy)
        if sample.processes is None or not length_ns:
            return
        self._listed_ns += length_ns
        listed = {(process.pid, process.uid): process for process in sample.processes}
        for key, process in listed.items():
            tenant = self._tenants.get(key) or ProcessOnGpu(*key)
            self._tenants[key] = tenant.with_more(length_ns, process.sm_ratio)
        if len(self._tenants) > MAX_PROCESSES:
            self._forget({*listed})

    def snapshot(self) -> InJob | None:
        """The sums so far; ``None`` before the first job."""
        if not self._begun:
            return None
        tenants = tuple(self._tenants.values())
        return InJob(self._jobs, self._begun, self._fill.snapshot(), self._listed_ns, tenants)

    def _begin(self) -> None:
        self._fill = FillLedger(self._settings)
        self._listed_ns = 0
        self._tenants: dict[tuple[int, int | None], ProcessOnGpu] = {}

    def _forget(self, present: set[tuple[int, int | None]]) -> None:
        tenants = self._tenants
        by_need = sorted(tenants, key=lambda one: (one not in present, -tenants[one].present_ns))
        for key in by_need[MAX_PROCESSES:]:
            del tenants[key]


def in_job_since(before: InJob | None, after: InJob | None) -> InJob | None:
    """What was added between two readings of one GPU's sums."""
    if before is None or after is None or after.begun != before.begun:
        return after
    earlier = {(one.pid, one.uid): one for one in before.tenants}
    tenants = [_since(earlier.get((one.pid, one.uid)), one) for one in after.tenants]
    return after._replace(
        fill=fill_since(before.fill, after.fill),
        listed_ns=after.listed_ns - before.listed_ns,
        tenants=tuple(one for one in tenants if one.present_ns),
    )


def _since(before: ProcessOnGpu | None, after: ProcessOnGpu) -> ProcessOnGpu:
    if before is None or after.present_ns < before.present_ns:
        return after  # it was dropped, and came back
    return after._replace(
        present_ns=after.present_ns - before.present_ns,
        computing_known_ns=after.computing_known_ns - before.computing_known_ns,
        computing_ns=after.computing_ns - before.computing_ns,
    )
