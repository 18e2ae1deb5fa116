"""Specification of the GPUs that a job waits for, and why they are slow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gpumon.core.device.job_measurements import InJob, ProcessOnGpu
from gpumon.core.device.sm_utilisation import GpuFill
from gpumon.core.diagnosis.imbalance import (
    JobImbalance,
    LowerClocks,
    MoreWork,
    OtherTenant,
    SlowCause,
    SlowerBoard,
    SlowGpu,
    imbalances,
)
from gpumon.core.diagnosis.report_since import report_since
from gpumon.core.phase import IdleCause
from gpumon.core.report.report import GpuReport, RunReport
from tests.builders.report import gpu, mean, power_fill, rank_of, report, shared_run
from tests.builders.time import s

HEAT = "hw_thermal_slowdown"
EVEN = shared_run([0.5, 1.0], [0.5, 0.5])
LEVEL = shared_run([1.0, 1.0], [0.5, 0.5])


def board(
    index: int,
    waited_s: float = 0.0,
    *,
    fill: GpuFill | None = None,
    tenants: tuple[ProcessOnGpu, ...] = (),
    jobs: tuple[str, ...] = ("j1",),
    **changes: Any,
) -> GpuReport:
    """A GPU that trained for 100 s, and waited for a slower one in so many of them.

    ``fill`` and ``tenants`` are what its board reported while it worked for ``jobs``.
    """
    idle = {IdleCause.IMBALANCE: waited_s} if waited_s else {}
    in_job = InJob(jobs, 1, fill, s(100) if tenants else 0, tenants)
    return replace(gpu(100 - waited_s, idle, index=index), in_job=in_job, **changes)


def pair(fast: dict[str, Any], slow: dict[str, Any]) -> list[GpuReport]:
    """Two GPUs; the first waits for the second."""
    return [board(0, 50, **fast), board(1, **slow)]


def clocked(ratio: float, held: float = 0.0, seconds: float = 120.0) -> GpuFill:
    """A GPU at such a clock, reduced by heat for such a part of the time."""
    return power_fill(180.0, seconds=seconds, held=held)._replace(sm_clock=mean(ratio, seconds))


def tenants(*those: tuple[int, int | None, float | None]) -> dict[str, Any]:
    """Processes, with whose each is and what part of the time it computed."""
    return {
        "tenants": tuple(
            ProcessOnGpu(pid, uid, s(100))
            if ratio is None
            else ProcessOnGpu(pid, uid, s(100), s(100), s(ratio * 100))
            for pid, uid, ratio in those
        )
    }


def only(gpus: Sequence[GpuReport], *runs: RunReport) -> JobImbalance:
    """What is found in the only job that these runs are of."""
    (found,) = imbalances(gpus, runs).values()
    return found


def causes(
    fast: dict[str, Any], slow: dict[str, Any], one: RunReport = EVEN
) -> tuple[SlowCause, ...]:
    (found,) = only(pair(fast, slow), one).slow
    return found.causes


ITSELF = (4711, 1000, 0.9)
"""The process of the run."""


class TestWhoWaitsForWhom:
    def test_is_found_with_how_long(self) -> None:
        found = only(pair({}, {}), EVEN)

        assert found.slow == (SlowGpu("GPU-1", 2.0, ()),)
        assert (found.peer, found.waits_ns) == ("GPU-0", {"GPU-0": s(50)})

    def test_blames_no_gpu_where_one_did_none_of_the_work(self) -> None:
        assert only(pair({}, {}), shared_run([0.0, 1.0], [0.5, 0.5])).slow == ()

    def test_counts_no_run_that_was_over_before(self) -> None:
        assert imbalances(pair({}, {}), [replace(EVEN, ended_before=True)]) == {}

    def test_may_be_a_rank_that_is_not_seen_here(self) -> None:
        ranks = [replace(rank_of(at, busy), world_size=4) for at, busy in ((0, 0.5), (1, 1.0))]

        assert only(pair({}, {}), *ranks).missing_ranks == 2
        assert only(pair({}, {}), EVEN).missing_ranks == 0


class TestLowerClocks:
    def test_are_believed_of_a_throttled_gpu_whose_peer_is_hardly_ever_busy_all_through(
        self,
    ) -> None:
        found = causes({}, {"fill": clocked(0.5, held=0.8)})

        assert found == (LowerClocks(2.0, 0.5, None, 0.8, (HEAT,)),)

    def test_are_no_reason_where_the_clock_is_full_though_it_was_reduced_briefly(
        self,
    ) -> None:
        assert causes({}, {"fill": clocked(0.98, held=0.2)}) == ()


class TestAnotherTenant:
    def test_may_be_of_the_same_user(self) -> None:
        owned = replace(EVEN, owner_uid=1000)
        found = causes({}, tenants(ITSELF, (77, 1000, 0.5)), owned)

        assert [type(one) for one in found] == [OtherTenant]

    def test_is_not_a_reason_if_the_peer_has_one_as_well(self) -> None:
        both = tenants(ITSELF, (77, 1001, 0.5))

        assert causes(both, both) == ()

    def test_is_not_a_rank_of_the_job_itself(self) -> None:
        ranks = [rank_of(0, 0.5), rank_of(1, 1.0)]
        on_slow = tenants((4712, 1000, 0.5), (4711, 1000, 0.2))

        (found,) = only(pair({}, on_slow), *ranks).slow

        assert found.causes == ()

    def test_is_not_a_child_that_trains_for_the_run(self) -> None:
        owned = replace(EVEN, owner_uid=1000)

        assert causes({}, tenants((9, 1000, 0.9)), owned) == ()
        (other,) = causes({}, tenants((9, 1000, 0.5), (77, 1001, 0.5)), owned)
        assert isinstance(other, OtherTenant)
        assert other.pids == (77,)

    def test_is_not_on_a_list_that_lacks_the_job_itself(self) -> None:
        # As a container has it, whose pids are others.
        assert causes({}, tenants((77, None, 0.9), (78, None, 0.4))) == ()


class TestASlowerBoard:
    FAST, SLOW = "NVIDIA GeForce GTX 1080 Ti", "NVIDIA GeForce GTX 1080"

    def test_is_slower_still_if_it_has_less_work_already(self) -> None:
        found = causes({"name": self.FAST}, {"name": self.SLOW}, shared_run([0.5, 1.0], [0.6, 0.4]))

        assert [type(one) for one in found] == [SlowerBoard]
        assert found[0].times == pytest.approx(3.0)

    @pytest.mark.parametrize("name", [None, "NVIDIA A40"])
    def test_is_not_known_of_one_without_a_name_or_with_the_same(self, name: str | None) -> None:
        assert causes({}, {"name": name}) == ()


class TestSeveralReasons:
    def test_come_in_the_order_of_what_they_explain_and_multiply_to_the_whole(self) -> None:
        found = only(
            pair(
                {"fill": clocked(1.0), "name": "A"},
                {
                    "fill": clocked(0.8, held=0.8),
                    "name": "B",
                    **tenants(ITSELF, (77, 1001, 0.1)),
                },
            ),
            shared_run([0.4, 1.0], [0.4, 0.6]),
        ).slow[0]

        assert [type(one) for one in found.causes] == [
            MoreWork, LowerClocks, SlowerBoard, OtherTenant
        ]  # fmt: skip
        product = 1.0
        for one in found.causes:
            product *= one.times or 1.0
        assert product == pytest.approx(found.times) == pytest.approx(2.5)
        assert found.is_explained


class TestBetweenTwoReports:
    def test_who_had_left_before_is_no_reason(self) -> None:
        earlier = report(*pair({}, tenants(ITSELF, (77, 1001, 0.5))), runs=(EVEN,))
        stays = ProcessOnGpu(4711, 1000, s(200), s(200), s(190))
        both = (stays, ProcessOnGpu(77, 1001, s(100), s(100), s(50)))
        fast, slow = pair({}, {})
        slow = replace(slow, in_job=InJob(("j1",), 1, None, s(200), both))
        later = report(fast, slow, runs=(replace(EVEN, steps=900),))

        since = report_since(earlier, later)

        assert only(later.gpus, *later.runs).slow[0].causes
        assert only(since.gpus, *since.runs).slow[0].causes == ()


class TestWhatABoardReportedForAnotherJob:
    def test_is_not_a_reason_in_this_one(self) -> None:
        hot = {"fill": clocked(0.5, held=0.8), **tenants(ITSELF, (77, 1001, 0.5))}

        assert causes({}, {**hot, "jobs": ("j0",)}) == ()
        assert len(causes({}, {**hot, "jobs": ("j0", "j1")})) == 2
