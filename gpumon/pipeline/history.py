"""History of what a monitor reported: reports of the last hour or minute, and lanes.

A live daemon, a recording and its replay follow the same states, and get the same history.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from gpumon.core.accounting.snapshots import CounterHistory, Packer, SnapshotStore
from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.clock import NS_PER_S, nanoseconds, seconds
from gpumon.core.device.troubles import errors_of
from gpumon.core.diagnosis.report_since import report_since
from gpumon.core.diagnosis.verdict_rules import diagnose
from gpumon.core.log_summary.busy_lane import Lane
from gpumon.core.owner_quotas import MAX_RUNS_SHOWN, FairSlots, RunCandidate
from gpumon.core.phase import PHASES, IdleCause, InputWaitReason
from gpumon.core.report.lanes import Lanes, RunLane
from gpumon.core.report.report import GpuReport, Report, RunReport
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.state import GpuState, MonitorState, RunState, grown_stretches
from gpumon.core.wording import in_time

_SNAPSHOTS_PER_LEVEL: Final = 80
"""Newest ticks, every second one, every fourth one, …: for ten minutes, at most 8 s apart."""
_DENSE_NS: Final = 640 * NS_PER_S
_PACK_EVERY: Final = 8
"""Snapshots are packed together: one by one takes four times as long."""
_NO_VERDICT: Final = diagnose(GpuTotals())
"""The verdict on no time at all: snapshots keep none, ``report_since`` computes it."""
_MAX_LATE_NS: Final = 15 * NS_PER_S
"""ours: twice as long as samples wait at ``--drain-every 7``, the most on an H100. Time without a
sample by then was not observed."""
_MAX_LANES_WITH_ENDED: Final = 32
"""Lanes of ended runs are kept while there are no more lanes than that."""

RunKey = tuple[str, int]
"""Label and pid."""


class Snapshot(NamedTuple):
    """What a report of the time since is subtracted from.

    Attributes:
        at_ns: CLOCK_MONOTONIC of the tick.
        gpus: Without what only the newest report shows.
    """

    at_ns: int
    gpus: tuple[GpuState, ...]

    def report(self, ended: Collection[RunKey]) -> Report:
        """The part of a report that ``report_since`` reads; these runs had ended."""
        gpus = tuple(
            GpuReport(
                index=gpu.device.index,
                uuid=gpu.device.uuid,
                name=None,
                totals=gpu.totals,
                verdict=gpu.verdict,
                fill=gpu.fill,
                in_job=gpu.in_job,
                reported_troubles=tuple(errors_of(gpu.xid_errors, gpu.errors, self.at_ns)),
                unsettled=gpu.unsettled,
            )
            for gpu in self.gpus
        )
        return Report(
            source="", simulated=False, started_at=None, origin_ns=0, observed_ns=0, period_ns=0,
            skipped_lines=0, gpus=gpus, runs=tuple(map(_ended_run, ended)), advice=(),
        )  # fmt: skip


def snapshot_of(state: MonitorState) -> Snapshot:
    """The part of a state that later reports need."""
    return Snapshot(state.taken_at_ns, tuple(_slim(gpu) for gpu in state.gpus))


def _slim(gpu: GpuState) -> GpuState:
    return gpu._replace(
        verdict=_NO_VERDICT,
        totals=gpu.totals.to_subtract,
        unsettled=gpu.unsettled.to_subtract,
        latest=None,
        last_processes=(),
        now=None,
    )


def _lasting(gpu: GpuState) -> tuple[object, ...]:
    """All of a GPU that ``Snapshot.report`` reads."""
    errors = gpu.xid_errors, gpu.errors
    return gpu.device, gpu.totals, gpu.unsettled, gpu.fill, gpu.in_job, *errors


def _ended_run(key: RunKey) -> RunReport:
    return RunReport(
        run=key[0], job="", rank=0, pid=key[1], framework="", steps=0, gpu_uuids=(), wall_ns=0,
        phase_ns={}, alive=False,
    )  # fmt: skip


def report_after(before: Snapshot, now: Report, ended: Collection[RunKey] = ()) -> Report:
    """Report what came after a snapshot, as of ``now``, without the runs that had ended by then."""
    after = report_since(before.report(ended), now)
    return replace(
        after,
        origin_ns=before.at_ns,
        started_at=later(now.started_at, before.at_ns - now.origin_ns),
        gpus=tuple(_from(before.at_ns, gpu) for gpu in after.gpus),
    )


def _from(start_ns: int, gpu: GpuReport) -> GpuReport:
    """The GPU's report without intervals before ``start_ns``."""
    intervals = tuple(
        span._replace(start_ns=max(span.start_ns, start_ns))
        for span in gpu.totals.starved_intervals
        if span.end_ns > start_ns
    )
    return replace(gpu, totals=gpu.totals._replace(starved_intervals=intervals))


