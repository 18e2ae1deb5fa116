"""Which GPU the others of a job wait for, and why that one is slow, as far as it is visible.

A step takes as long as its slowest GPU. How many times as long that one computes as the GPU that
waits longest for it is known, and each cause explains a part of that: more work, lower clocks,
another user's process, and what is left where it is another board.

Ranks that meet in NCCL wait inside a kernel, which reads as busy: such a wait is not visible here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from gpumon.core.device.job_measurements import InJob, ProcessOnGpu
from gpumon.core.device.sm_utilisation import NO_FILL, GpuFill
from gpumon.core.device.troubles import is_throttled
from gpumon.core.phase import IdleCause
from gpumon.core.report.job_balance import JobBalance, balances
from gpumon.core.report.report import GpuReport, JobKey, RunReport, runs_by_job
from gpumon.core.settings.detector import (
    DEFAULT_SETTINGS,
    AdviceSettings,
    DetectorSettings,
    ImbalanceSettings,
)
from gpumon.core.settings.rule import RuleKind, rule

_LIMITS: Final = DEFAULT_SETTINGS.imbalance


class LowerClocks(NamedTuple):
    """Its clocks are lower than those of the GPU that waits for it.

    Attributes:
        times: How many times as long this alone makes it compute; ``None``: not known.
        clock_ratio: Its mean clock while it was busy, of its highest, 0 to 1.
        peer_clock_ratio: That of the other; ``None``: it was hardly ever busy all through.
        held_ratio: Share of its busy time in which something held the clocks down.
        held_by: What did, by NVML's names, the longest first; empty: the board names nothing.
    """

    times: float | None
    clock_ratio: float | None
    peer_clock_ratio: float | None
    held_ratio: float | None
    held_by: tuple[str, ...]


class OtherTenant(NamedTuple):
    """Processes of others are on it.

    Attributes:
        times: As in ``LowerClocks``: the run cannot use the multiprocessors that they keep busy.
        pids: Those that were there longest first.
        uids: Whose each of them is; ``None``: not known.
        computing_ratio: Share of the time in which they computed; ``None``: unknown.
        present_ratio: Share of the time for which the first of them was there.
    """

    times: float | None
    pids: tuple[int, ...]
    uids: tuple[int | None, ...]
    computing_ratio: float | None
    present_ratio: float


class MoreWork(NamedTuple):
    """It is given more of each batch; parts are 0 to 1, ``times`` is as in ``LowerClocks``."""

    times: float | None
    share: float
    peer_share: float


class SlowerBoard(NamedTuple):
    """It is another board; ``times`` is what no other cause explains."""

    times: float | None
    name: str
    peer_name: str


SlowCause: TypeAlias = LowerClocks | OtherTenant | MoreWork | SlowerBoard


class SlowGpu(NamedTuple):
    """A GPU that others of its job wait for.

    Attributes:
        times: How many times as long it computes in a step as the GPU that waits longest.
        causes: What makes it slow, what explains most first; empty: nothing shows why.
    """

    uuid: str
    times: float
    causes: tuple[SlowCause, ...]

    @property
    def is_explained(self) -> bool:
        """Whether its causes explain most of it, or may do so."""
        if any(cause.times is None for cause in self.causes):
            return True
        known = math.prod(cause.times or 1.0 for cause in self.causes)
        return math.log(known) >= _LIMITS.explained_from * math.log(self.times)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobImbalance:
    """Which GPUs wait for which in one job with two or more GPUs visible here.

    Attributes:
        runs: Labels of its runs.
        balance: How busy its GPUs are in its steps, and which ratios would balance them.
        slow: The slowest GPU, then those as slow; empty where all are balanced.
        peer: UUID of the GPU that they are compared with: the one that waits longest.
        waits_ns: How long each other GPU waited for a slower one, by UUID.
        missing_ranks: Ranks of the job that are not visible here.
    """

    runs: tuple[str, ...]
    balance: JobBalance
    slow: tuple[SlowGpu, ...]
    peer: str
    waits_ns: Mapping[str, int]
    missing_ranks: int

    @property
    def may_wait_unseen(self) -> bool:
        """Whether some may wait in a way that reads as busy: they read as balanced."""
        return self.balance.is_level


def imbalances(gpus: Sequence[GpuReport], runs: Sequence[RunReport]) -> dict[JobKey, JobImbalance]:
    """Every job with two or more GPUs that can be compared, in the order of its first run."""
    counted = counted_runs(runs)
    of_jobs = runs_by_job(counted)
    by_uuid = {gpu.uuid: gpu for gpu in gpus if gpu.uuid is not None}
    return {
        job: _of_job(balance, by_uuid, of_jobs[job]) for job, balance in balances(counted).items()
    }


def counted_runs(runs: Sequence[RunReport]) -> list[RunReport]:
    """The runs that were observed."""
    return [run for run in runs if not (run.ended_before or run.is_refused)]


def missing_ranks(of_job: Sequence[RunReport]) -> int:
    """How many other ranks the job of these runs has."""
    return max(0, max(run.world_size for run in of_job) - len({run.rank for run in of_job}))


def _of_job(
    balance: JobBalance, by_uuid: Mapping[str, GpuReport], runs: Sequence[RunReport]
) -> JobImbalance:
    busy = balance.busy_ratios
    peer = min(busy, key=lambda uuid: busy[uuid])
    slow = () if balance.is_level or busy[peer] <= 0 else _slow_gpus(balance, peer, by_uuid, runs)
    are_slow = {one.uuid for one in slow}
    waits_ns = {
        uuid: by_uuid[uuid].totals.idle_ns.get(IdleCause.IMBALANCE, 0)
        for uuid in busy
        if uuid in by_uuid and uuid not in are_slow
    }
    return JobImbalance(
        runs=tuple(run.run for run in runs),
        balance=balance,
        slow=slow,
        peer=peer,
        waits_ns={uuid: waited_ns for uuid, waited_ns in waits_ns.items() if waited_ns},
        missing_ranks=missing_ranks(runs),
    )


# -- why one is slow ---------------------------------------------------------------


@rule(
    "lower_clocks",
    RuleKind.FINDING,
    says="a GPU that others of its job wait for has lower clocks than they",
    evidence="The clocks of both while they were busy; where that of the other is not known, a "
    "clock below the highest, and that the driver reports only this GPU as throttled.",
    thresholds=(
        "imbalance.min_known_ns",
        "imbalance.clock_below",
        "trouble.min_busy_ns",
        "trouble.throttled_share",
    ),
    measured_with=("fill.busy_above",),
)
def has_lower_clocks(
    slow: GpuFill, peer: GpuFill, settings: DetectorSettings = DEFAULT_SETTINGS
) -> bool:
    """Whether the clocks of the first are lower than those of the second."""
    limits, clock, other = settings.imbalance, slow.sm_clock, peer.sm_clock
    if min(clock.known_ns, other.known_ns) >= limits.min_known_ns:
        return (clock.ratio or 0.0) < limits.clock_below * (other.ratio or 0.0)
    if clock.ratio is not None and clock.ratio >= limits.clock_below:
        return False
    return is_throttled(slow, settings.trouble) and not is_throttled(peer, settings.trouble)


@rule(
    "other_tenant",
    RuleKind.FINDING,
    says="another job computes on a GPU that others of its job wait for",
    evidence="The share of the time in which processes that are not the job's computed there; "
    "where the driver does not report it, the share for which they were there.",
    thresholds=("imbalance.min_known_ns", "imbalance.tenant_from"),
)
def is_shared(taken_ratio: float, listed_ns: int, settings: ImbalanceSettings = _LIMITS) -> bool:
    """Whether others take so much of the time of a GPU that the job becomes slower."""
    return listed_ns >= settings.min_known_ns and taken_ratio >= settings.tenant_from


@rule(
    "more_work",
    RuleKind.FINDING,
    says="a GPU that others of its job wait for is given more of each batch than they",
    evidence="The parts of each batch that the run reported, or that are known to be even.",
    thresholds=("advice.level_within",),
)
def has_more_work(
    share: float, peer_share: float, settings: AdviceSettings = DEFAULT_SETTINGS.advice
) -> bool:
    """Whether the first part of a batch is the greater, by more than parts can be set."""
    return 1.0 - peer_share / share >= settings.level_within if share > 0 else False


@rule(
    "slower_board",
    RuleKind.FINDING,
    says="a GPU that others of its job wait for is a slower board than they",
    evidence="The names of both, and how much longer it computes than its work, its clocks and "
    "other processes explain.",
    thresholds=("advice.level_within",),
)
def is_slower_board(
    name: str, peer_name: str, times: float, settings: AdviceSettings = DEFAULT_SETTINGS.advice
) -> bool:
    """Whether it is another board, and that is what makes it take so many times as long."""
    return name != peer_name and 1.0 - 1.0 / times >= settings.level_within


def _slow_gpus(
    balance: JobBalance,
    peer: str,
    by_uuid: Mapping[str, GpuReport],
    runs: Sequence[RunReport],
) -> tuple[SlowGpu, ...]:
    busy = balance.busy_ratios
    least = (1.0 - DEFAULT_SETTINGS.advice.level_within) * max(busy.values())
    slow = sorted((uuid for uuid in busy if busy[uuid] > least), key=lambda uuid: -busy[uuid])
    return tuple(
        SlowGpu(uuid, times, tuple(_causes(uuid, peer, times, balance, by_uuid, runs)))
        for uuid in slow
        if (times := busy[uuid] / busy[peer])
    )


def _causes(
    uuid: str,
    peer: str,
    times: float,
    balance: JobBalance,
    by_uuid: Mapping[str, GpuReport],
    runs: Sequence[RunReport],
) -> list[SlowCause]:
    """What makes the first slower than the second, what explains most first."""
    found: list[SlowCause] = []
    shares = balance.shares or {}
    share, peer_share = shares.get(uuid, 0.0), shares.get(peer, 0.0)
    if share > 0 and peer_share > 0:
        if has_more_work(share, peer_share):
            found.append(MoreWork(share / peer_share, share, peer_share))
        else:  # of less work it should be done sooner
            times *= peer_share / share
    gpu, other = by_uuid.get(uuid), by_uuid.get(peer)
    if gpu is not None and other is not None:
        in_job, peer_in_job = (_in(runs[0].job, one) for one in (gpu, other))
        fill, peer_fill = in_job.fill or NO_FILL, peer_in_job.fill or NO_FILL
        if has_lower_clocks(fill, peer_fill):
            found.append(_lower_clocks(fill, peer_fill))
        found += _other_tenant(in_job, peer_in_job, runs)
        rest = times / math.prod(cause.times or 1.0 for cause in found)
        if gpu.name and other.name and is_slower_board(gpu.name, other.name, rest):
            found.append(SlowerBoard(rest if shares else None, gpu.name, other.name))
    return sorted(found, key=lambda cause: -(cause.times or 0.0))


def _in(job: str, gpu: GpuReport) -> InJob:
    """The figures of a GPU while it worked for that job; none where it worked for another."""
    in_job = gpu.in_job
    return InJob((), 0) if in_job is None or job not in in_job.jobs else in_job


def _lower_clocks(fill: GpuFill, peer_fill: GpuFill) -> LowerClocks:
    clock, other = fill.sm_clock.ratio, peer_fill.sm_clock.ratio
    named_from = DEFAULT_SETTINGS.fill.held_told_from * fill.throttle_known_ns
    named = [reason for reason, ns in fill.throttled_by_ns.items() if ns >= named_from]
    return LowerClocks(
        times=(1.0 if other is None else other) / clock if clock else None,
        clock_ratio=clock,
        peer_clock_ratio=other,
        held_ratio=fill.throttled_ratio,
        held_by=tuple(sorted(named, key=lambda reason: -fill.throttled_by_ns[reason])),
    )


def _other_tenant(in_job: InJob, peer: InJob, runs: Sequence[RunReport]) -> Iterator[OtherTenant]:
    others, listed_ns = _others_on(in_job, runs), in_job.listed_ns
    taken_ratio = _taken_ratio(others, listed_ns)
    if not is_shared(taken_ratio - _taken_ratio(_others_on(peer, runs), peer.listed_ns), listed_ns):
        return
    has_reported_shares = any(one.computing_known_ns for one in others)
    at_work = [one for one in others if one.computing_ns or not has_reported_shares]
    at_work.sort(key=lambda one: (-one.computing_ns, -one.present_ns))
    yield OtherTenant(
        times=1.0 / (1.0 - taken_ratio) if has_reported_shares and taken_ratio < 1.0 else None,
        pids=tuple(one.pid for one in at_work),
        uids=tuple(one.uid for one in at_work),
        computing_ratio=taken_ratio if has_reported_shares else None,
        present_ratio=at_work[0].present_ns / listed_ns,
    )


def _others_on(in_job: InJob, runs: Sequence[RunReport]) -> list[ProcessOnGpu]:
    """The processes on a GPU that are not those of the job.

    A list without the job itself (a container hides pids) shows no others.
    """
    pids, uids = {run.pid for run in runs}, {run.owner_uid for run in runs} - {None}
    if any(one.pid in pids for one in in_job.tenants):
        return [one for one in in_job.tenants if one.pid not in pids]
    # The training process may be a child of the process that tags.
    if any(one.uid in uids for one in in_job.tenants):
        return [one for one in in_job.tenants if one.uid not in uids]
    return []


def _taken_ratio(others: Sequence[ProcessOnGpu], listed_ns: int) -> float:
    """Share of the time in which these processes computed; else in which they were there."""
    if not others or not listed_ns:
        return 0.0
    if any(one.computing_known_ns for one in others):
        return sum(one.present_ns * (one.computing_ratio or 0.0) for one in others) / listed_ns
    return max(one.present_ns for one in others) / listed_ns
