"""The immutable state that every outlet shows, created in each tick."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Final, NamedTuple, TypeAlias

from gpumon.core.accounting.energy_use import NO_ENERGY, EnergyUse
from gpumon.core.accounting.pending import NOTHING_UNSETTLED, Unsettled
from gpumon.core.accounting.rank_wait import RankWait
from gpumon.core.accounting.totals import GpuTotals, NowVerdict
from gpumon.core.clock import nanoseconds, seconds
from gpumon.core.device.board_counters import NO_COUNTERS, BoardCounters
from gpumon.core.device.idle_holder import HeldGpu
from gpumon.core.device.job_measurements import InJob
from gpumon.core.device.sm_utilisation import GpuFill
from gpumon.core.device.troubles import (
    NO_ERRORS,
    ErrorTimes,
    Trouble,
    all_troubles,
    errors_of,
    lost,
    throttled_now,
    vanished,
)
from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.report.report import RunReport
from gpumon.core.sample import Device, GpuSample, ProcessSample
from gpumon.core.stacks.evidence import StackFinding
from gpumon.core.verdict import Verdict
from gpumon.core.wording import time_of_day


class GpuState(NamedTuple):
    """One GPU, now and since observation began. Other fields are as in ``GpuReport``.

    Attributes:
        latest: The newest sample with an answer; ``None`` before the first. Outlets
            must not show it when ``present`` is false.
        last_processes: Its newest process list, also of a GPU that is lost by now.
        present: Whether the device answered within the last two and a half periods.
        last_sample_at_ns: Timestamp of the newest utilisation sample.
        resolution_ns: Length of the newest utilisation sample: shorter pauses are invisible.
        under_filled_now: Whether little of it worked in its last one or two minutes of
            recent busy time.
        listed: Whether the source still lists it. A GPU that was removed, or an instance
            that was destroyed, is not lost.
        xid_errors: As (XID, count); a lost GPU keeps them.
        errors: When they occurred, and its memory errors.
        claims_refused: Runs that named it while only other users' processes were on it.
        stacks: What stack samples show of its present or last job; ``None``: none were taken.
        is_undecided: Whether idle time is pending until a run's GPU binding is decided.
        deferred_ns: Part of the observed time in ``totals`` that is not settled yet, because a
            GPU binding is open or a stack sample may yet come.
        deferred_busy_ns: The busy part of that.
        board: What its board's gauges add up to.
        energy: What its energy was used for.
    """

    device: Device
    totals: GpuTotals
    verdict: Verdict
    latest: GpuSample | None = None
    last_processes: tuple[ProcessSample, ...] = ()
    present: bool = True
    last_sample_at_ns: int | None = None
    resolution_ns: int | None = None
    error: str | None = None
    fill: GpuFill | None = None
    under_filled_now: bool = False
    listed: bool = True
    xid_errors: tuple[tuple[int, int], ...] = ()
    errors: ErrorTimes = NO_ERRORS
    claims_refused: int = 0
    is_undecided: bool = False
    in_job: InJob | None = None
    unsettled: Unsettled = NOTHING_UNSETTLED
    held: HeldGpu | None = None
    now: NowVerdict | None = None
    waits_for: RankWait | None = None
    stacks: StackFinding | None = None
    deferred_ns: int = 0
    deferred_busy_ns: int = 0
    board: BoardCounters = NO_COUNTERS
    energy: EnergyUse = NO_ENERGY


UNOWNED: Final = ""
"""In place of a run or user: time of none."""
RunTimeKey: TypeAlias = tuple[str, IdleCause | None]
"""The label of a run, and a cause of idle time; ``None``: busy time."""
UserTimeKey: TypeAlias = tuple[int | None, IdleCause | None]
"""The same of a user; ``None`` in place of a uid: no user."""


class SettledTime(NamedTuple):
    """Time of one GPU that was settled in one tick.

    Attributes:
        by_run: Nanoseconds; ``UNOWNED`` has the time of no run.
        by_user: Nanoseconds, as many; empty if users are not named.
    """

    uuid: str
    by_run: Mapping[RunTimeKey, int]
    by_user: Mapping[UserTimeKey, int]


class Stretch(NamedTuple):
    """Observed time of one GPU, at most about a period long.

    Attributes:
        end_ns: The timestamp of its last sample.
        utilization_ratio: Of its last sample, 0 to 1.
    """

    end_ns: int
    observed_ns: int
    busy_ns: int
    utilization_ratio: float | None

    @property
    def start_ns(self) -> int:
        return self.end_ns - self.observed_ns


def grown_stretches(
    gpu: GpuState, observed_before_ns: int, busy_before_ns: int, period_ns: int
) -> list[Stretch]:
    """Split the time that a GPU's counters grew by since before, the oldest first.

    The samples of several seconds may come in one tick: each stretch lies where its samples do.
    Where the newest samples are not all that was counted, the time stays together. Empty: no
    time was counted.
    """
    observed_ns = gpu.totals.observed_ns - observed_before_ns
    until_ns, latest = gpu.last_sample_at_ns, gpu.latest
    if observed_ns <= 0 or until_ns is None:
        return []
    busy_ns = gpu.totals.busy_ns - busy_before_ns
    whole = Stretch(
        until_ns, observed_ns, busy_ns, None if latest is None else latest.utilization_ratio
    )
    count = round(observed_ns / period_ns)
    if count < 2 or latest is None:
        return [whole]
    found: list[Stretch] = []
    length_ns = all_busy_ns = begun_ns = begun_busy_ns = 0
    for start_ns, end_ns, busy_ratio in latest.busy:
        length_ns += end_ns - start_ns
        all_busy_ns += round((end_ns - start_ns) * busy_ratio)
        if length_ns * count >= observed_ns * (len(found) + 1):
            part_ns, part_busy_ns = length_ns - begun_ns, all_busy_ns - begun_busy_ns
            found.append(Stretch(end_ns, part_ns, part_busy_ns, busy_ratio))
            begun_ns, begun_busy_ns = length_ns, all_busy_ns
    if (length_ns, all_busy_ns) != (observed_ns, busy_ns) or found[-1].end_ns != until_ns:
        return [whole]
    return [*found[:-1], found[-1]._replace(utilization_ratio=whole.utilization_ratio)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState(RunReport):
    """A training process as in a report, and what only its ring contains.

    Attributes:
        phase: ``None`` once it has ended.
        epoch: The current epoch, counted from 0; ``None`` before the first.
        named_gpus: The GPUs that the user configured, as written; ``None``: not configured.
        is_undecided: Whether its binding to a GPU that worked waits for the next process list.
        written_ns: CLOCK_MONOTONIC of its last record; 0: none.
        job_id: The job's id if a launcher named it; empty: none did.
        started_wall_time_s: Seconds since the epoch when it began, to the millisecond.
    """

    phase: TrainingPhase | None
    epoch: int | None
    named_gpus: tuple[str, ...] | None = None
    is_undecided: bool = False
    written_ns: int = 0
    job_id: str = ""
    started_wall_time_s: float = 0.0


class CollectorState(NamedTuple):
    """One collector (``nvml``, ``phase_rings`` ...) in the last tick.

    Attributes:
        success: Whether its last read succeeded completely, every field of every GPU.
        errors_total: Failed reads and rejected values so far.
        message: The last failure, as a sentence; ``None``: none so far.
    """

    name: str
    success: bool
    duration_seconds: float
    errors_total: int
    message: str | None = None


RINGS: Final = "phase_rings"
HOST: Final = "host_evidence"
STACKS: Final = "stacks"
REPLAY: Final = "replay"
_OF_USERS: Final = (RINGS, HOST, STACKS, "follow", REPLAY)
"""Collectors that read users' files or processes."""