def later(started_at: str | None, by_ns: int) -> str | None:
    """An ISO 8601 time plus ``by_ns``; ``None`` stays ``None``."""
    if started_at is None:
        return None
    return (datetime.fromisoformat(started_at) + timedelta(seconds=seconds(by_ns))).isoformat()


@dataclass(slots=True)
class _Kept:
    """The GPUs of a snapshot, or the same as bytes: for eight GPUs 1.5 KB instead of 25."""

    gpus: tuple[GpuState, ...] | None
    data: bytes = b""


class ReportHistory:
    """Keeps a snapshot of each tick, fewer of older ones. Answers from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._store = SnapshotStore[_Kept](_SNAPSHOTS_PER_LEVEL, 2)
        self._gpus: tuple[GpuState, ...] = ()  # of the newest tick
        self._newest = _Kept(())
        self._newest_of: list[tuple[object, ...]] = []  # what the newest snapshot was made of
        self._unpacked: list[_Kept] = []
        self._packer = Packer()
        self._ended_ns: dict[RunKey, int] = {}  # when listed runs ended

    def keep(self, state: MonitorState) -> None:
        """Keep what later reports need of the newest state."""
        is_new = False
        if state.gpus is not self._gpus:
            self._gpus, made_of = state.gpus, [_lasting(gpu) for gpu in state.gpus]
            is_new = made_of != self._newest_of  # else the driver was not drained since
            if is_new:
                self._newest, self._newest_of = _Kept(snapshot_of(state).gpus), made_of
        with self._lock:
            ended = {(run.run, run.pid) for run in state.runs if not run.alive}
            if ended != self._ended_ns.keys():
                self._ended_ns = {key: self._ended_ns.get(key, state.taken_at_ns) for key in ended}
            self._store.add(state.taken_at_ns, self._newest)
            if is_new:
                self._unpacked.append(self._newest)
            if len(self._unpacked) == _PACK_EVERY:
                for one in self._unpacked:
                    one.data, one.gpus = self._packer.pack(one.gpus), None
                self._unpacked.clear()

    def since(self, now: Report, now_ns: int, since_s: float) -> Report:
        """The report of the last ``since_s`` seconds, or of a little less; a note says how much.

        If the daemon is younger than that, it is the report of all its time.
        """
        start_ns = now_ns - nanoseconds(since_s)
        with self._lock:
            oldest_ns = self._store.oldest_ns
            before = self._first_within(now, start_ns, nanoseconds(since_s))
            ended = [key for key, at_ns in self._ended_ns.items() if at_ns <= before.at_ns]
        if oldest_ns is None or oldest_ns > start_ns:
            age = in_time(now_ns - now.origin_ns)
            note = f"gpumon started {age} ago: nothing earlier is kept."
            if now.replayed:
                note = f"The recording is {age} long: there is nothing earlier."
            return replace(now, notes=(*now.notes, note))
        after = report_after(before, now, ended)
        note = f"This covers the last {in_time(after.observed_ns)}"
        if now_ns - start_ns > _DENSE_NS:
            note += ": only some times older than ten minutes are kept"
        return replace(after, notes=(*now.notes, f"{note}."))

    def _first_within(self, now: Report, start_ns: int, wanted_ns: int) -> Snapshot:
        """The oldest snapshot since which no GPU was observed for longer than requested."""
        observed_ns = {gpu.uuid: gpu.totals.observed_ns for gpu in now.gpus}
        most_ns = wanted_ns + now.period_ns
        snapshot = Snapshot(start_ns, ())
        for at_ns, kept in self._store.since(start_ns):
            if at_ns < start_ns:
                continue
            gpus = self._packer.unpack(kept.data) if kept.gpus is None else kept.gpus
            snapshot = Snapshot(at_ns, gpus)
            if all(
                observed_ns.get(gpu.device.uuid, 0) - gpu.totals.observed_ns <= most_ns
                for gpu in snapshot.gpus
            ):
                break
        return snapshot


class LaneHistory:
    """What every GPU and every run did when. Answers from any thread; memory is bounded."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._gpus: dict[str, _GpuHistory] = {}
        self._runs: dict[RunKey, _RunHistory] = {}
        self._slots = FairSlots[RunKey](MAX_RUNS_SHOWN, up_to_ended=_MAX_LANES_WITH_ENDED)
        self._chosen: frozenset[RunKey] = frozenset()
        self._living: frozenset[RunKey] = frozenset()
        self._began_ns: int | None = None

    def follow(self, state: MonitorState) -> None:
        """Keep the counters of a tick."""
        with self._lock:
            if self._began_ns is None:
                self._began_ns = state.taken_at_ns
            self._gpus = {
                gpu.device.uuid: self._gpus.get(gpu.device.uuid) or _GpuHistory()
                for gpu in state.gpus
            }
            for gpu in state.gpus:
                self._gpus[gpu.device.uuid].update(state, gpu)
            self._follow_runs(state)

    def lanes(self, report: Report, end_ns: int) -> Lanes:
        """The lanes of a report, from its beginning until ``end_ns``.

        The lock is taken for one lane at a time: for all, it would delay the next tick.
        """
        return Lanes(
            tuple(self._gpu_lane(gpu.uuid, report, end_ns) for gpu in report.gpus),
            tuple(lane for run in report.runs if (lane := self._run_lane(run, report, end_ns))),
        )

    def end_of(self, run: RunReport) -> int | None:
        """Time up to which a run's lane reaches; ``None``: its lane is not kept."""
        with self._lock:
            known = self._runs.get((run.run, run.pid))
            return None if known is None else known.history.newest_ns

    def _follow_runs(self, state: MonitorState) -> None:
        living = {(run.run, run.pid): run for run in state.runs if run.alive}
        if living.keys() != self._living:
            self._living = frozenset(living)
            if not self._living <= self._runs.keys():
                self._choose(living)
            for key in self._living & self._chosen - self._runs.keys():
                self._runs[key] = _RunHistory(living[key], state, self._began_ns or 0)
        for run in state.runs:
            known = self._runs.get((run.run, run.pid))
            if known is not None:
                known.update(run)

    def _choose(self, living: Mapping[RunKey, RunState]) -> None:
        """Decide which lanes are kept: those of ended runs, too, where there is room."""
        candidates = [
            RunCandidate(key, run.owner_uid, True, run.written_ns) for key, run in living.items()
        ]
        candidates += [
            RunCandidate(key, known.owner_uid, False, known.history.newest_ns)
            for key, known in self._runs.items()
            if key not in living
        ]
        self._chosen = self._slots.choose(candidates)
        self._runs = {key: known for key, known in self._runs.items() if key in self._chosen}

    def _gpu_lane(self, uuid: str | None, report: Report, end_ns: int) -> Lane:
        with self._lock:
            known = self._gpus.get(uuid or "")
            history = None if known is None else known.history
            cells = None if history is None else history.cells(report.origin_ns, end_ns)
        if cells is None:
            return Lane(start_ns=report.origin_ns, end_ns=report.origin_ns)
        return Lane(cells.start_ns, cells.end_ns, cells.cell_ns, *cells.grown)

    def _run_lane(self, run: RunReport, report: Report, end_ns: int) -> RunLane | None:
        with self._lock:
            known = self._runs.get((run.run, run.pid))
            cells = None if known is None else known.history.cells(report.origin_ns, end_ns)
        if cells is None:
            return None
        grown = {kind: ns for kind, ns in zip(_COUNTED, cells.grown, strict=True) if any(ns)}
        return RunLane(
            run=run.run,
            pid=run.pid,
            start_ns=cells.start_ns,
            end_ns=cells.end_ns,
            cell_ns=cells.cell_ns,
            phase_ns={phase: grown[phase] for phase in PHASES if phase in grown},
            reason_ns={reason: grown[reason] for reason in InputWaitReason if reason in grown},
        )


