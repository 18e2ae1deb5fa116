"""Specification of the report of the last so many seconds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpumon.core.judge.verdict_rules import judge
from gpumon.core.report.report import GpuReport, Report
from gpumon.core.time.ledger import GpuLedger
from gpumon.pipeline.past_reports import ReportHistory
from tests.builders_report import report
from tests.builders_time import every, s

DAY_NS = s(24 * 3600)


class Daemon:
    """A GPU watched once a second, whose report is kept as a daemon does."""

    def __init__(self) -> None:
        self.history = ReportHistory()
        self._ledger = GpuLedger()
        self.second = 0

    def watch(self, level: float, seconds: int) -> None:
        for sample in every(1.0, [level] * seconds, start_s=self.second):
            self._ledger.observe([sample])
            self.second += 1
            if self.history.is_due(s(self.second)):
                self.history.keep(self.now(), s(self.second))

    def now(self) -> Report:
        totals = self._ledger.snapshot()
        one = GpuReport(index=0, uuid="GPU-0", name=None, totals=totals, verdict=judge(totals))
        return replace(report(one), origin_ns=0, started_at="2026-11-21T08:00:00+00:00")

    def last(self, seconds: float) -> Report:
        return self.history.since(self.now(), s(self.second), seconds)


@pytest.fixture
def daemon() -> Daemon:
    return Daemon()


class TestTheLastSeconds:
    def test_leave_out_what_was_before(self, daemon: Daemon) -> None:
        daemon.watch(0.5, 300)
        daemon.watch(1.0, 100)

        gpu = daemon.last(60).gpus[0]

        assert gpu.verdict.name.value == "healthy"
        assert s(60) <= gpu.totals.observed_ns <= s(70)

    def test_say_when_they_began(self, daemon: Daemon) -> None:
        daemon.watch(1.0, 601)

        found = daemon.last(300)

        assert found.started_at == "2026-11-21T08:05:01+00:00"
        assert any(" 300 s:" in note for note in found.notes)

    def test_are_all_there_is_of_a_younger_daemon_which_is_noted(self, daemon: Daemon) -> None:
        daemon.watch(1.0, 30)

        found = daemon.last(3600)

        assert found.gpus[0].totals.observed_ns == s(30)
        assert len(found.notes) == 1


class TestADay:
    def test_costs_no_more_than_a_few_hundred_reports_and_an_hour_is_still_near(
        self, daemon: Daemon
    ) -> None:
        for at_ns in range(0, DAY_NS, s(10)):
            if daemon.history.is_due(at_ns):
                daemon.history.keep(daemon.now(), at_ns)

        hour, day = (daemon.history.since(daemon.now(), DAY_NS, h * 3600) for h in (1, 23))

        assert s(3600) <= DAY_NS - hour.origin_ns <= s(3900)
        assert s(22.5 * 3600) <= DAY_NS - day.origin_ns <= DAY_NS
        assert len(daemon.history._kept) <= 256
        assert daemon.history._kept[0][0] == 0
