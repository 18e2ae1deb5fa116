"""Low SM utilisation, from frames to a finding."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest

from gpumon.core.report.report import UNDER_FILLED, Report
from gpumon.core.sample import Device, Frame, GpuSample
from gpumon.core.state import MonitorState
from gpumon.core.verdict import VerdictName
from gpumon.pipeline.history import ReportHistory
from gpumon.pipeline.state_report import report_of
from tests.builders.monitor import monitor, reading
from tests.builders.report import BEGAN_S, seconds_of
from tests.builders.time import s

HEAT = ("hw_thermal_slowdown",)


def named(index: int) -> Device:
    return Device(uuid=f"GPU-{index}", index=index)


def watched(*gpus: Iterable[GpuSample]) -> list[MonitorState]:
    """One state for each second of these GPUs."""
    watching, states = monitor(), []
    for second, samples in enumerate(zip(*gpus, strict=True), start=1):
        at_ns = s(BEGAN_S + second)
        states.append(watching.ingest(reading(at_ns, Frame(at_ns, samples))))
    return states


def found(report: Report) -> list[str]:
    return [one.evidence for one in report.advice if one.cause == UNDER_FILLED]


@pytest.fixture(scope="module")
def states() -> list[MonitorState]:
    """Full, a quarter full, the same two without GPM, throttled, idle, at the memory's limit."""
    return watched(
        seconds_of(120, device=named(0), sm_active=0.95, watts=640.0),
        seconds_of(120, device=named(1), sm_active=0.24, watts=180.0),
        seconds_of(120, device=named(2), watts=180.0),
        seconds_of(120, device=named(3), watts=620.0),
        seconds_of(120, device=named(4), watts=180.0, clock=0.6, reasons=HEAT),
        seconds_of(120, device=named(5), busy=0.0, watts=70.0, sm_active=0.0),
        seconds_of(120, device=named(6), sm_active=0.24, memory=0.8),
    )


class TestGpusThatAreEquallyBusy:
    def test_are_found_only_where_they_are_under_filled(self, states: list[MonitorState]) -> None:
        (evidence,) = found(report_of(states[-1]))

        assert re.findall(r"GPU \d|\d+ %", evidence)[:3] == ["GPU 1", "97 %", "24 %"]
        assert set(re.findall(r"GPU \d", evidence)) == {"GPU 1", "GPU 2"}
        flags = [gpu.under_filled_now for gpu in states[-1].gpus]
        assert flags == [False, True, True, False, False, False, False]
        assert not any(gpu.under_filled_now for gpu in states[50].gpus)

    def test_keep_their_verdicts_and_every_second_of_their_time(
        self, states: list[MonitorState]
    ) -> None:
        full, quarter, *_, idle, memory_bound = states[-1].gpus

        assert quarter.verdict == full.verdict == memory_bound.verdict
        assert quarter.totals == full.totals == memory_bound.totals
        assert quarter.verdict.name is VerdictName.HEALTHY
        assert idle.verdict.name is VerdictName.NOT_IN_USE

    def test_are_reported_as_throttled(self, states: list[MonitorState]) -> None:
        throttled = next(gpu for gpu in report_of(states[-1]).gpus if gpu.index == 4)

        assert throttled.fill is not None
        assert throttled.fill.throttled_by_ns == {"hw_thermal_slowdown": s(120)}


class TestTheLastMinutes:
    def test_are_diagnosed_by_their_own_samples(self) -> None:
        empty = list(seconds_of(200, sm_active=0.2))
        full = list(seconds_of(200, sm_active=0.95, from_s=200.0))
        history = ReportHistory()
        states = watched([*empty, *full])
        for state in states:
            history.keep(state)
        last = states[-1]

        recent = history.since(report_of(last), last.taken_at_ns, 150.0)

        assert found(recent) == []
        assert recent.gpus[0].fill is not None
        assert recent.gpus[0].fill.sm_active.ratio == pytest.approx(0.95)
        early = history.since(report_of(states[199]), states[199].taken_at_ns, 100.0)
        assert len(found(early)) == 1