class _GpuHistory:
    """One GPU's counters at the ends of its samples, and in time that was not observed.

    Attributes:
        history: ``None`` before the first sample.
    """

    def __init__(self) -> None:
        self.history: CounterHistory | None = None
        self._observed_ns = self._busy_ns = self._active_ns = 0

    def update(self, state: MonitorState, gpu: GpuState) -> None:
        if self.history is not None:
            self._add(state.taken_at_ns - _MAX_LATE_NS)
        if gpu.totals.observed_ns == self._observed_ns:
            return
        grown = grown_stretches(gpu, self._observed_ns, self._busy_ns, state.period_ns)
        if grown:
            self._add(grown[0].start_ns)  # what comes after a hole does not reach into it
        for stretch in grown:
            self._observed_ns += stretch.observed_ns
            self._busy_ns += stretch.busy_ns
            if stretch.busy_ns > DEFAULT_SETTINGS.active_above * stretch.observed_ns:
                self._active_ns += stretch.observed_ns
            self._add(stretch.end_ns)

    def _add(self, at_ns: int) -> None:
        """Keep the counters, unless a later time has them already."""
        counters = self._observed_ns, self._busy_ns, self._active_ns
        if self.history is None:
            self.history = CounterHistory(at_ns, counters)
        elif at_ns > self.history.newest_ns:
            self.history.add(at_ns, counters)


