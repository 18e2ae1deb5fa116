"""Specification of why a run waits: sixteen measured conditions, and what stays unknown."""

from __future__ import annotations

import pytest

from gpumon.core.phase import InputWaitReason
from gpumon.core.waits.evidence import HostEvidence
from gpumon.core.waits.wait_rules import LoaderPlace, diagnose_wait, locked_ratio
from tests.builders.report import MB, NAP, NETWORK, PIPE, QUEUE, evidence, gil_threads, task

CPU, GIL, DISK = (
    InputWaitReason.CPU_BOUND, InputWaitReason.GIL_BOUND, InputWaitReason.DISK_BOUND
)  # fmt: skip
NETWORK_BOUND, LATENCY, UNKNOWN = (
    InputWaitReason.NETWORK_BOUND, InputWaitReason.LATENCY_BOUND, InputWaitReason.UNKNOWN
)  # fmt: skip
WORKERS, THREADS, TRAINING = LoaderPlace

MEASURED = {
    "healthy": (evidence(task(0.05, sleeps_in=QUEUE), workers=(task(0.04, sleeps_in=QUEUE),)),
                (UNKNOWN,), None),
    "cpu, 4 workers on 2 cores": (evidence(workers=(task(1.0, 0.77),) * 4), (CPU,), WORKERS),
    "the same on a loaded machine": (evidence(workers=(task(1.0, 0.885),) * 4), (CPU,), WORKERS),
    "cpu, 1 worker": (evidence(workers=(task(1.01, 0.09),)), (CPU,), WORKERS),
    "cpu, in the training thread": (evidence(task(0.78, 0.06), waiting=0.78), (CPU,), TRAINING),
    "GIL, 3 prefetch threads": (evidence(threads=gil_threads(3)), (GIL,), THREADS),
    "cpu, 3 threads of a pool that take turns at 2 cores": (
        evidence(threads=(task(0.62, 0.01),) * 3), (CPU,), THREADS),
    "memory bandwidth": (evidence(task(0.11, sleeps_in=QUEUE), workers=(task(0.91, 0.61),) * 2),
                         (CPU,), WORKERS),
    "disk, O_DIRECT, sequential": (
        evidence(workers=(task(0.25, 0.17, state="D"),), read_bytes_per_second=636 * MB,
             disk_busy_ratio=0.77), (DISK,), WORKERS),
    "disk, O_DIRECT, random": (
        evidence(workers=(task(0.52, 0.23),), read_bytes_per_second=52 * MB, disk_busy_ratio=0.67),
        (DISK,), WORKERS),
    "disk, mapped, random": (
        evidence(workers=(task(0.47, 0.17, state="D"),), read_bytes_per_second=47 * MB,
             major_faults_per_second=11_403.0, disk_busy_ratio=0.74), (DISK,), WORKERS),
    "disk, buffered, cold": (
        evidence(workers=(task(0.94, 0.42),), read_bytes_per_second=486 * MB, disk_busy_ratio=0.67),
        (DISK, CPU), WORKERS),
    "network": (evidence(workers=(task(0.02, sleeps_in=NETWORK),)), (NETWORK_BOUND,), WORKERS),
    "slow pipe": (evidence(workers=(task(0.04, sleeps_in=PIPE),)), (UNKNOWN,), None),
    "latency, in a worker": (evidence(workers=(task(0.02, sleeps_in=NAP),)), (LATENCY,), WORKERS),
    "latency, in a thread": (evidence(threads=(task(0.02, sleeps_in=NAP),)), (LATENCY,), THREADS),
}  # fmt: skip


class TestAMeasuredCondition:
    @pytest.mark.parametrize(("seen", "reasons", "place"), MEASURED.values(), ids=MEASURED.keys())
    def test_has_its_reason_and_place(
        self, seen: HostEvidence, reasons: tuple[InputWaitReason, ...], place: LoaderPlace | None
    ) -> None:
        diagnosis = diagnose_wait([seen])

        assert (diagnosis.reasons, diagnosis.place) == (reasons, place)

    def test_is_the_gil_if_threads_delay_steps(self) -> None:
        burners = evidence(task(0.05, sleeps_in=QUEUE), threads=gil_threads(2), waiting=0.0)

        assert diagnose_wait([burners]).is_gil_bound


NO_REASON = {
    "workers with time to spare": (evidence(workers=(task(0.5),) * 2), UNKNOWN),
    "a disk that others keep busy": (
        evidence(workers=(task(0.2),), disk_busy_ratio=0.9), UNKNOWN),
    "what the training thread computes in its steps": (
        evidence(task(0.6), workers=(task(0.02, sleeps_in=NETWORK),), waiting=0.5), NETWORK_BOUND),
}  # fmt: skip
"""What does not delay the loader, and the reason that is found instead."""


@pytest.mark.parametrize(("seen", "reason"), NO_REASON.values(), ids=NO_REASON.keys())
def test_a_run_does_not_wait_for(seen: HostEvidence, reason: InputWaitReason) -> None:
    assert diagnose_wait([seen]).reasons == (reason,)


class TestTheShareOfWorkersInALock:
    @pytest.mark.parametrize("where", [QUEUE, "flock_lock_inode_wait", "locks_lock_inode_wait"])
    def test_is_that_of_two_workers_or_more_whose_state_was_read(self, where: str) -> None:
        holder, unread = task(1.0), task(0.3)._replace(state=None)
        sleeper, loading = task(0.1, sleeps_in=where), task(0.1, sleeps_in=NETWORK)

        assert locked_ratio(evidence(workers=(holder, sleeper, sleeper, loading, unread))) == 0.5
        assert locked_ratio(evidence(workers=(sleeper,))) is None


class TestAReasonWithoutEvidence:
    def test_has_an_unknown_reason(self) -> None:
        hidden = evidence(
            task(0.01, state="S"),
            workers=(task(0.02, state="S"),),
            read_bytes_per_second=None, disk_busy_ratio=None, memory_stalled_ratio=None,
        )  # fmt: skip

        assert diagnose_wait([hidden]) == ((UNKNOWN,), None, False)

    def test_is_found_if_demand_alone_shows_it(self) -> None:
        hidden = evidence(workers=(task(1.0, state="S"),) * 2, read_bytes_per_second=None)

        assert diagnose_wait([hidden]).reasons == (CPU,)
