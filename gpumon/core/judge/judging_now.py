"""The verdict on now: of the last ten minutes in use, and since when it has been so."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import NamedTuple

from gpumon.core.judge.since import totals_since
from gpumon.core.judge.verdict_rules import judge
from gpumon.core.settings.detector import DetectorSettings
from gpumon.core.time.now_verdict import NowVerdict
from gpumon.core.time.pending import NOTHING_UNSETTLED, Unsettled
from gpumon.core.time.totals import GpuTotals
from gpumon.core.verdict import VerdictName

_MARKS = 60


class _Mark(NamedTuple):
    totals: GpuTotals
    unsettled: Unsettled

    def until(self, later: _Mark) -> GpuTotals:
        """The totals of the time between two marks."""
        return totals_since(
            self.totals,
            later.totals,
            unsettled_before=self.unsettled,
            unsettled_after=later.unsettled,
        )


class GpuMoment(NamedTuple):
    """What is known of a GPU after one tick.

    Attributes:
        at_ns: CLOCK_MONOTONIC of the tick.
        jobs: How many jobs have begun on it.
        in_job: Whether the newest of them goes on.
        last_active_ns: When it was active last.
        suspended_since_ns: Since when all its runs are suspended; ``None``: they are not.
        hanging_since_ns: Since when its run hangs; ``None``: none does.
    """

    at_ns: int
    totals: GpuTotals
    unsettled: Unsettled
    jobs: int
    in_job: bool
    last_active_ns: int
    suspended_since_ns: int | None = None
    hanging_since_ns: int | None = None


class JudgedNow:
    """Follows one GPU from tick to tick.

    A verdict of a loss begins at 5 % of the window, as all do, and ends below 3 %, so that it does
    not flicker.
    """

    def __init__(self, settings: DetectorSettings) -> None:
        self._settings = settings
        self._until_off = replace(settings, lost_share=settings.flag_off_share)
        self._spacing_ns = settings.now_window_ns // _MARKS
        self._marks: deque[_Mark] = deque([_Mark(GpuTotals(), NOTHING_UNSETTLED)])
        self._job_from = self._newest = self._marks[0]
        self._jobs = 0
        self._due_ns = 0
        self._word: VerdictName | None = None
        self._since_ns = 0
        self._verdict: NowVerdict | None = None
        self._was: tuple[object, ...] = ()

    def update(self, now: GpuMoment) -> NowVerdict:
        """The verdict as of this tick."""
        newest = _Mark(now.totals, now.unsettled)
        if now.jobs != self._jobs:
            self._jobs, self._word = now.jobs, None
            self._job_from = self._newest
            self._marks = deque([self._newest])
        self._newest = newest
        kept = (now.jobs, now.in_job, now.suspended_since_ns is None, now.hanging_since_ns is None)
        is_same = kept == self._was and self._verdict is not None
        if self._verdict is not None and is_same and now.at_ns < self._due_ns:
            return self._verdict
        if self._verdict is not None and is_same and not now.in_job:
            return self._verdict
        self._was = kept
        self._due_ns = now.at_ns + self._settings.now_every_ns
        self._verdict = self._judged(now, newest)
        return self._verdict

    def _judged(self, now: GpuMoment, newest: _Mark) -> NowVerdict:
        if not now.in_job:
            totals = self._job_from.until(newest)
            ended_ns = now.last_active_ns if now.jobs else None
            return self._named(now, totals, VerdictName.NOT_IN_USE, ended_ns, ended_ns=ended_ns)
        marks, in_use_ns = self._marks, newest.totals.in_use_ns
        if in_use_ns - marks[-1].totals.in_use_ns >= self._spacing_ns:
            marks.append(newest)
        while len(marks) > 1 and in_use_ns - marks[1].totals.in_use_ns >= (
            self._settings.now_window_ns
        ):
            marks.popleft()
        totals = marks[0].until(newest)
        if now.suspended_since_ns is not None:
            found = self._named(now, totals, VerdictName.NOT_IN_USE, now.suspended_since_ns)
            return found._replace(is_suspended=True)
        if now.hanging_since_ns is not None:
            return self._named(now, totals, VerdictName.HANGING, now.hanging_since_ns)
        return self._named(now, totals, self._word_of(totals._replace(hanging_now=False)), None)

    def _word_of(self, totals: GpuTotals) -> VerdictName:
        name, before = judge(totals, self._settings).name, self._word
        if before is not None and before.is_of_a_loss and name is VerdictName.HEALTHY:
            return judge(totals, self._until_off).name
        return name

    def _named(
        self,
        now: GpuMoment,
        totals: GpuTotals,
        name: VerdictName,
        since_ns: int | None,
        *,
        ended_ns: int | None = None,
    ) -> NowVerdict:
        """The word, and since when it is so: since ``since_ns``, or since it last changed."""
        if since_ns is None:
            since_ns = self._since_ns
            if name is not self._word:
                is_first = self._word is None or not self._word.is_judged
                began_ns = now.at_ns - totals.observed_ns if is_first else now.at_ns
                since_ns = began_ns if name.is_judged else now.at_ns
        self._word, self._since_ns = name, since_ns
        verdict = judge(totals._replace(hanging_now=False), self._settings)
        return NowVerdict(name, since_ns, totals, verdict, ended_ns)
