"""Reports on request: of all time, of the last hour, or of one run.

A daemon's counters add up all runs since it began. What was before a run, or before the last
hour, is subtracted with the help of snapshots.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.clock import NS_PER_S
from gpumon.core.diagnosis.advice import advise
from gpumon.core.diagnosis.report_before import EarlierTime, report_with_earlier
from gpumon.core.report.lanes import ReportWithLanes
from gpumon.core.report.report import Report, RunReport, name_of_run
from gpumon.core.ring_format.events import RingCounts
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.state import MonitorState, RunState
from gpumon.core.wording import listed
from gpumon.errors import UsageError
from gpumon.pipeline.history import (
    LaneHistory,
    ReportHistory,
    RunKey,
    Snapshot,
    report_after,
    snapshot_of,
)
from gpumon.pipeline.state_report import NO_COUNTS, report_of

_MAX_FINISHED: Final = 64
_MAX_CONCURRENT_RUNS: Final = 64
"""Names kept of other runs on the same GPU: thousands of short ones may run in a few weeks."""
_PATIENCE_NS: Final = 10 * NS_PER_S
"""Longest time until the samples of a GPU pass the end of a run."""


@dataclass(slots=True)
class _Open:
    """A run that has not ended.

    Attributes:
        before: Snapshot of the tick before its first; ``None``: the daemon began later.
        gone_ns: When its end was first noticed.
        counted: GPUs for which it was counted.
        concurrent_runs: Runs that were on one of its GPUs at the same time.
    """

    before: Snapshot | None
    gone_ns: int | None = None
    counted: set[str] = field(default_factory=set)
    concurrent_runs: set[str] = field(default_factory=set)


class RunReports:
    """Reports of single runs. Answers from any thread."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._previous: MonitorState | None = None
        self._open: dict[RunKey, _Open] = {}
        self._finished: dict[RunKey, Report] = {}  # the newest last
        self._done: set[RunKey] = set()  # finished, and still listed
        self._runs_on: Counter[str] = Counter()  # how many ever used each GPU, by UUID
        self._living_runs_on: Mapping[str, set[str]] = {}

    def follow(self, state: MonitorState) -> None:
        with self._turn:
            if state.runs or self._open:
                self._follow(state)
            self._previous = state

    def of(self, label: str, now: Report) -> Report:
        """The report of one run and its GPUs, from its first tick to its end.

        The run has this label or pid; of several with the label, it is the newest.

        Raises:
            UsageError: No such run; names those there are.
        """
        with self._turn:
            living = [key for key in reversed(self._open) if _run_of(key, now) is not None]
            newest_first = [*living, *reversed(self._finished)]
            named = [key for key in newest_first if key[0] == label]
            named += [key for key in newest_first if str(key[1]) == label]
            if named:
                key, name = named[0], name_of_run(*named[0])
                run = _run_of(key, now) if key in self._open else None
                report = _alone(self._open[key], now, run) if run else self._finished[key]
                namesakes = [
                    other for other in newest_first if other != key and name_of_run(*other) == name
                ]
                return _with_namesake_note(report, key, namesakes)
            names = list(dict.fromkeys(name for name, _ in [*self._open, *self._finished]))
        if any(run.ended_before and label in (run.run, str(run.pid)) for run in now.runs):
            raise UsageError(
                f"{label!r} had ended before observation began: nothing of it was seen"
            )
        known = f"; the runs here: {listed(names, most=8)}" if names else ": there is none yet"
        raise UsageError(f"no run is called {label!r} here{known}")

    def note(self, now: Report) -> str | None:
        """A note for the complete report, if a GPU's figures add up several runs."""
        with self._turn:
            shared = [gpu for gpu in now.gpus if self._runs_on[gpu.uuid or ""] > 1]
            if not shared:
                return None
            most = max(self._runs_on[gpu.uuid or ""] for gpu in shared)
            names = self._names(now)
        return (
            f"The figures of {listed([f'GPU {gpu.label}' for gpu in shared])} are totals over "
            f"{most} runs since the daemon began. For one alone: `gpumon report --run NAME`, "
            f"where NAME is one of {listed(names, most=8)}."
        )

    def _names(self, now: Report) -> list[str]:
        """Names of the runs that can be requested; the pid if a newer run has the name."""
        names = [run.run for run in now.runs if run.gpu_uuids]
        names = names or list(dict.fromkeys(name for name, _ in self._finished))
        newest = dict(self._finished.keys()) | {run.run: run.pid for run in now.runs}
        return names + [
            f"{pid} (an earlier {name})"
            for name, pid in self._finished
            if name in names and newest[name] != pid
        ]

    def _follow(self, state: MonitorState) -> None:
        listed_now = {(run.run, run.pid): run for run in state.runs if not run.ended_before}
        self._done &= listed_now.keys()
        if self._previous is not None:
            for key in [key for key in self._open if key not in listed_now]:
                # Another run took its label.
                self._open[key].gone_ns = self._previous.taken_at_ns
                self._finish(key, report_of(self._previous))
        uuids = {gpu.device.uuid for gpu in state.gpus}
        for gone in self._runs_on.keys() - uuids:  # MIG instances are recreated all day long
            del self._runs_on[gone]
        self._begin(listed_now)
        living_runs_on = _living_runs_on(state.runs)
        has_changed = living_runs_on != self._living_runs_on
        self._living_runs_on = living_runs_on
        over = []
        for key, opened in self._open.items():
            run = listed_now[key]
            if has_changed or not opened.counted.issuperset(run.gpu_uuids):
                self._note_gpus(opened, run)
            if not run.alive and _is_over(opened, run, state):
                over.append(key)
        if over:
            now = report_of(state)
            for key in over:
                self._finish(key, now)

    def _note_gpus(self, opened: _Open, run: RunState) -> None:
        self._runs_on.update(set(run.gpu_uuids) - opened.counted)
        opened.counted.update(run.gpu_uuids)
        if len(opened.concurrent_runs) < _MAX_CONCURRENT_RUNS:
            opened.concurrent_runs.update(
                *(self._living_runs_on[uuid] for uuid in run.gpu_uuids if run.alive)
            )

    def _begin(self, listed_now: Iterable[RunKey]) -> None:
        new = [key for key in listed_now if key not in self._open and key not in self._done]
        if new:
            previous = self._previous
            before = None if previous is None else snapshot_of(previous)
            self._open.update((key, _Open(before)) for key in new)

    def _finish(self, key: RunKey, now: Report) -> None:
        opened, run = self._open.pop(key), _run_of(key, now)
        self._done.add(key)
        if run is not None:
            self._finished.pop(key, None)  # the newest comes last
            # If its label was taken, its last state may be from before its end.
            self._finished[key] = _alone(opened, now, replace(run, alive=False))
        if len(self._finished) > _MAX_FINISHED:
            del self._finished[next(iter(self._finished))]


