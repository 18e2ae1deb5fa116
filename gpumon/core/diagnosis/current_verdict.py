"""The current verdict: on the last ten minutes in use, and since when it has been so."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from gpumon.core.accounting.pending import NOTHING_UNSETTLED, Unsettled
from gpumon.core.accounting.snapshots import Packer
from gpumon.core.accounting.totals import GpuTotals, NowVerdict
from gpumon.core.diagnosis.report_since import totals_since
from gpumon.core.diagnosis.verdict_rules import diagnose
from gpumon.core.settings.detector import DetectorSettings
from gpumon.core.verdict import VerdictName

_MARKS = 60


class _Mark(NamedTuple):
    totals: GpuTotals
    unsettled: Unsettled

    @classmethod
    def at(cls, moment: GpuMoment) -> _Mark:
        """A mark to compare later states with."""
        return cls(moment.totals.to_subtract, moment.unsettled.to_subtract)

    def until(self, later: GpuMoment) -> GpuTotals:
        """The totals of the time between two marks."""
        return totals_since(
            self.totals,
            later.totals,
            unsettled_before=self.unsettled,
            unsettled_after=later.unsettled,
        )


class _PackedMark(NamedTuple):
    in_use_ns: int
    data: bytes  # of a ``_Mark``


class GpuMoment(NamedTuple):
    """The state of a GPU after one tick.

    Attributes:
        at_ns: CLOCK_MONOTONIC of the tick.
        last_active_ns: When it was active last.
        jobs: How many jobs have begun on it.
        in_job: Whether the newest of them goes on.
        suspended_since_ns: Since when all its runs are suspended; ``None``: they are not.
        hanging_since_ns: Since when its run hangs; ``None``: none does.
    """

    at_ns: int
    totals: GpuTotals
    unsettled: Unsettled
    last_active_ns: int
    jobs: int
    in_job: bool
    suspended_since_ns: int | None = None
    hanging_since_ns: int | None = None


_JOBS: Final = GpuMoment._fields.index("jobs")
_NEVER: Final = _Mark(GpuTotals(), NOTHING_UNSETTLED)


@dataclass(slots=True)
class _Job:
    """A job on the GPU; number 0 is the time before the first one.

    Attributes:
        start: When it began, with its start-up: after the job before, where that had ended.
        name: Its verdict.
        before: Its verdict before that.
        is_new: Whether it has had no verdict.
        stood_still: Whether it was suspended or hung when last seen.
        since_ns: Since when its verdict has been so.
        ended_ns: When it ended.
        free_from: When the GPU had no job any more.
    """

    number: int
    start: _Mark
    name: VerdictName | None = None
    before: VerdictName | None = None
    is_new: bool = True
    stood_still: bool = False
    since_ns: int = 0
    ended_ns: int | None = None
    free_from: _Mark | None = None


class CurrentVerdict:
    """The current verdict on one GPU, updated at each tick.

    A verdict of a loss begins at 5 % of the window and ends below 3 %, so that it does not
    flicker.
    """

    def __init__(self, settings: DetectorSettings) -> None:
        self._settings = settings
        self._until_off = replace(settings, lost_share=settings.flag_off_share)
        self._spacing_ns = settings.now_window_ns // _MARKS
        self._newest: GpuMoment | None = None
        self._job = _Job(0, _NEVER, free_from=_NEVER)
        self._window_from = _NEVER
        self._packer = Packer()
        self._marks: deque[_PackedMark] = deque()  # in the window, oldest first
        self._due_ns = 0
        self._verdict: NowVerdict | None = None
        self._was: tuple[object, ...] = ()  # a change of these calls for a new verdict

    def update(self, now: GpuMoment) -> NowVerdict:
        """The verdict as of this tick."""
        before, self._newest = self._newest, now
        if now.jobs != self._job.number:
            last = _NEVER if before is None else _Mark.at(before)
            hung = self._job.name is VerdictName.HANGING  # then its first batch came late, once
            start = last if self._job.free_from is None or hung else self._job.free_from
            self._job = _Job(now.jobs, start)
            self._begin_window(start)
        is_due = now.in_job and now.at_ns >= self._due_ns
        kept = now[_JOBS:]
        if self._verdict is not None and not is_due and kept == self._was:
            return self._verdict
        self._was = kept
        self._due_ns = now.at_ns + self._settings.now_every_ns
        self._verdict = self._diagnosed(now)
        return self._verdict

    def _diagnosed(self, now: GpuMoment) -> NowVerdict:
        job = self._job
        if not now.in_job:
            job.free_from = job.free_from or _Mark.at(now)
            totals = job.start.until(now)
            if now.suspended_since_ns is not None or now.hanging_since_ns is not None:
                return self._at_a_standstill(now, totals)
            if job.ended_ns is None and now.jobs:
                job.ended_ns = now.at_ns if job.stood_still else now.last_active_ns
            if job.before is VerdictName.HANGING and not job.stood_still:
                job.before = None  # it continued before it ended
            ended_ns = job.ended_ns
            since_ns = (job.since_ns or now.at_ns) if ended_ns is None else ended_ns
            return self._found(totals, VerdictName.NOT_IN_USE, since_ns, ended_ns=ended_ns)
        if job.name is VerdictName.HANGING and now.hanging_since_ns is None:
            # What led to the hang is no evidence of what came after.
            self._begin_window(_Mark.at(now))
            job.is_new = True
        job.stood_still = False
        self._move_window(now)
        totals = self._window_from.until(now)
        if now.suspended_since_ns is not None or now.hanging_since_ns is not None:
            return self._at_a_standstill(now, totals)
        return self._found_by_totals(now, totals)

    def _begin_window(self, mark: _Mark) -> None:
        self._window_from = mark
        self._marks.clear()

    def _move_window(self, now: GpuMoment) -> None:
        """Start the window at the newest mark since which the GPU was in use for long enough."""
        marks, in_use_ns = self._marks, now.totals.in_use_ns
        last_ns = marks[-1].in_use_ns if marks else self._window_from.totals.in_use_ns
        if in_use_ns - last_ns >= self._spacing_ns:
            marks.append(_PackedMark(in_use_ns, self._packer.pack(_Mark.at(now))))
        while marks and in_use_ns - marks[0].in_use_ns >= self._settings.now_window_ns:
            self._window_from = self._packer.unpack(marks.popleft().data)

    def _at_a_standstill(self, now: GpuMoment, totals: GpuTotals) -> NowVerdict:
        self._job.is_new, self._job.stood_still = False, True
        if now.suspended_since_ns is not None:
            since_ns = now.suspended_since_ns
            return self._found(totals, VerdictName.NOT_IN_USE, since_ns, is_suspended=True)
        assert now.hanging_since_ns is not None
        return self._found(totals, VerdictName.HANGING, now.hanging_since_ns)

    def _found_by_totals(self, now: GpuMoment, totals: GpuTotals) -> NowVerdict:
        """The verdict by the totals alone, and since when it has been so."""
        totals = totals._replace(hanging_now=False)
        job = self._job
        verdict, before = diagnose(totals, self._settings), job.name
        name = verdict.name
        if name is VerdictName.HEALTHY and before is not None and before.is_of_a_loss:
            name = diagnose(totals, self._until_off).name
        if name is not before:
            # The first verdict of a job is on all of its time.
            is_first = name.is_conclusive and job.is_new
            job.since_ns = now.at_ns - totals.in_use_ns if is_first else now.at_ns
            job.is_new = job.is_new and not is_first
            self._change_to(name)
        return NowVerdict(name, job.since_ns, totals, verdict, before=job.before)

    def _change_to(self, name: VerdictName) -> None:
        """Keep the verdict before while there is too little for one."""
        former = self._job.name
        if former is not None and (former.is_conclusive or former is VerdictName.HANGING):
            self._job.before = former
        self._job.name = name

    def _found(
        self,
        totals: GpuTotals,
        name: VerdictName,
        since_ns: int,
        *,
        ended_ns: int | None = None,
        is_suspended: bool = False,
    ) -> NowVerdict:
        """A verdict by something other than the totals."""
        if name is not self._job.name:
            self._change_to(name)
        self._job.since_ns = since_ns
        verdict = diagnose(totals._replace(hanging_now=False), self._settings)
        return NowVerdict(
            name, since_ns, totals, verdict, ended_ns, is_suspended, before=self._job.before
        )