def refusal_note(collector: CollectorState) -> str | None:
    """A sentence for a user whose ring or file could not be read; ``None``: all could."""
    if collector.name not in _OF_USERS or collector.message is None:
        return None
    # A bad file of one user is no failure of the collector, but must be reported.
    is_reported = collector.name in (RINGS, HOST, STACKS) or collector.errors_total
    if collector.success and not is_reported:
        return None
    refused = f" ({collector.errors_total:,} refused so far)" if collector.errors_total > 1 else ""
    return f"{collector.name}: {collector.message}{refused}"


class MonitorState(NamedTuple):
    """Everything known after one tick; driver calls are as in ``Frame``.

    Attributes:
        wall_time_s: Seconds since the epoch at ``taken_at_ns``.
        started_wall_time_s: Seconds since the epoch when observation began.
        source: The ``--source`` argument.
        simulated: Whether the GPUs are simulated; every outlet says so.
        boot_id: Kernel boot id: monotonic timestamps compare only within one.
        gpus: In index order, lost ones included.
        runs: Alive, or ended less than 15 minutes ago.
        samples_total: Ticks with a frame.
        missed_total: Ticks without: late, hanging or failed.
        replayed: Whether this is played from a recording; every outlet says so.
        rings_left_out: As ``RingsReading.left_out``.
        settled: The time that was settled in this tick; GPUs without any are left out.
        users: Names by uid, of users of processes and runs; ``None``: users are not named.
    """

    taken_at_ns: int
    wall_time_s: float
    started_wall_time_s: float
    period_ns: int
    source: str
    simulated: bool
    boot_id: str
    gpus: tuple[GpuState, ...] = ()
    runs: tuple[RunState, ...] = ()
    collectors: tuple[CollectorState, ...] = ()
    samples_total: int = 0
    missed_total: int = 0
    call_seconds: tuple[tuple[str, float], ...] = ()
    call_counts: tuple[tuple[str, int], ...] = ()
    replayed: bool = False
    call_errors: tuple[tuple[str, int, int], ...] = ()
    rings_left_out: tuple[tuple[int | None, int], ...] = ()
    settled: tuple[SettledTime, ...] = ()
    users: Mapping[int, str] | None = None

    def repeats(self, before: MonitorState | None) -> bool:
        """Whether no GPU has changed since that state, and no run is known.

        So it is in most ticks between two drains of the driver while nothing is tagged.
        """
        if before is None or self.runs or before.runs:
            return False
        return self.gpus is before.gpus and self.call_errors == before.call_errors