def _living_runs_on(runs: Iterable[RunState]) -> dict[str, set[str]]:
    living: defaultdict[str, set[str]] = defaultdict(set)
    for run in runs:
        for uuid in run.gpu_uuids if run.alive else ():
            living[uuid].add(run.run)
    return living


def _is_over(opened: _Open, run: RunState, state: MonitorState) -> bool:
    """Whether the samples of its GPUs have passed its end, or took too long."""
    if opened.gone_ns is None:
        opened.gone_ns = state.taken_at_ns
    if state.taken_at_ns - opened.gone_ns >= _PATIENCE_NS:
        return True
    used = [gpu for gpu in state.gpus if gpu.device.uuid in run.gpu_uuids]
    if run.is_undecided or any(gpu.is_undecided for gpu in used):
        return False
    return all((gpu.last_sample_at_ns or 0) >= opened.gone_ns for gpu in used)


def _run_of(key: RunKey, report: Report) -> RunReport | None:
    return next((run for run in report.runs if (run.run, run.pid) == key), None)


def _with_namesake_note(report: Report, key: RunKey, namesakes: Sequence[RunKey]) -> Report:
    if not namesakes:
        return report
    pids, name = [str(pid) for _, pid in namesakes], name_of_run(*key)
    if len(pids) == 1:
        others = f"Another run was called {name}: `gpumon report --run {pids[0]}` shows it."
    else:
        others = (
            f"{len(pids)} other runs were called {name} (pids {listed(pids)}): "
            "`gpumon report --run PID` shows one of them."
        )
    return replace(report, notes=(*report.notes, f"This one has pid {key[1]}. {others}"))


