"""What every GPU and every run did when, since a monitor began: as finely as a picture needs it.

A live daemon, a recording and its replay follow the same states, and come to the same lanes.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

from gpumon.core.accounting.counter_history import CounterHistory
from gpumon.core.log_summary.busy_lane import Lane
from gpumon.core.phase import PHASES, IdleCause, InputWaitReason
from gpumon.core.report.lanes import Lanes, RunLane
from gpumon.core.report.report import Report, RunReport
from gpumon.core.ring_format.fair_share import MAX_RUNS_SHOWN, FairSlots, RunCandidate
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.state import GpuState, MonitorState, RunState

_MOST_LANES: Final = 32
"""Lanes of runs that have ended are kept while there are no more than that."""

_Key = tuple[str, int]  # label and pid


class LaneHistory:
    """Follows states from tick to tick; answers from any thread. Memory is bounded."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._gpus: dict[str, _GpuNotes] = {}
        self._runs: dict[_Key, _RunNotes] = {}
        self._places = FairSlots[_Key](MAX_RUNS_SHOWN, up_to_ended=_MOST_LANES)
        self._chosen: frozenset[_Key] = frozenset()
        self._began_ns: int | None = None

    def follow(self, state: MonitorState) -> None:
        """Note how far the counters of a tick have grown."""
        with self._turn:
            if self._began_ns is None:
                self._began_ns = state.taken_at_ns
            self._gpus = {
                gpu.device.uuid: self._gpus.get(gpu.device.uuid) or _GpuNotes(state, gpu)
                for gpu in state.gpus
            }
            for gpu in state.gpus:
                self._gpus[gpu.device.uuid].take(state, gpu)
            self._follow_runs(state)

    def lanes(self, report: Report, end_ns: int) -> Lanes:
        """The lanes of a report, from its beginning until ``end_ns``.

        One after the other: all at once would keep the next tick waiting.
        """
        return Lanes(
            tuple(self._gpu_lane(gpu.uuid, report, end_ns) for gpu in report.gpus),
            tuple(lane for run in report.runs if (lane := self._run_lane(run, report, end_ns))),
        )

    def end_of(self, run: RunReport) -> int | None:
        """Up to when it is known what a run did; ``None``: its lane is not kept."""
        with self._turn:
            notes = self._runs.get((run.run, run.pid))
            return None if notes is None else notes.history.newest_ns

    def _follow_runs(self, state: MonitorState) -> None:
        living = {(run.run, run.pid): run for run in state.runs if run.alive}
        if not living.keys() <= self._runs.keys():
            self._choose(living)
            for key in living.keys() & self._chosen - self._runs.keys():
                self._runs[key] = _RunNotes(living[key], state, self._began_ns or 0)
        for run in state.runs:
            notes = self._runs.get((run.run, run.pid))
            if notes is not None:
                notes.take(run)

    def _choose(self, living: Mapping[_Key, RunState]) -> None:
        """Decide whose lanes are kept: of runs that ended, too, where there is room."""
        claims = [
            RunCandidate(key, run.owner_uid, True, run.written_ns) for key, run in living.items()
        ]
        claims += [
            RunCandidate(key, notes.owner_uid, False, notes.history.newest_ns)
            for key, notes in self._runs.items()
            if key not in living
        ]
        self._chosen = self._places.choose(claims)
        self._runs = {key: notes for key, notes in self._runs.items() if key in self._chosen}

    def _gpu_lane(self, uuid: str | None, report: Report, end_ns: int) -> Lane:
        with self._turn:
            notes = self._gpus.get(uuid or "")
            cells = None if notes is None else notes.history.cells(report.origin_ns, end_ns)
        if cells is None:
            return Lane(start_ns=report.origin_ns, end_ns=report.origin_ns)
        return Lane(cells.start_ns, cells.end_ns, cells.cell_ns, *cells.grown)

    def _run_lane(self, run: RunReport, report: Report, end_ns: int) -> RunLane | None:
        with self._turn:
            notes = self._runs.get((run.run, run.pid))
            cells = None if notes is None else notes.history.cells(report.origin_ns, end_ns)
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


class _GpuNotes:
    """Observed, busy and active time of one GPU."""

    def __init__(self, state: MonitorState, gpu: GpuState) -> None:
        end_ns = _end_of_samples(state, gpu)
        self.history = CounterHistory(end_ns - gpu.totals.observed_ns, (0, 0, 0))
        self._observed_ns = self._busy_ns = self._active_ns = 0

    def take(self, state: MonitorState, gpu: GpuState) -> None:
        totals, at_ns = gpu.totals, state.taken_at_ns
        observed_ns = totals.observed_ns - self._observed_ns
        if observed_ns:
            at_ns = _end_of_samples(state, gpu)
        if totals.busy_ns - self._busy_ns > DEFAULT_SETTINGS.active_above * observed_ns:
            self._active_ns += observed_ns
        self._observed_ns, self._busy_ns = totals.observed_ns, totals.busy_ns
        counters = (self._observed_ns, self._busy_ns, self._active_ns)
        self.history.note(max(at_ns, self.history.newest_ns), counters)


def _end_of_samples(state: MonitorState, gpu: GpuState) -> int:
    """What was observed ends with the newest sample, and that is a little older than the tick."""
    last_ns = gpu.last_sample_at_ns
    return state.taken_at_ns if last_ns is None else min(state.taken_at_ns, last_ns)


_COUNTED: Final = (*PHASES, *InputWaitReason)
"""What is counted of a run, in this order."""


class _RunNotes:
    """Time of one run in each phase, and what its GPUs waited for input by each reason.

    A step that goes on is in no sum until it ends. As the phases leave no time out, the sums are
    those of the instant up to which they add up.
    """

    def __init__(self, run: RunState, state: MonitorState, observed_from_ns: int) -> None:
        self.owner_uid = run.owner_uid
        self._began_ns = state.taken_at_ns - run.wall_ns
        if self._began_ns >= observed_from_ns:
            self.history = CounterHistory(self._began_ns, [0] * len(_COUNTED))
        else:  # when it did what it did before, nobody saw
            self.history = CounterHistory(self._told_until_ns(run), _counters(run))

    def take(self, run: RunState) -> None:
        told_until_ns = self._told_until_ns(run)
        if told_until_ns > self.history.newest_ns:
            self.history.note(told_until_ns, _counters(run))

    def _told_until_ns(self, run: RunState) -> int:
        return self._began_ns + sum(run.phase_ns.values())


def _counters(run: RunState) -> list[int]:
    waited_ns = {
        why.reason: why.waited_ns for why in run.reasons if why.cause is IdleCause.INPUT_WAIT
    }
    return [
        *(run.phase_ns.get(phase, 0) for phase in PHASES),
        *(waited_ns.get(reason, 0) for reason in InputWaitReason),
    ]
