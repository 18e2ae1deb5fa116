"""Reports on request: of all the time, of the last hour, or of one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from gpumon.core.report import Report
from gpumon.core.ring_events import RingCounts
from gpumon.core.state import MonitorState
from gpumon.pipeline.live_report import report_of
from gpumon.pipeline.report_history import ReportHistory
from gpumon.pipeline.run_reports import RunReports

_NO_COUNTS: Final[Mapping[int, RingCounts]] = MappingProxyType({})


class ReportDesk:
    """Follows a monitor from tick to tick; answers from any thread."""

    def __init__(self) -> None:
        self._history = ReportHistory()
        self._runs = RunReports()
        self._state: MonitorState | None = None

    @property
    def state(self) -> MonitorState | None:
        """As of the newest tick; ``None`` before the first."""
        return self._state

    def follow(self, state: MonitorState) -> None:
        """Take the newest tick."""
        self._runs.follow(state)
        self._state = state
        if self._history.is_due(state.taken_at_ns):
            self._history.keep(report_of(state), state.taken_at_ns)

    def report(
        self,
        newest: Mapping[int, RingCounts] = _NO_COUNTS,
        *,
        since_s: float | None = None,
        run: str | None = None,
    ) -> Report | None:
        """The report as of now; ``None`` before the first tick.

        Args:
            newest: What runs have counted since the tick, by pid.
            since_s: Of the last so many seconds only.
            run: Of the run with this label, or pid, only.

        Raises:
            UsageError: There is no such run; names those there are.
        """
        state = self._state
        if state is None:
            return None
        report = report_of(state, newest)
        if run is not None:
            return self._runs.of(run, report)
        if since_s is not None:
            return self._history.since(report, state.taken_at_ns, since_s)
        return self._noted(report)

    def report_on(self, state: MonitorState) -> Report:
        """The report on one tick and nothing newer, for whoever shows that tick."""
        return self._noted(report_of(state))

    def _noted(self, report: Report) -> Report:
        note = self._runs.note(report)
        return replace(report, notes=(*report.notes, note)) if note else report
