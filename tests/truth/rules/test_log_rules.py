"""Rules on logs beyond verdicts: a workload where each applies, and one where it does not."""

from __future__ import annotations

import numpy as np

from gpumon.core.diagnosis.log_findings import log_findings
from gpumon.core.report.report import Report
from tests.truth.rules.small_workloads import training
from tests.truth.rules.watching import in_log
from tests.truth.workloads import GpuTruth, Workload
from tests.truth.workloads.spans import Spans

HOUR_MS = 3_600_000
FORTY_GIB_MIB = 40 * 1024


def at_work(*spans_s: tuple[float, float]) -> Spans:
    return (np.array(spans_s, dtype=np.float64).reshape(-1, 2) * 1_000).astype(np.int64)


def gpu(busy: Spans, memory_mib: int = 0, *held_s: tuple[float, float]) -> GpuTruth:
    """A GPU that works in these spans, with memory held in those."""
    jobs = np.array([[busy[0, 0], busy[-1, 1]]]) if len(busy) else at_work()
    return GpuTruth(
        busy=busy, starved=at_work(), jobs=jobs, held=at_work(*held_s), memory_mib=memory_mib
    )


def findings(report: Report) -> list[tuple[str, tuple[str, ...]]]:
    """The rules that apply, and their GPUs."""
    return [(finding.rule, finding.gpus) for finding in log_findings(report)]


def every(seconds: float, busy: float, *, until: float = 600.0, first: float = 0.0) -> Spans:
    """A burst of ``busy`` seconds every ``seconds``."""
    starts = np.arange(first, until, seconds)
    return at_work(*((at, at + busy) for at in starts.tolist()))


def machine(*gpus: GpuTruth, duration_ms: int = 600_000) -> Workload:
    return Workload("made", 0, duration_ms, gpus)


class TestAllPauseTogether:
    def test_applies_where_one_loader_feeds_two_gpus_and_is_late(self) -> None:
        late = training(late_ms=dict.fromkeys(range(100, 1_800, 100), 4_000))
        both = Workload("two", 0, late.duration_ms, (late.gpus[0], late.gpus[0]))

        report = in_log(both)

        assert ("all_pause_together", ("0", "1")) in findings(report)
        truth_s = 1e-3 * float(np.diff(late.gpus[0].starved).sum())
        assert report.together is not None
        assert abs(report.together.all_paused_ns / 1e9 - truth_s) < 0.15 * truth_s

    def test_does_not_apply_where_two_jobs_pause_as_often_each_in_its_own_rhythm(self) -> None:
        report = in_log(machine(gpu(every(10, 6)), gpu(every(13, 8))))

        assert report.together is not None
        assert report.together.all_paused_ns > 0.1 * report.together.in_use_ns
        assert "all_pause_together" not in dict(findings(report))


class TestIdleBesidePeer:
    def test_applies_to_a_gpu_that_no_one_uses(self) -> None:
        report = in_log(machine(gpu(every(10, 9.9)), gpu(at_work())))

        assert findings(report) == [("idle_beside_peer", ("1",))]

    def test_applies_to_one_that_waits_for_its_peer(self) -> None:
        report = in_log(machine(gpu(every(10, 9.9)), gpu(every(10, 6))))

        assert findings(report) == [("idle_beside_peer", ("1",))]
        idle_ns = report.gpus[1].idle_beside_peer_ns
        assert idle_ns is not None
        assert abs(idle_ns / 1e9 - 0.39 * 600) < 0.1 * 600

    def test_does_not_apply_where_both_pause_at_the_same_time(self) -> None:
        report = in_log(machine(gpu(every(10, 6)), gpu(every(10, 6))))

        assert "idle_beside_peer" not in dict(findings(report))

    def test_does_not_apply_where_they_worked_at_different_hours(self) -> None:
        one = gpu(every(10, 9.9, until=300), 0)
        other = gpu(every(10, 9.9, first=40, until=310), 0)

        assert "idle_beside_peer" not in dict(findings(in_log(machine(one, other))))


class TestMemoryHeld:
    def test_applies_to_a_notebook_that_no_one_ended(self) -> None:
        report = in_log(machine(gpu(every(5, 4.9, until=120), FORTY_GIB_MIB, (0, 600))))

        assert findings(report) == [("memory_held", ("0",))]
        held = report.gpus[0].held_memory
        assert held is not None
        assert 0.98 * 480 < held.idle_ns / 1e9 < 480  # the logger misses rows
        assert held.longest_ns == held.idle_ns
        assert held.peak_bytes >> 30 == 40

    def test_does_not_apply_where_the_memory_was_given_back(self) -> None:
        report = in_log(machine(gpu(every(5, 4.9, until=120), FORTY_GIB_MIB, (0, 125))))

        assert findings(report) == []
        assert report.gpus[0].held_memory == (0, 0, 0)

    def test_does_not_apply_to_a_job_that_only_pauses(self) -> None:
        report = in_log(machine(gpu(every(50, 10), FORTY_GIB_MIB, (0, 600))))

        assert "memory_held" not in dict(findings(report))


class TestSamplingTooCoarse:
    def test_applies_at_one_sample_a_minute(self) -> None:
        workload = machine(gpu(at_work((0, 3_600))), duration_ms=HOUR_MS)

        assert findings(in_log(workload, period_s=60)) == [("sampling_too_coarse", ())]

    def test_does_not_apply_at_one_in_two_seconds(self) -> None:
        workload = machine(gpu(at_work((0, 3_600))), duration_ms=HOUR_MS)

        assert findings(in_log(workload, period_s=2)) == []
