"""Rules on reasons of input stalls: evidence where each holds, and similar evidence where not.

The samples are from real training runs under sixteen conditions on two cores, to a hundredth of a
core.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from gpumon.core.settings.host import DEFAULT_HOST_SETTINGS, HostSettings
from gpumon.core.waits.evidence import HostEvidence, TaskSample
from gpumon.core.waits.wait_rules import (
    is_cpu_bound,
    is_disk_bound,
    is_gil_bound,
    is_latency_bound,
    is_memory_short,
    is_network_bound,
)
from tests.builders.report import MB, NAP, NETWORK, PIPE, QUEUE, evidence, gil_threads, task

Samples = Sequence[HostEvidence]
UNREADABLE: dict[str, Any] = {"read_bytes_per_second": None, "disk_busy_ratio": None}
OF_OTHER_USER: dict[str, Any] = {
    "read_bytes_per_second": None, "disk_read_bytes_per_second": 500 * MB, "disk_busy_ratio": 0.7,
}  # fmt: skip
AWAKE, ASLEEP = evidence(workers=(task(0.2),)), evidence(workers=(task(0.2, sleeps_in=NAP),))


class Cases(NamedTuple):
    """A rule, and evidence by what it is of."""

    rule: Callable[[Samples, HostSettings], bool]
    holds: Mapping[str, Samples]
    does_not: Mapping[str, Samples]


RULES = {
    "memory_pressure": Cases(
        is_memory_short,
        {
            "stalls, and pages are read": [
                evidence(
                    workers=(task(0.3, state="D", sleeps_in="folio_wait_bit_common"),),
                    major_faults_per_second=400.0, memory_stalled_ratio=0.4,
                )
            ],
            "evicted pages are read again": [
                evidence(
                    workers=(task(0.3),), major_faults_per_second=9_000.0,
                    memory_stalled_ratio=0.006, refaults_per_second=2_655.0,
                )
            ],
        },
        {
            "another process stalls": [evidence(workers=(task(1.0),), memory_stalled_ratio=0.4)],
            "pages are read for the first time": [
                evidence(
                    workers=(task(0.47),), major_faults_per_second=11_403.0,
                    refaults_per_second=183.0,
                )
            ],
            "the kernel does not count stalls": [
                evidence(major_faults_per_second=400.0, memory_stalled_ratio=None)
            ],
        },
    ),
    "gil_bound": Cases(
        is_gil_bound,
        {
            "threads take turns on one core": [evidence(threads=gil_threads(3))],
            "on a loaded machine": [evidence(threads=(task(0.61, 0.45, 100.0, QUEUE),) * 3)],
            "the training thread and another one": [
                evidence(task(0.6, 0.1, 340.0), threads=(task(0.65, 0.1, 340.0),))
            ],
        },
        {
            "threads that never wait": [evidence(threads=(task(0.95, 0.6, 150.0, QUEUE),) * 3)],
            "one thread": [evidence(threads=(task(1.0, 0.1, 204.0),))],
            "threads that compute in parallel": [evidence(threads=(task(1.0, switches=3.0),) * 2)],
            "threads that receive": [
                evidence(threads=(task(0.45, switches=300.0, sleeps_in=NETWORK),) * 2)
            ],
            "a pool of native threads": [evidence(threads=(task(0.5, switches=4_000.0),) * 2)],
        },
    ),
    "disk_bound": Cases(
        is_disk_bound,
        {
            "reads in sequence from a busy disk": [
                evidence(
                    workers=(task(0.25),), read_bytes_per_second=636 * MB, disk_busy_ratio=0.77
                )
            ],
            "random reads from a busy disk": [
                evidence(workers=(task(0.52),), read_bytes_per_second=52 * MB, disk_busy_ratio=0.67)
            ],
            "major faults": [evidence(major_faults_per_second=11_403.0)],
            "a loader that sleeps until a device answers": [
                evidence(workers=(task(0.2),), **UNREADABLE),
                evidence(workers=(task(0.2),), **UNREADABLE),
                evidence(workers=(task(0.2, state="D"),), **UNREADABLE),
            ],
            "another user's reads, by those of the machine": [
                evidence(workers=(task(0.9, state="D"),), **OF_OTHER_USER),
                *[evidence(workers=(task(0.9),), **OF_OTHER_USER)] * 4,
            ],
        },
        {
            "another process keeps the disk busy": [
                evidence(workers=(task(1.0),), disk_busy_ratio=0.9)
            ],
            # The kernel shows a task that waits for NFS as one that waits for a device.
            "a remote file, and another process keeps the disk busy": [
                evidence(
                    workers=(task(0.02, state="D", sleeps_in="rpc_wait_bit_killable"),),
                    disk_busy_ratio=0.9,
                )
            ],
            "a disk that is hardly busy": [
                evidence(workers=(task(1.0),), read_bytes_per_second=30 * MB, disk_busy_ratio=0.1)
            ],
        },
    ),
    "cpu_bound": Cases(
        is_cpu_bound,
        {
            "workers that share cores": [evidence(workers=(task(1.0, 0.77),) * 4)],
            "one worker on a core": [evidence(workers=(task(1.01, 0.09),))],
            "a worker with idle helpers": [
                evidence(workers=(task(1.0), *(task(0.0, sleeps_in=PIPE),) * 2))
            ],
            "a training thread that makes its batches": [evidence(task(0.78, 0.06), waiting=0.78)],
            "one that seldom waits": [evidence(task(0.35), waiting=0.3)],
        },
        {
            "workers that wait": [evidence(workers=(task(0.52), task(0.25)))],
            "a training thread that spins in its steps": [
                evidence(
                    task(0.7, sleeps_in=QUEUE), waiting=0.3, workers=(task(0.0, sleeps_in=NAP),)
                )
            ],
            "threads that share the GIL": [evidence(threads=(task(0.82, 0.45, 150.0, QUEUE),) * 2)],
        },
    ),
    "network_bound": Cases(
        is_network_bound,
        {
            "a loader that receives": [evidence(workers=(task(0.02, sleeps_in=NETWORK),))],
            "one that waits for NFS": [
                evidence(workers=(task(0.02, state="D", sleeps_in="rpc_wait_bit_killable"),))
            ],
        },
        {"one that waits for a pipe": [evidence(workers=(task(0.02, sleeps_in=PIPE),))]},
    ),
    "latency_bound": Cases(
        is_latency_bound,
        {
            "a process that sleeps": [evidence(workers=(task(0.02, sleeps_in=NAP),))],
            "a thread that sleeps": [evidence(threads=(task(0.02, sleeps_in=NAP),))],
            "a training thread that sleeps": [evidence(task(0.02, sleeps_in=NAP))],
            "asleep in most samples": [ASLEEP, ASLEEP, AWAKE],
            # Its last samples fell into steps.
            "a training thread that slept before": [
                evidence(task(0.02, sleeps_in=NAP)), *[evidence(TaskSample(0.02, 0.0))] * 6
            ],
        },
        {
            "awake in most samples": [AWAKE, AWAKE, ASLEEP],
            "the kernel does not report where it sleeps": [
                evidence(workers=(task(0.02, state="S"),))
            ],
        },
    ),
}  # fmt: skip


def cases(kind: str) -> list[Any]:
    return [
        pytest.param(one.rule, samples, id=f"{rule}: {name}")
        for rule, one in RULES.items()
        for name, samples in getattr(one, kind).items()
    ]


@pytest.mark.parametrize(("rule", "samples"), cases("holds"))
def test_a_reason_holds(rule: Callable[..., bool], samples: Samples) -> None:
    assert rule(samples, DEFAULT_HOST_SETTINGS)


@pytest.mark.parametrize(("rule", "samples"), cases("does_not"))
def test_a_reason_does_not_hold(rule: Callable[..., bool], samples: Samples) -> None:
    assert not rule(samples, DEFAULT_HOST_SETTINGS)