def _starves_now(opened: _Open, totals: GpuTotals) -> bool:
    """Whether the run itself starves: the GPU's own flag also covers earlier runs."""
    settings, totals = DEFAULT_SETTINGS, totals.diagnosed
    if opened.gone_ns is not None or totals.in_use_ns < settings.min_in_use_ns:
        return False
    if totals.in_use_ns >= settings.flag_window_ns:
        return totals.starved_now
    starved_ns = totals.starved_ns + totals.suspected_ns
    return starved_ns >= settings.flag_on_share * totals.in_use_ns


def _alone(opened: _Open, now: Report, run: RunReport) -> Report:
    until = "now" if opened.gone_ns is None else "the first reading after its end"
    notes = [f"This covers only the run {run.run}, up to {until}."]
    part = now
    if opened.before is None:
        notes.append("It may be older than the daemon: what was before that is not observed.")
    else:
        part = report_after(opened.before, now)
    others = sorted(opened.concurrent_runs - {run.run})
    if others:
        notes.append(f"On the same GPU at the same time: {listed(others)}. That counts here too.")
    gpus = tuple(
        replace(gpu, totals=gpu.totals._replace(starved_now=_starves_now(opened, gpu.totals)))
        for gpu in part.gpus
        if gpu.uuid in run.gpu_uuids
    )
    if not gpus:
        notes.append("It worked on no GPU that the daemon watches.")
    return replace(
        part,
        observed_ns=max((gpu.totals.observed_ns for gpu in gpus), default=0),
        gpus=gpus,
        runs=(run,),
        is_part=True,
        advice=advise(gpus, (run,)),
        notes=(*part.notes, *notes),
    )


class Reports:
    """All reports of a monitor. Answers from any thread.

    Attributes:
        state: State of the newest tick; ``None`` before the first.

    Args:
        earlier: Returns what earlier processes watched since a time, in seconds since the epoch;
            ``None``: nothing of it is kept.
    """

    def __init__(self, earlier: Callable[[float], EarlierTime | None] | None = None) -> None:
        self._earlier = earlier
        self._history = ReportHistory()
        self._runs = RunReports()
        self._lanes = LaneHistory()
        self.state: MonitorState | None = None

    def follow(self, state: MonitorState) -> None:
        self._runs.follow(state)
        before, self.state = self.state, state
        if not state.repeats(before):
            self._lanes.follow(state)
        self._history.keep(state)

    def report(
        self,
        newest: Mapping[int, RingCounts] = NO_COUNTS,
        *,
        since_s: float | None = None,
        run: str | None = None,
    ) -> Report | None:
        """The report as of now; ``None`` before the first tick.

        Args:
            newest: Counts of runs since the tick, by pid.
            since_s: Length of the window before now, in seconds.
            run: Only the run with this label or pid.

        Raises:
            UsageError: There is no such run; names those there are.
        """
        state = self.state
        if state is None:
            return None
        report = report_of(state, newest)
        if run is not None:
            return self._runs.of(run, report)
        if since_s is not None:
            return self._since(report, state, since_s)
        return self._noted(report)

    def _since(self, report: Report, state: MonitorState, since_s: float) -> Report:
        from_s = state.wall_time_s - since_s
        if self._earlier is not None and from_s < state.started_wall_time_s:
            earlier = self._earlier(from_s)
            if earlier is not None:
                return report_with_earlier(earlier, report)
        return self._history.since(report, state.taken_at_ns, since_s)

    def report_with_lanes(
        self,
        newest: Mapping[int, RingCounts] = NO_COUNTS,
        *,
        since_s: float | None = None,
        run: str | None = None,
    ) -> ReportWithLanes | None:
        """The report with lanes, unless it is of a run that ended too long ago."""
        report, state = self.report(newest, since_s=since_s, run=run), self.state
        if report is None or state is None:
            return None
        if run is None:
            return ReportWithLanes(report, self._lanes.lanes(report, state.taken_at_ns))
        (alone,) = report.runs
        known_until_ns = self._lanes.end_of(alone)
        if known_until_ns is None:
            return ReportWithLanes(report, None)
        # The report includes the samples that passed its end, and nothing later.
        end_ns = max(known_until_ns, report.origin_ns + report.observed_ns)
        return ReportWithLanes(report, self._lanes.lanes(report, end_ns))

    def report_on(self, state: MonitorState) -> Report:
        return self._noted(report_of(state))

    def _noted(self, report: Report) -> Report:
        note = self._runs.note(report)
        return replace(report, notes=(*report.notes, note)) if note else report