_ONE_GPU: Final = re.compile(r"GPU (\d+)(?::(\d+))?: (.*)", re.DOTALL)
_SILENT: Final = "no recent answer"


def gpu_troubles(gpu: GpuState, state: MonitorState) -> tuple[Trouble, ...]:
    """All troubles of one GPU, the worst first."""
    return all_troubles(reported_troubles(gpu, state), gpu.fill, gpu.error, gpu.device.index)


def reported_troubles(gpu: GpuState, state: MonitorState) -> tuple[Trouble, ...]:
    """Troubles that its totals do not imply: errors, loss, and present throttling."""
    gone = _lost_by(gpu, state)
    errors = errors_of(gpu.xid_errors, gpu.errors, state.taken_at_ns)
    if gone is not None:
        return gone, *errors
    details = None if gpu.latest is None else gpu.latest.details
    return (*errors, *throttled_now(details, gpu.fill))


def origin_of(state: MonitorState) -> tuple[datetime, int]:
    """When observation began, on the wall clock and on the clock of the state."""
    observed_s = max(0.0, state.wall_time_s - state.started_wall_time_s)
    started = datetime.fromtimestamp(state.started_wall_time_s, tz=timezone.utc)
    return started, state.taken_at_ns - nanoseconds(observed_s)


def clock_of(state: MonitorState, at_ns: int) -> str:
    """A time of the state's clock, as ``14:03 UTC``."""
    started, origin_ns = origin_of(state)
    now = started + timedelta(seconds=seconds(state.taken_at_ns - origin_ns))
    return time_of_day(started + timedelta(seconds=seconds(at_ns - origin_ns)), now)


def unknown_gpu(state: MonitorState) -> tuple[Device, str] | None:
    """The GPU that the source could never read, without UUID, and why; ``None``: no such GPU."""
    named = _ONE_GPU.fullmatch(source_message(state) or "")
    if named is None or not state.gpus:
        return None
    mig_index = None if named[2] is None else int(named[2])
    found = Device(uuid="", index=int(named[1]), mig_index=mig_index)
    known = {gpu.device.sort_key for gpu in state.gpus}
    return None if found.sort_key in known else (found, named[3])


def _lost_by(gpu: GpuState, state: MonitorState) -> Trouble | None:
    last_ns, index = gpu.last_sample_at_ns, gpu.device.index
    if gpu.error is not None:
        return lost(gpu.error, last_ns=last_ns, index=index)
    if not gpu.listed:
        # Schedulers create and destroy instances all day.
        is_instance = gpu.device.parent_uuid is not None
        return None if is_instance else vanished(last_ns=last_ns, index=index)
    if gpu.present:
        return None
    message = source_message(state)
    of_all = message if message and not _ONE_GPU.fullmatch(message) else _SILENT
    return lost(of_all, last_ns=last_ns, index=index)


def source_message(state: MonitorState) -> str | None:
    """The present failure of the GPU source; ``None``: it works."""
    source = next(iter(state.collectors), None)
    return None if source is None or source.success else source.message