_COUNTED: Final = (*PHASES, *InputWaitReason)
"""What is counted for a run, in this order."""


class _RunHistory:
    """Time of one run in each phase, and of its GPUs' waits for input by each reason.

    A step is in no sum until it ends. Phases leave no time out, so the sums cover the time up to
    their total.
    """

    def __init__(self, run: RunState, state: MonitorState, observed_from_ns: int) -> None:
        self.owner_uid = run.owner_uid
        self._newest: RunState | None = None
        self._began_ns = state.taken_at_ns - run.wall_ns
        if self._began_ns >= observed_from_ns:
            self.history = CounterHistory(self._began_ns, [0] * len(_COUNTED))
        else:  # it is not known when it did what it did before
            self.history = CounterHistory(self._known_until_ns(run), _counters(run))

    def update(self, run: RunState) -> None:
        if run is self._newest:
            return
        self._newest = run
        known_until_ns = self._known_until_ns(run)
        if known_until_ns > self.history.newest_ns:
            self.history.add(known_until_ns, _counters(run))

    def _known_until_ns(self, run: RunState) -> int:
        return self._began_ns + sum(run.phase_ns.values())


def _counters(run: RunState) -> list[int]:
    waited_ns = {
        why.reason: why.waited_ns for why in run.reasons if why.cause is IdleCause.INPUT_WAIT
    }
    return [
        *(run.phase_ns.get(phase, 0) for phase in PHASES),
        *(waited_ns.get(reason, 0) for reason in InputWaitReason),
    ]
