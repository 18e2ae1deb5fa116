"""Specification of what a board shows while its GPU works for one job: its tenants, its fill."""

from __future__ import annotations

from gpumon.core.device.job_measurements import (
    MAX_PROCESSES,
    InJob,
    InJobLedger,
    ProcessOnGpu,
    in_job_since,
)
from gpumon.core.sample import BusySample, Device, GpuSample, ProcessSample
from tests.builders.report import seconds_of
from tests.builders.time import s

DEVICE = Device(uuid="GPU-0", index=0)


def second(at_s: float, *processes: ProcessSample, is_listed: bool = True) -> GpuSample:
    """A second of a GPU on which these processes are; ``is_listed``: the driver lists them."""
    return GpuSample(
        device=DEVICE,
        busy=(BusySample(s(at_s), s(at_s + 1), 1.0),),
        processes=processes if is_listed else None,
    )


def after(*samples: GpuSample) -> InJob:
    """The sums of a job after these seconds."""
    ledger = InJobLedger()
    ledger.work_for(("j1",))
    for sample in samples:
        ledger.observe(sample)
    found = ledger.snapshot()
    assert found is not None
    return found


def process(pid: int, sm: float | None = None, uid: int | None = 1000) -> ProcessSample:
    return ProcessSample(pid, None, sm, uid=uid)


class TestATenant:
    def test_has_its_time_on_the_gpu_and_its_computing_time(self) -> None:
        found = after(second(0, process(1, 0.5)), second(1, process(1, 0.25)), second(2))

        assert found.listed_ns == s(3)
        assert found.tenants == (ProcessOnGpu(1, 1000, s(2), s(2), s(0.75)),)
        assert found.tenants[0].computing_ratio == 0.375

    def test_is_a_new_one_if_another_user_reuses_its_pid(self) -> None:
        found = after(second(0, process(1, uid=1000)), second(1, process(1, uid=1001)))

        assert [(one.uid, one.present_ns) for one in found.tenants] == [(1000, s(1)), (1001, s(1))]

    def test_is_clamped_or_unknown_if_its_share_is_impossible(self) -> None:
        found = after(second(0, process(1, float("nan")), process(2, 7.0)))

        assert [one.computing_ratio for one in found.tenants] == [None, 1.0]

    def test_is_kept_although_many_came_and_went_before(self) -> None:
        gone = [second(at, process(100 + at // 2)) for at in range(4 * MAX_PROCESSES)]
        stays = [second(1_000 + at, process(1)) for at in range(9)]

        found = after(*gone, *stays)

        assert len(found.tenants) == MAX_PROCESSES
        assert ProcessOnGpu(1, 1000, s(9)) in found.tenants


class TestAJob:
    def test_begins_the_count_again(self) -> None:
        ledger = InJobLedger()
        ledger.work_for(("j1",))
        for sample in seconds_of(20, watts=300.0):
            ledger.observe(sample._replace(processes=(process(1),)))
        ledger.work_for(("j2",))
        ledger.work_for(("j2",))
        for sample in seconds_of(10, watts=180.0, from_s=20):
            ledger.observe(sample._replace(processes=(process(2),)))

        found = ledger.snapshot()

        assert found is not None
        assert (found.jobs, found.begun) == (("j2",), 2)
        assert [one.pid for one in found.tenants] == [2]
        assert found.fill is not None
        assert (found.fill.drawn_ns, found.fill.drawn_watts) == (s(9), 180.0)


class TestBetweenTwoReports:
    EARLY = second(0, process(1, 0.5)), second(1, process(2, 0.5))

    def test_what_was_added_counts(self) -> None:
        before, then = after(*self.EARLY), after(*self.EARLY, second(2, process(1, 1.0)))

        found = in_job_since(before, then)

        assert found is not None
        assert found.listed_ns == s(1)
        assert found.tenants == (ProcessOnGpu(1, 1000, s(1), s(1), s(1)),)

    def test_all_of_a_job_that_began_meanwhile_counts(self) -> None:
        before, then = after(*self.EARLY)._replace(begun=1), after(*self.EARLY)._replace(begun=2)

        assert in_job_since(before, then) == then
        assert in_job_since(None, then) == then
        assert in_job_since(before, None) is None
